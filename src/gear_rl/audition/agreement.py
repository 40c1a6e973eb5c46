"""How far a method's credit of a turn agrees with what the turn did to the outcome.

    agreement   Pearson's correlation, over measured turns, of the turn's credit with its measured advantage, each less its
                mean over the turns of its rollout. The credit of a turn is the mean advantage of its tokens, weighted by the
                policy's entropy. It says what a method knows beyond the outcome: GRPO, which gives every turn its rollout's
                advantage, has 0.

Measured advantages are noisy, which lowers all agreements alike. Intervals: bootstrap over prompts. All of it is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gear_rl.evaluation.intervals import LEVEL

Floats = NDArray[np.float64]
RESAMPLES = 1000
LEAST_SPREAD = 1e-5
"""Of a method's credit: less is rounding."""


@dataclass(frozen=True)
class Agreement:
    value: float
    interval: tuple[float, float]


def agreements(
    credit: dict[str, Sequence[float]],
    measured: Sequence[float],
    rollouts: Sequence[int],
    prompts: Sequence[int],
    seed: int = 0,
) -> dict[str, Agreement]:
    """Method → its agreement. `credit`: method → one number for each measured turn. `rollouts`, `prompts`: which rollout and
    which prompt each turn belongs to."""
    names = list(credit)
    table = np.array([credit[name] for name in names], dtype=float)  # (methods, turns)
    table, true = within_rollouts(table, rollouts), within_rollouts(np.asarray(measured, dtype=float)[None], rollouts)[0]
    found = correlations(table, true)
    groups = np.asarray(prompts)
    members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(RESAMPLES):
        chosen = np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))])
        drawn.append(correlations(table[:, chosen], true[chosen]))
    low, high = np.quantile(np.array(drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)  # (methods,) each
    return {name: Agreement(float(found[k]), (float(low[k]), float(high[k]))) for k, name in enumerate(names)}


def within_rollouts(table: Floats, rollouts: Sequence[int]) -> Floats:
    """(…, turns) less the mean over each rollout's turns."""
    _, member = np.unique(np.asarray(rollouts), return_inverse=True)
    counts = np.bincount(member)
    means = np.array([np.bincount(member, row) for row in table]) / counts
    return table - means[:, member]


def correlations(table: Floats, true: Floats) -> Floats:
    """Of each row of `table` (methods, turns) with `true` (turns,); 0 where one does not vary but for rounding."""
    x, y = table - table.mean(1, keepdims=True), true - true.mean()
    size, spread = np.sqrt((x**2).mean(1)), np.sqrt((x**2).sum(1) * (y**2).sum())
    return np.where((size > LEAST_SPREAD) & (spread > 0), (x @ y) / np.maximum(spread, 1e-300), 0.0)

def auc(scores: Floats, labels: NDArray[np.bool_], seed: int) -> tuple[float, tuple[float, float]] | None:
    """Chance that a labelled one has the higher score, both (n,), with a bootstrap interval; None without both kinds."""
    high, low = scores[labels], scores[~labels]
    if not len(high) or not len(low):
        return None
    better = (high[:, None] > low) + 0.5 * (high[:, None] == low)  # (labelled, others)
    rng, drawn = np.random.default_rng(seed), []
    for _ in range(RESAMPLES):
        rows, columns = rng.integers(0, len(high), len(high)), rng.integers(0, len(low), len(low))
        drawn.append(better[rows][:, columns].mean())
    ends = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(better.mean()), (float(ends[0]), float(ends[1]))
