"""A rollout that the engine does not train on, such as a truncated one that TRL masks: it counts in every baseline, as in TRL,
and has no credit. Statistics over tokens, which are those of the loss, leave it out; the plain loops check them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from random_rollouts import independent_options, to_rollouts
from reference import random_batch

from gear_rl import Rollouts
from gear_rl.methods import METHODS, credit

NO_TOKEN_STATISTICS = {"high_entropy": {"scope": "rollout"}, "rlcsd": {"denominators": "one"}, "sc_grpo": {"scope": "rollout"}}
every_method = pytest.mark.parametrize("name", METHODS)


@every_method
@pytest.mark.parametrize("seed", range(8))
def test_others_are_compared_with_it_and_it_has_no_credit(name, seed):
    rollouts = to_rollouts(random_batch(seed, turns=seed % 2 == 0, advantages=False))
    trained = torch.arange(len(rollouts.rewards)) % 3 != 0
    options = {**independent_options(name, seed), **NO_TOKEN_STATISTICS.get(name, {})}
    whole, part = (credit(name, replace(rollouts, trained=t), **options) for t in (None, trained))
    assert torch.equal(part.advantages[trained], whole.advantages[trained])
    assert not part.advantages[~trained].any()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "gear", "crpo", "trace", "mt_grpo"])
def test_a_reward_counts_without_tokens(name):
    """As in TRL, where the reward of a masked completion is part of its group's mean."""
    batch = [replace(r, group=0) for r in random_batch(1, longest=12)]
    for i, rollout in enumerate(batch):
        rollout.mask, rollout.reward = [i > 0] * len(rollout.mask), i / 8
    rollouts = to_rollouts(batch)
    other = rollouts.rewards.clone()
    other[0] += 1.0
    channels = {**rollouts.channels, "task": rollouts.channels["task"] + (other - rollouts.rewards)}
    before = credit(name, rollouts).advantages
    after = credit(name, replace(rollouts, rewards=other, channels=channels)).advantages
    assert not torch.equal(before, after) and not after[0].any()


def test_by_hand():
    rollouts = Rollouts(
        torch.ones(3, 2, dtype=torch.bool), torch.tensor([1.0, 0.0, 5.0]), torch.zeros(3, dtype=torch.long),
        trained=torch.tensor([True, True, False]),
    )  # fmt: skip
    assert credit("dr_grpo", rollouts).advantages.tolist() == [[-1.0, -1.0], [-2.0, -2.0], [0.0, 0.0]]
