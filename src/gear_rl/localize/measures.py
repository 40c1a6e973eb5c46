"""How well blame finds the first wrong unit of a rollout: four numbers each, and their means with bootstrap intervals.

A rollout's *candidates* are its first wrong unit and every unit not known to be wrong; later wrong units are neither hit nor
miss, and are left out. A unit is as suspicious as its most suspicious token.

    auc        chance that the wrong unit is ranked above another candidate of the same rollout; ties count half
    hit        hit@1: it is ranked first; of k tied at the top each gets 1/k
    mrr        mean reciprocal rank; among ties, the mean over their order
    distance   action tokens between its beginning and that of the unit ranked first; the mean over ties

So a constant score gives exactly what random order gives on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gear_rl.localize.blame import blame
from gear_rl.localize.labelled import Labelled
from gear_rl.methods import Method

MEASURES = ("auc", "hit", "mrr", "distance")
LEVEL, RESAMPLES = 0.95, 2000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """One signal or method: how many rollouts counted, and each measure as (mean, low, high); NaN where unknown."""

    rollouts: int
    problems: int
    values: dict[str, tuple[float, float, float]]


def measure(what: str | Method, labelled: Labelled, seed: int = 0) -> Found:
    """Over the rollouts with a mistake in which `what` blames anybody and there is something to mistake it for."""
    suspicion, counted = blame(what, labelled)
    masks, wrong = labelled.rollouts.action_mask.cpu().numpy(), labelled.wrong.cpu().numpy()
    units, scores = labelled.units.cpu().numpy(), suspicion.double().cpu().numpy()
    numbers, problems = [], []
    for i in (labelled.has_mistake & counted).nonzero()[:, 0].tolist():
        here = masks[i]
        found = locate(scores[i][here], units[i][here], wrong[i][here])
        if found is not None:
            numbers.append(found)
            problems.append(labelled.problems[i])
    table = np.array(numbers, dtype=float).reshape(-1, len(MEASURES))
    intervals = mean_intervals(table, problems, seed=seed)
    means = table.mean(0) if len(table) else np.full(len(MEASURES), math.nan)
    values = {name: (float(means[k]), *intervals[k]) for k, name in enumerate(MEASURES)}
    return Found(len(table), len(set(problems)), values)


def locate(scores: Floats, units: NDArray[np.int64], wrong: NDArray[np.bool_]) -> tuple[float, ...] | None:
    """(auc, hit, mrr, distance) of one rollout; scores, units, wrong are (n,), one per action token.

    None: the first wrong token belongs to no unit, or no other candidate is there.
    """
    target = int(units[wrong.argmax()]) if wrong.any() else -1
    if target < 0:
        return None
    count = int(units.max()) + 1
    inside = units >= 0
    best = np.full(count, -np.inf)
    np.maximum.at(best, units[inside], scores[inside])
    starts = np.full(count, len(units))
    np.minimum.at(starts, units[inside], np.flatnonzero(inside))
    tainted = np.zeros(count, dtype=bool)
    tainted[units[inside & wrong]] = True
    rivals = (starts < len(units)) & ~tainted
    if not rivals.any():
        return None
    above, tied = int((best[rivals] > best[target]).sum()), int((best[rivals] == best[target]).sum())
    auc = (rivals.sum() - above - tied / 2) / rivals.sum()
    hit = 1 / (1 + tied) if above == 0 else 0.0
    mrr = np.mean(1 / np.arange(above + 1, above + tied + 2))
    candidates = np.append(np.flatnonzero(rivals), target)
    first = candidates[best[candidates] == best[candidates].max()]
    return float(auc), hit, float(mrr), float(np.abs(starts[first] - starts[target]).mean())


def mean_intervals(
    values: Floats, problems: Sequence[str], level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> list[tuple[float, float]]:
    """Percentile bootstrap of the means of `values` (n, K), drawing whole problems → K intervals.

    Rollouts of one problem are alike: drawing them one by one would make intervals too narrow.
    """
    names, member = np.unique(np.asarray(problems, dtype=object).astype(str), return_inverse=True)
    if len(names) < 2:
        return [(math.nan, math.nan)] * values.shape[1]
    counts = np.bincount(member).astype(float)  # (C,)
    sums = np.stack([np.bincount(member, weights=column) for column in values.T], axis=1)  # (C, K)
    rng = np.random.default_rng(seed)
    means = []
    block = max(1, 2_000_000 // len(names))  # draws held at once
    for start in range(0, resamples, block):
        draws = rng.integers(0, len(names), size=(min(block, resamples - start), len(names)))
        means.append(sums[draws].sum(1) / counts[draws].sum(1)[:, None])
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))
