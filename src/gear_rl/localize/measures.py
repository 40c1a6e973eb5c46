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

from gear_rl.evaluation.intervals import RESAMPLES, bootstrap_interval
from gear_rl.localize.blame import blame
from gear_rl.localize.labelled import Labelled
from gear_rl.methods import Method

MEASURES = ("auc", "hit", "mrr", "distance")
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
    values: Floats, problems: Sequence[str], resamples: int = RESAMPLES, seed: int = 0
) -> list[tuple[float, float]]:
    """Bootstrap intervals of the means of `values` (n, K), drawing whole problems → K intervals; NaN for one problem."""
    if len(set(problems)) < 2:
        return [(math.nan, math.nan)] * values.shape[1]
    return [bootstrap_interval(column, problems, resamples=resamples, seed=seed) for column in values.T]
