"""A rollout whose every reward is None has a reward of NaN: it is as if it had not been sampled, in every method."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch
from random_rollouts import independent_options, to_rollouts
from reference import Rollout, random_batch

from gear_rl.methods import METHODS, credit

every_method = pytest.mark.parametrize("name", METHODS)


def batch_of_large_groups(seed: int) -> list[Rollout]:
    """Groups of four to seven rollouts, so that some can be taken away."""
    return [replace(r, group=r.group % 2) for r in random_batch(seed, groups=4, turns=seed % 2 == 0)]


@every_method
@pytest.mark.parametrize("seed", range(12))
def test_others_do_not_notice_it(name, seed):
    batch, draw = batch_of_large_groups(seed), random.Random(seed)
    gone = {next(i for i, r in enumerate(batch) if r.group == group) for group in (0, 1)}
    for i in gone:
        batch[i].reward, batch[i].channels = math.nan, {**batch[i].channels, "style": math.nan, "task": math.nan}
        batch[i].mask = [draw.random() < 0.7 for _ in batch[i].mask]
    rest = [i for i in range(len(batch)) if i not in gone]
    options = independent_options(name, seed)
    together, without = (credit(name, to_rollouts(b), **options) for b in (batch, [batch[i] for i in rest]))
    for field in ("advantages", "weights", "segments", "onsets"):
        assert torch.equal(getattr(together, field)[rest], getattr(without, field))


@every_method
def test_it_has_no_advantage_itself(name):
    for given in (True, False):
        rollouts = to_rollouts(random_batch(5, advantages=given))
        rollouts = replace(rollouts, rewards=torch.full_like(rollouts.rewards, math.nan))
        assert not credit(name, rollouts).advantages.any()


def test_a_channel_alone_may_be_missing():
    rollouts = to_rollouts(random_batch(4))
    holes = rollouts.channels["style"].clone()
    holes[0] = math.nan
    got = credit("crpo", replace(rollouts, channels={**rollouts.channels, "style": holes}), certainty=0.0)
    assert got.advantages.isfinite().all()
