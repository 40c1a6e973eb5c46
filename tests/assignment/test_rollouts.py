"""`Rollouts` refuses what does not fit, by name and place, and ignores what stands at masked positions."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
import torch

from gear_rl import GearError, Rollouts, credit

MASK = torch.tensor([[True, True, False, True, True], [False, True, True, True, False]])


def build(**changes) -> Rollouts:
    parts = dict(action_mask=MASK, rewards=torch.tensor([1.0, 0.0]), group_ids=torch.tensor([4, 4]))
    return Rollouts(**{**parts, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(action_mask=MASK.long()), r"action_mask must be a bool tensor of .*\(B, T\), got int64 of .*\(2, 5\)"),
        (dict(action_mask=MASK[0]), r"action_mask must be a bool tensor"),
        (dict(action_mask=MASK.tolist()), r"action_mask must be .* got list"),
        (dict(action_mask=MASK[:, :0]), r"action_mask is empty"),
        (dict(rewards=torch.tensor([1.0])), r"rewards must be a floating-point tensor of shape \(2,\), got .* \(1,\)"),
        (dict(rewards=torch.tensor([1, 0])), r"rewards must be a floating-point tensor .* got int64"),
        (dict(rewards=[1.0, 0.0]), r"rewards must be .* got list"),
        (dict(group_ids=torch.tensor([0.0, 0.0])), r"group_ids must be an integer tensor .* got float32"),
        (dict(group_ids=torch.tensor([True, True])), r"group_ids must be an integer tensor .* got bool"),
        (dict(turn_ids=torch.zeros(2, 4, dtype=torch.long)), r"turn_ids must be an integer tensor of shape \(2, 5\)"),
        (dict(token_ids=torch.zeros(2, 5)), r"token_ids must be an integer tensor"),
        (dict(advantages=torch.zeros(2, 5)), r"advantages must be a floating-point tensor of shape \(2,\)"),
        (dict(signals={"entropy": torch.zeros(2, 6)}), r"signal 'entropy' must be .* \(2, 5\), got .* \(2, 6\)"),
        (dict(signals={"entropy": torch.zeros(2, 5, dtype=torch.cfloat)}), r"signal 'entropy' must be a real-valued"),
        (dict(signals={"entropy": torch.zeros(2, 5, device="meta")}), r"signal 'entropy' is on meta, .* on cpu"),
        (
            dict(channels={"style": torch.zeros(2, 5)}),
            r"channel 'style' must be a floating-point tensor of shape \(2,\)",
        ),
        (dict(channels={"style": torch.tensor([1, 0])}), r"channel 'style' must be a floating-point .* got int64"),
        (dict(channels={"style": torch.tensor([0.0, float("inf")])}), r"channel 'style' is inf at rollout 1; it must"),
        (dict(advantages=torch.tensor([0.0, float("nan")])), r"advantages is nan at rollout 1; it must be finite\."),
        (
            dict(rewards=torch.tensor([float("inf"), 0.0])),
            r"rewards is inf at rollout 0; it must be finite, or NaN for",
        ),
        (dict(advantages=torch.tensor([0.0, -float("inf")])), r"advantages is -inf at rollout 1"),
        (dict(turn_ids=torch.tensor([[0, 0, 9, 1, 1], [0, 2, 2, 1, 5]])), r"turn_ids go back at rollout 1, position 3"),
    ],
)
def test_bad_input_is_refused(changes, message):
    with pytest.raises(GearError, match=message):
        build(**changes)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_signal_is_refused_at_an_action_token_only(value):
    for rollout in range(2):
        for position in range(5):
            signal = torch.zeros(2, 5)
            signal[rollout, position] = value
            if MASK[rollout, position]:
                with pytest.raises(GearError, match=f"'kl' is {value} at rollout {rollout}, position {position};"):
                    build(signals={"kl": signal})
            else:
                build(signals={"kl": signal})


def test_rollouts_are_frozen():
    with pytest.raises(FrozenInstanceError):
        build().rewards = torch.zeros(2)


def test_pack_and_unpack():
    actions = build().actions
    values = torch.arange(10).view(2, 5)
    assert actions.pack(values).tolist() == [[0, 1, 3, 4], [6, 7, 8, 0]]
    assert actions.unpack(actions.pack(values)).tolist() == [[0, 1, 0, 3, 4], [0, 6, 7, 8, 0]]
    assert actions.counts.tolist() == [4, 3]


def test_without_turn_ids_every_run_of_action_tokens_is_a_turn():
    assert build().actions.turn_starts.tolist() == [[True, False, True, False], [True, False, False, False]]


def test_turn_ids_say_where_turns_begin():
    turns = torch.tensor([[0, 0, -5, 0, 3], [7, 1, 2, 2, 0]])  # masked positions may hold anything
    starts = build(turn_ids=turns).actions.turn_starts
    assert starts.tolist() == [[True, False, False, True], [True, True, False, False]]


def test_a_group_of_one_is_refused():
    rollouts = build(group_ids=torch.tensor([4, 9]))
    with pytest.raises(GearError, match=r"group 4 has a single rollout \(rollout 0\).*at least two completions"):
        credit("grpo", rollouts)


def test_a_group_of_one_is_fine_where_the_group_is_not_asked():
    advantages = torch.tensor([0.5, -0.5])
    credit("grpo", build(group_ids=torch.tensor([4, 9]), advantages=advantages))
    logprobs = {"student_logprob": torch.zeros(2, 5), "teacher_logprob": torch.zeros(2, 5)}
    credit("opd", build(group_ids=torch.tensor([4, 9]), signals=logprobs))


def test_a_reward_of_nan_is_a_rollout_that_could_not_be_scored():
    mask = torch.ones(4, 2, dtype=torch.bool)
    mask[3] = False
    rollouts = Rollouts(mask, torch.tensor([1.0, float("nan"), 0.0, 5.0]), torch.zeros(4, dtype=torch.long))
    assert rollouts.scorable.tolist() == [True, False, True, True]
    assert rollouts.counted.tolist() == [True, False, True, False]
    assert credit("dr_grpo", rollouts).advantages[:, 0].tolist() == [-1.0, 0.0, -2.0, 0.0]  # 5 counts


def test_equal_rewards_have_no_advantage_to_the_last_bit():
    for reward in (0.1, 0.3, 1e9):  # the mean of three equal numbers may round
        rewards = torch.tensor([reward] * 3 + [0.0, 1.0, 2.0, 3.0], dtype=torch.float64)
        rollouts = Rollouts(torch.ones(7, 2, dtype=torch.bool), rewards, torch.tensor([1, 1, 1, 0, 0, 0, 0]))
        assert (credit("grpo", rollouts).advantages[:3] == 0).all()
        assert (credit("dr_grpo", rollouts).advantages[:3] == 0).all()


def test_the_order_of_a_group_does_not_matter_to_the_last_bit():
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randn(64, generator=generator, dtype=torch.float64)  # their sum rounds differently in each order
    rollouts = Rollouts(torch.ones(64, 1, dtype=torch.bool), rewards, torch.arange(64) % 2)
    advantages = credit("grpo", rollouts).advantages
    for _ in range(20):
        order = torch.randperm(64, generator=generator)
        permuted = Rollouts(rollouts.action_mask, rewards[order], rollouts.group_ids[order])
        assert torch.equal(credit("grpo", permuted).advantages, advantages[order])
