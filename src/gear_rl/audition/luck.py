"""Lucky wins without labels: rollouts that won although their measured value collapsed on the way.

    V_0 … V_{K−1}   measured values before the K turns of a rollout
    fall            max over j < k of V_j − V_k: the most that was ever lost on the way, in shares of the reward's range
    lucky win       the highest reward, and a fall of more than `COLLAPSE` whose 95 % interval does not hold 0

A win with a low value all along is no lucky one: its problem is hard. Ours. `NAME+without_lucky_wins` weighs wins down by the
same fall (`gear_rl.methods.controls`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gear_rl.audition.agreement import auc
from gear_rl.audition.groups import Groups
from gear_rl.audition.values import TurnValue, Value

COLLAPSE = 0.25
"""Of the reward's range."""


def largest_fall(values: Sequence[Value]) -> tuple[float, bool]:
    """The fall, and whether it is clear that there was one."""
    best, clear = 0.0, False
    for k, after in enumerate(values):
        for before in values[:k]:
            fall = (before.mean - after.mean) / max(before.high - before.low, 1e-12)
            if fall > best:
                width = 1.96 * math.sqrt(before.variance + after.variance) / max(before.high - before.low, 1e-12)
                best, clear = fall, fall > width
    return best, clear


def lucky_wins(groups: Groups, turns: Sequence[TurnValue]) -> dict[str, Any]:
    """Of measured rollouts that won: how many were lucky and, where the task knows, whether it agrees."""
    rewards = groups.rewards
    won = sorted({turn.rollout for turn in turns if rewards[turn.rollout] == max(rewards)})
    falls = [largest_fall([turn.before for turn in turns if turn.rollout == i]) for i in won]
    flagged = [fall > COLLAPSE and clear for fall, clear in falls]
    found: dict[str, Any] = {
        "won": len(won),
        "lucky": sum(flagged),
        "mean_fall": float(np.mean([f for f, _ in falls] or [0])),
    }
    if groups.task.judge_knows_decisions:
        truly = [not groups.verdicts[i].success for i in won]
        both = sum(a and b for a, b in zip(flagged, truly, strict=True))
        found_auc = auc(np.array([fall for fall, _ in falls]), np.array(truly, dtype=bool), groups.seed)
        found["labels"] = {
            "lucky": sum(truly),
            "auc": found_auc and found_auc[0],
            "auc_interval": found_auc and found_auc[1],
            "precision": both / sum(flagged) if any(flagged) else None,
            "recall": both / sum(truly) if any(truly) else None,
            "true_share": 1 - sum(truly) / max(1, len(won)),
            "true_share_weighed": _true_share([1 - fall for fall, _ in falls], truly),
        }
    return found


def _true_share(weights: Sequence[float], lucky: Sequence[bool]) -> float:
    """Of all weight, what true wins have: `NAME+without_lucky_wins` weighs wins so."""
    return sum(w for w, given in zip(weights, lucky, strict=True) if not given) / max(sum(weights), 1e-12)
