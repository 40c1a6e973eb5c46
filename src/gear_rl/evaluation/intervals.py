"""Confidence intervals: Wilson's for a share, a bootstrap for a mean. The only place where either is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

LEVEL, RESAMPLES = 0.95, 2000
DRAWS_AT_ONCE = 10**6
"""Bounds memory; the random numbers do not depend on it."""


def wilson_interval(hits: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927). Unlike the normal one, it is valid near 0 and 1."""
    if n == 0:
        return 0.0, 1.0
    share, scale = hits / n, 1 + z * z / n
    centre, spread = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def bootstrap_interval(
    values: Sequence[float],
    groups: Sequence[str] | None = None,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap of the mean of `values` (n,).

    `groups` (n,): draws whole groups, for values that are alike within one (rollouts of one problem). Drawing such values
    one by one would make the interval too narrow.
    """
    sums = np.asarray(values, dtype=float)
    counts = None
    if groups is not None:
        _, member = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
        counts, sums = np.bincount(member).astype(float), np.bincount(member, weights=sums)
    n, rng, means = len(sums), np.random.default_rng(seed), []
    block = max(1, DRAWS_AT_ONCE // n)
    for start in range(0, resamples, block):
        drawn = rng.integers(0, n, size=(min(block, resamples - start), n))
        means.append(sums[drawn].sum(1) / (n if counts is None else counts[drawn].sum(1)))
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mean_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """95 % interval of the mean of one value per problem: Wilson's where all are 0 or 1, else a bootstrap."""
    if set(values) <= {0.0, 1.0}:
        return wilson_interval(sum(values), len(values))
    return bootstrap_interval(values, seed=seed)
