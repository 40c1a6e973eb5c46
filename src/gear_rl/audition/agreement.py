"""How far a method's credit of a turn agrees with what the turn did to the outcome.

    agreement   Pearson's correlation, over measured turns, of the turn's credit with its measured advantage. The credit of a
                turn is the mean advantage of its tokens, weighted by the policy's entropy.
    over GRPO   the difference from GRPO's agreement on the same turns. GRPO gives every turn its rollout's advantage, so this
                is what the method knows beyond the outcome.
    tokens      the effective number of tokens that share a rollout's credit, (Σ|A|)² / ΣA².

Measured advantages are noisy, which lowers all agreements alike: read differences. Intervals: bootstrap over prompts. Ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gear_rl.evaluation.intervals import LEVEL

Floats = NDArray[np.float64]
RESAMPLES = 1000


@dataclass(frozen=True)
class Agreement:
    value: float
    interval: tuple[float, float]
    over_grpo: float
    over_interval: tuple[float, float]


def agreements(
    credit: dict[str, Sequence[float]], measured: Sequence[float], prompts: Sequence[int], seed: int = 0
) -> dict[str, Agreement]:
    """Method → its agreement. `credit`: method → one number for each measured turn, "grpo" among them. `prompts`: which
    prompt each turn belongs to."""
    names, true = list(credit), np.asarray(measured, dtype=float)
    table = np.array([credit[name] for name in names], dtype=float)  # (methods, turns)
    found = correlations(table, true)
    groups = np.asarray(prompts)
    members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(RESAMPLES):
        chosen = np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))])
        drawn.append(correlations(table[:, chosen], true[chosen]))
    samples, base = np.array(drawn), names.index("grpo")  # (resamples, methods)
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]

    def interval(values: Floats) -> tuple[float, float]:
        low, high = np.quantile(values, ends)
        return float(low), float(high)

    return {
        name: Agreement(
            float(found[k]),
            interval(samples[:, k]),
            float(found[k] - found[base]),
            interval(samples[:, k] - samples[:, base]),
        )
        for k, name in enumerate(names)
    }


def correlations(table: Floats, true: Floats) -> Floats:
    """Of each row of `table` (methods, turns) with `true` (turns,); 0 where either does not vary."""
    x, y = table - table.mean(1, keepdims=True), true - true.mean()
    spread = np.sqrt((x**2).sum(1) * (y**2).sum())
    return np.where(spread > 1e-12, (x @ y) / np.maximum(spread, 1e-12), 0.0)


def effective_tokens(advantages: Tensor) -> float:
    """(B, T) → mean over the rollouts that have credit."""
    total, squares = advantages.abs().sum(1), advantages.square().sum(1)
    some = squares > 0
    return float((total[some] ** 2 / squares[some]).mean()) if bool(some.any()) else 0.0
