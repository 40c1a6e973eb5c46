"""What a method's credit is made of, beyond its agreement with what turns did.

    tokens   the effective number of tokens that share a rollout's credit, (Σ|A|)² / ΣA²
    finds    of rollouts that lost and whose first wrong decision the task knows: the share in which the turn (or token) with
             the most blamed token is the one of that decision. Later wrong ones are neither hit nor miss and are left out;
             of k that tie at the bottom each counts 1/k, so GRPO has chance.
    style    of a method that reads a hint: the share of its redistribution that another problem's hint gives as well, so
             that does not come from what the hint says. The squared correlation, over all tokens, of its credit with that
             of `NAME+wrong_hint`, each less its mean over the rollout; 0 where they go against one another.

All of it is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

import numpy as np
from torch import Tensor

from gear_rl.audition.agreement import auc
from gear_rl.audition.groups import Groups
from gear_rl.audition.values import TurnValue
from gear_rl.errors import GearError
from gear_rl.methods import Method, method

WRONG = -1
"""Of `Verdict.decisions`."""
TIE = 1e-6
"""Advantages that differ by less, in shares of the largest, are equal but for rounding."""


def effective_tokens(advantages: Tensor) -> float:
    """(B, T) → mean over the rollouts that have credit."""
    total, squares = advantages.abs().sum(1), advantages.square().sum(1)
    some = squares > 0
    return float((total[some] ** 2 / squares[some]).mean()) if bool(some.any()) else 0.0


def finds_mistakes(groups: Groups, advantages: Tensor) -> float | None:
    """`advantages`: (B, T). None where the task does not know, or no rollout lost by a wrong decision."""
    rewards, found = groups.rewards, list[float]()
    for i, verdict in enumerate(groups.verdicts):
        lost = rewards[i] < mean(rewards[j] for j in groups.siblings(i))
        if not lost or WRONG not in verdict.decisions:
            continue
        spans = groups.spans(i)
        wrong = [WRONG in verdict.decisions[a:b] for a, b in spans]
        lowest = [float(advantages[i, a:b].min()) for a, b in spans]
        first, others = lowest[wrong.index(True)], [one for one, bad in zip(lowest, wrong, strict=True) if not bad]
        slack = TIE * max(map(abs, lowest))
        ahead, tied = (sum(one < first + edge for one in others) for edge in (-slack, slack))
        found.append(0.0 if ahead else 1 / (1 + tied))
    return mean(found) if found else None


def wrong_turns(groups: Groups, turns: Sequence[TurnValue]) -> dict[str, Any] | None:
    """Does measuring tell turns (or tokens) with a wrong decision from the others? The AUC of the measured advantage, where the
    task knows. None: it does not, or all are of one kind."""
    spans = [groups.spans(turn.rollout)[turn.turn] for turn in turns]
    decisions = [groups.verdicts[turn.rollout].decisions[a:b] for turn, (a, b) in zip(turns, spans, strict=True)]
    made = [i for i, some in enumerate(decisions) if any(some)]
    wrong = np.array([WRONG in decisions[i] for i in made], dtype=bool)
    found = auc(np.array([-turns[i].advantage for i in made]), wrong, groups.seed)
    if found is None:
        return None
    value, interval = found
    return {"wrong": int(wrong.sum()), "right": int((~wrong).sum()), "auc": value, "interval": interval}


def style(groups: Groups, chosen: Method, advantages: Tensor) -> float | None:
    """`advantages`: (B, T) of `chosen`. None for methods that read no hint of the problem's own."""
    if chosen.hint != "own" or "+" in chosen.name:
        return None
    try:
        other = groups.credit(method(f"{chosen.name}+wrong_hint")).credit.advantages
    except GearError:  # it has no such control
        return None
    mask = groups.sampled.action_mask
    x, y = (_within(one, mask) for one in (advantages, other))
    both = float((x * y).sum()) / max(float(x.norm() * y.norm()), 1e-12)
    return max(0.0, both) ** 2


def _within(advantages: Tensor, mask: Tensor) -> Tensor:
    """(B, T) less the mean over each rollout's action tokens, 0 elsewhere."""
    means = (advantages * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
    return (advantages - means) * mask
