"""`method+control`: the same method with the outcome or the hint taken away."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from random_rollouts import to_rollouts
from reference import random_batch

from gear_rl import Rollouts, credit
from gear_rl.errors import GearError
from gear_rl.methods import METHODS, find_method
from gear_rl.methods.controls import with_shuffled_outcomes


def rollouts(seed: int = 0, with_advantages: bool = False) -> Rollouts:
    g = torch.Generator().manual_seed(seed)
    b, t = 16, 9
    signals = {n: torch.rand(b, t, generator=g) for n in ("reverse_kl", "entropy")}
    signals |= {n: -torch.rand(b, t, generator=g) for n in ("student_logprob", "teacher_logprob")}
    rewards = torch.rand(b, generator=g)
    return Rollouts(
        torch.rand(b, t, generator=g) < 0.8, rewards, torch.arange(b) // 8,
        advantages=rewards - 0.5 if with_advantages else None,
        token_ids=torch.randint(0, 50, (b, t), generator=g), signals=signals,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["grpo", "rlsd", "token"])
@pytest.mark.parametrize("with_advantages", [False, True])
def test_shuffled_outcomes_deals_each_groups_outcomes_out_again(name, with_advantages):
    batch = rollouts(1, with_advantages)
    plain, shuffled = credit(name, batch), credit(f"{name}+shuffled_outcomes", batch)
    assert torch.equal(shuffled.advantages, credit(f"{name}+shuffled_outcomes", batch).advantages)
    assert not torch.equal(plain.advantages, shuffled.advantages)
    if name == "grpo":  # per group the same advantages, on other rollouts
        for group in (slice(0, 8), slice(8, 16)):
            of = [sorted(c.advantages[group].abs().max(1).values.tolist()) for c in (plain, shuffled)]
            assert of[0] == pytest.approx(of[1])


@pytest.mark.parametrize("name", [name for name, m in METHODS.items() if not m.reads_outcomes])
def test_what_reads_no_outcome_has_none_to_shuffle(name):
    batch = rollouts(1)
    other = replace(batch, rewards=1 - batch.rewards)
    assert torch.equal(credit(name, batch).advantages, credit(name, other).advantages)
    with pytest.raises(GearError, match="do not depend on outcomes"):
        find_method(f"{name}+shuffled_outcomes")


def test_shuffled_outcomes_keeps_a_rollouts_channels_together():
    """A method that reads channels instead of the reward must lose its outcomes too, and all of one rollout at once."""
    batch = rollouts(3)
    batch = replace(batch, channels={"a": batch.rewards, "b": batch.rewards.sqrt()})
    plain, shuffled = (credit(name, batch, certainty=0.0).advantages for name in ("crpo", "crpo+shuffled_outcomes"))
    assert not torch.allclose(plain, shuffled)
    for group in (slice(0, 8), slice(8, 16)):  # dealt out apart, a and b would add up to other sums
        assert sorted(plain[group].abs().max(1).values.tolist()) == pytest.approx(
            sorted(shuffled[group].abs().max(1).values.tolist()), abs=1e-5
        )


def test_all_that_speaks_of_the_outcome_moves_together():
    """Turn rewards, decisions and span distances are made from verdicts: whoever keeps them keeps the outcome."""
    b, turns, per_turn = 8, 3, 2
    mark = torch.arange(b, dtype=torch.float32)[:, None]  # every signal says whose it was
    of_turn = torch.zeros(b, turns * per_turn)
    of_turn[:, per_turn - 1 :: per_turn] = mark + torch.arange(turns) / 10
    of_token = mark + torch.arange(turns * per_turn) / 100
    batch = Rollouts(
        torch.ones(b, turns * per_turn, dtype=torch.bool), mark[:, 0], torch.zeros(b, dtype=torch.long),
        turn_ids=torch.arange(turns).repeat_interleave(per_turn).expand(b, -1), channels={"a": mark[:, 0]},
        signals={"turn_reward": of_turn, "span_distance": of_token, "decision": of_token, "entropy": of_token},
    )  # fmt: skip
    shuffled = with_shuffled_outcomes(batch, seed=0)
    givers = shuffled.rewards.long()
    assert not torch.equal(givers, torch.arange(b)) and sorted(givers.tolist()) == list(range(b))
    assert torch.equal(shuffled.channels["a"], shuffled.rewards)
    for name in ("turn_reward", "span_distance", "decision"):
        assert torch.equal(shuffled.signals[name], batch.signals[name][givers])
    assert torch.equal(shuffled.signals["entropy"], batch.signals["entropy"])  # the policy's own


def test_rewards_of_turns_go_to_the_same_relative_turn_where_lengths_differ():
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    reward = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [10.0, 20.0, 30.0, 0.0, 0.0]])
    for seed in range(20):
        batch = Rollouts(mask, torch.tensor([0.0, 1.0]), torch.tensor([0, 0]), turn_ids=torch.arange(5).expand(2, -1),
                         signals={"turn_reward": reward, "span_distance": reward})  # fmt: skip
        got = with_shuffled_outcomes(batch, seed)
        if got.rewards[0] == 1.0:  # first to first, last to last
            for signal in got.signals.values():
                assert signal.tolist() == [[10.0, 20.0, 20.0, 30.0, 30.0], [1.0, 3.0, 5.0, 0.0, 0.0]]
            return
    raise AssertionError("no seed exchanged the two")


@pytest.mark.parametrize("name", ["mt_grpo", "crest", "shear", "oracle"])
def test_what_is_credited_by_verdicts_depends_on_the_shuffle(name):
    rollouts = to_rollouts(random_batch(0, groups=2, turns=True))
    plain, shuffled = credit(name, rollouts), credit(f"{name}+shuffled_outcomes", rollouts)
    assert not torch.equal(plain.advantages, shuffled.advantages)


@pytest.mark.parametrize("name", ["rlcsd", "sc_grpo", "serl", "turn_ppo", "vine_ppo", "spo", "prompted_judge", "cepo", "hcapo"])
def test_what_knows_outcomes_from_elsewhere_is_no_such_control(name):
    """Its siblings, feedback or values would still tell the true ones."""
    with pytest.raises(GearError, match="would stay in place"):
        find_method(f"{name}+shuffled_outcomes")


@pytest.mark.parametrize("control", ["sibling_hint", "without_lucky_wins"])
def test_shuffled_outcomes_do_not_come_back_through_another_control(control):
    with pytest.raises(GearError, match="would not be shuffled"):
        find_method(f"shuffled_outcomes+{control}")


def test_an_unscorable_rollout_keeps_what_it_has():
    batch = rollouts(3)
    rewards = batch.rewards.clone()
    rewards[2] = float("nan")
    shuffled = with_shuffled_outcomes(replace(batch, rewards=rewards), seed=0)
    assert shuffled.rewards.isnan().nonzero().tolist() == [[2]]


def test_gears_own_control_is_the_same_thing():
    batch = rollouts(2)
    own, general = credit("shuffled_outcomes", batch), credit("gear+shuffled_outcomes", batch)
    torch.testing.assert_close(own.advantages, general.advantages)


def test_wrong_hint_changes_only_what_the_teacher_reads():
    assert find_method("rlsd+wrong_hint").hint == "other" and find_method("rlsd").hint == "own"
    assert find_method("rlsd+sibling_hint").hint == "sibling"
    assert torch.equal(credit("rlsd+wrong_hint", rollouts()).advantages, credit("rlsd", rollouts()).advantages)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("grpo+wrong_hint", "no teacher"),
        ("sdpo+sibling_hint", "no teacher that reads its own"),
        ("gear+shuffled", "Did you mean 'shuffled_outcomes'"),
        ("geer+wrong_hint", "Did you mean 'gear'"),
    ],
)
def test_what_cannot_be_controlled(name, message):
    with pytest.raises(GearError, match=message):
        find_method(name)


@pytest.mark.parametrize("name", ["high_entropy", "rlsd"])
def test_scaled_grpo_takes_steps_of_the_methods_size_in_grpos_direction(name):
    batch = rollouts(2)
    scaled, method, grpo = (credit(n, batch).advantages for n in (f"{name}+scaled_grpo", name, "grpo"))
    torch.testing.assert_close(scaled.abs().sum(), method.abs().sum())
    assert torch.equal(scaled.sign(), grpo.sign())
    ratio = (scaled / grpo)[grpo != 0]
    torch.testing.assert_close(ratio, ratio[0].expand_as(ratio))
    for kept in ("gear", "grpo", "opd"):
        with pytest.raises(GearError, match="does not change the size"):
            find_method(f"{kept}+scaled_grpo")


def with_values(values: list[list[float]], rewards: list[float]) -> Rollouts:
    """One group; each rollout has as many turns as values, of one token each."""
    longest = max(map(len, values))
    mask = torch.tensor([[i < len(row) for i in range(longest)] for row in values])
    table = torch.tensor([row + [9.0] * (longest - len(row)) for row in values])
    return Rollouts(
        mask, torch.tensor(rewards), torch.zeros(len(values), dtype=torch.long), signals={"values": table},
        turn_ids=torch.arange(longest).expand(len(values), -1),
    )  # fmt: skip


def test_without_lucky_wins_weighs_wins_down_by_what_their_value_lost_on_the_way():
    batch = with_values([[0.5, 0.9, 0.3, 0.8], [0.2, 0.2, 0.6], [0.6, 0.1, 0.0, 0.0]], [1.0, 1.0, 0.0])
    plain, weighed = credit("grpo", batch), credit("grpo+without_lucky_wins", batch)
    torch.testing.assert_close(weighed.advantages[0], plain.advantages[0] * (1 - 0.6))  # from 0.9 to 0.3
    torch.testing.assert_close(weighed.advantages[1:], plain.advantages[1:])  # low all along; a loss
    twice = replace(batch, rewards=2 * batch.rewards, signals={"values": 2 * batch.signals["values"]})
    torch.testing.assert_close(credit("grpo+without_lucky_wins", twice).advantages, weighed.advantages, atol=1e-4, rtol=0)
    assert find_method("grpo+without_lucky_wins").preserves_mass is False


def test_without_lucky_wins_asks_for_values_whatever_the_methods_options():
    made = find_method("gear+without_lucky_wins")(direction="teacher")
    assert set(made.needs) == {"reverse_kl", "entropy", "values"}
    with pytest.raises(GearError, match="do not depend on outcomes"):
        find_method("opd+without_lucky_wins")
    with pytest.raises(GearError, match="needs the signal 'values'"):
        credit("gear+without_lucky_wins", rollouts())
