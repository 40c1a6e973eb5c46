"""Trust in hints: what right, wrong and foreign hints measure, and that the memory forgets."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from gear_rl import Rollouts, credit
from gear_rl.assignment.trust import TrustMemory, trust_of

GROUPS, SIZE, TURNS, LENGTH = 40, 8, 3, 4


def sampled_rollouts(right_hints: float, seed: int = 0) -> Rollouts:
    """Each turn is right with chance ½ and a rollout wins if all are (or by luck). The hinted self agrees with what is right in
    the share `right_hints` of turns, else with what is wrong."""
    draw = torch.Generator().manual_seed(seed)
    rows, wide = GROUPS * SIZE, TURNS * LENGTH
    right = torch.rand(rows, TURNS, generator=draw) < 0.5
    wins = right.all(1) | (torch.rand(rows, generator=draw) < 0.3)
    hint_is_right = (torch.rand(GROUPS, TURNS, generator=draw) < right_hints).repeat_interleave(SIZE, 0)
    gap = torch.zeros(rows, wide)
    gap[:, 1::LENGTH] = torch.where(right == hint_is_right, 1.5, -3.0)
    divergence = torch.full((rows, wide), 0.01)
    divergence[:, 1::LENGTH] = 1.0
    return Rollouts(
        action_mask=torch.ones(rows, wide, dtype=torch.bool),
        rewards=wins.float(),
        group_ids=torch.arange(GROUPS).repeat_interleave(SIZE),
        turn_ids=torch.arange(TURNS).repeat_interleave(LENGTH).expand(rows, -1),
        signals={
            "reverse_kl": divergence,
            "entropy": torch.full((rows, wide), 0.5),
            "student_logprob": torch.full((rows, wide), -4.0),
            "teacher_logprob": gap - 4.0,
        },
    )


def test_right_hints_are_trusted_and_wrong_ones_are_not():
    always, half, never = (trust_of(sampled_rollouts(share)) for share in (1.0, 0.5, 0.0))
    assert always.mean > 0.15 and abs(half.mean) < 0.1 and never.mean == pytest.approx(-always.mean, abs=1e-6)
    assert always.count > GROUPS


def test_evidence_is_the_correlation_of_a_turn_and_the_outcome():
    rollouts = sampled_rollouts(1.0)
    gap = (rollouts.signals["teacher_logprob"] - rollouts.signals["student_logprob"]).clamp(-2, 2)
    x, y = gap[:SIZE, 1], rollouts.rewards[:SIZE]
    assert x.std() > 0 and y.std() > 0  # else this says nothing
    expected = torch.corrcoef(torch.stack([x, y]))[0, 1]
    assert trust_of(rollouts).evidence[:SIZE, 0].tolist() == pytest.approx([expected.item()] * SIZE, abs=1e-5)


def test_without_divergence_the_largest_gap_marks_the_token():
    rollouts = sampled_rollouts(1.0)
    without = {k: v for k, v in rollouts.signals.items() if k != "reverse_kl"}
    again = Rollouts(rollouts.action_mask, rollouts.rewards, rollouts.group_ids, rollouts.turn_ids, signals=without)
    assert torch.equal(trust_of(again).evidence, trust_of(rollouts).evidence)
    assert trust_of(Rollouts(rollouts.action_mask, rollouts.rewards, rollouts.group_ids)) is None


def test_a_turn_that_states_the_outcome_is_no_evidence():
    """As with the answer alone for a hint: the last turn states the answer, which was settled before; its g is the outcome."""
    rollouts = sampled_rollouts(0.5)
    last = slice((TURNS - 1) * LENGTH, None)
    gap = torch.where(rollouts.rewards > 0, 0.0, -8.0)[:, None]
    signals = {name: value.clone() for name, value in rollouts.signals.items()}
    signals["student_logprob"][:, last] = -1e-4
    signals["teacher_logprob"][:, last] = signals["student_logprob"][:, last] + gap
    again = trust_of(replace(rollouts, signals=signals))
    assert (again.evidence[:, -1] == 0).all() and not again.tried[:, -1].any()
    assert abs(again.mean) < 0.1 and torch.equal(again.evidence[:, :-1], trust_of(rollouts).evidence[:, :-1])


def test_memory_begins_in_favour_of_hints_and_learns_better():
    memory = TrustMemory()
    assert memory.mean == pytest.approx(0.1) and memory.at_least == pytest.approx(0.06)
    foreign = trust_of(sampled_rollouts(0.5))
    for _ in range(60):
        memory.add(foreign)
    assert memory.mean == pytest.approx(foreign.mean, abs=0.01) and memory.at_least < 0.02
    for _ in range(60):
        memory.add(trust_of(sampled_rollouts(1.0)))
    assert memory.at_least > 0.15


def test_hints_that_are_right_are_followed_and_others_are_not():
    right, wrong = (credit("checked_hints", sampled_rollouts(share)) for share in (1.0, 0.0))
    assert right.distillation.mean() > 0.5 and (wrong.distillation == 0).all()
    plain = credit("grpo", sampled_rollouts(0.0))
    assert torch.allclose(wrong.advantages, plain.advantages)


def test_a_turn_where_nobody_followed_is_not_distilled():
    rollouts = sampled_rollouts(1.0)
    teacher = rollouts.signals["teacher_logprob"].clone()
    teacher[:SIZE, :LENGTH] = -9.0  # nobody of the first group does in its first turn
    signals = {**rollouts.signals, "teacher_logprob": teacher}
    changed = Rollouts(rollouts.action_mask, rollouts.rewards, rollouts.group_ids, rollouts.turn_ids, signals=signals)
    assert (credit("checked_hints", changed).distillation[:SIZE, :LENGTH] == 0).all()
    assert (credit("checked_hints", changed, untried=1.0).distillation[:SIZE, :LENGTH] > 0).all()
    assert math.isclose(credit("checked_hints", changed).weights.mean(), 1.0, rel_tol=1e-5)
