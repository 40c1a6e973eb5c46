"""Paired statistics for few seeds and several worlds. The choices are stated here and tested on simulated data.

- **Interval of a mean**: Student's with two more runs than there were, one at each end of what a run can be ("plus two", after
  Agresti and Coull's plus four for shares). Runs collapse, and few seeds may not show it: where one run in ten ends at 0,
  five seeds see none in 59 % of cases, and an interval made of the seen runs alone cannot know. Measured coverage of 95 %
  intervals at n = 5 where one run in ten collapses: Student's 53 %, expanded percentile 50 %, bootstrap-t 64 %, BCa 44 %, plus
  two 100 %. Over all shares of collapse and n = 5, 8, 12 plus two covers a mean in at least 97 %, a difference of two
  methods in at least 90 % (tests/compare/test_statistics.py). The price: where no run collapses it is wider than it need be, at
  n = 5 by a factor of 6, at n = 12 of 5, at n = 36 of 3. Anderson's interval, which guarantees its level for any
  outcome between 0 and 1, is wider still.
- **Worlds** are strata: values are compared with the mean of their own world. The interval is about these worlds, not
  about worlds in general.
- **Share of the headroom**: Fieller's interval for a ratio of two means, with the same additional runs. None where the
  headroom itself cannot be told from 0.
- **Test**: sign-flip permutation of the paired differences, exact up to 16 pairs. With n pairs its smallest two-sided p is
  2 / 2ⁿ: five can never reach 0.05, and the table says so.
- **Several comparisons**: Holm.
- **How many seeds**: the n at which a paired t-test detects a given difference with given power, at the level that the
  first step of Holm leaves, and at which the permutation test can reach that level at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

RESAMPLES = 20_000
LEVEL = 0.05
Strata = Sequence[Sequence[float]]
"""Values by world."""
Ends = tuple[float, float]
"""The least and the most that a value can be."""


def plus_two_interval(values: Strata, ends: Ends, level: float = 1 - LEVEL) -> tuple[float, float]:
    """Interval of the mean of `values`, kept within `ends`. NaN for one value."""
    residuals, mean = _residuals(values)
    if len(residuals) < 2:
        return math.nan, math.nan
    low, high = ends
    centre = (len(residuals) * mean + low + high) / (len(residuals) + 2)
    around = np.concatenate([residuals + mean - centre, [low - centre, high - centre]])
    n, free = len(around), len(around) - len(values)
    reach = float(stats.t.ppf(0.5 + level / 2, free) * math.sqrt((around**2).sum() / free / n))
    return float(max(low, centre - reach)), float(min(high, centre + reach))


def share_interval(part: Strata, whole: Strata, part_ends: Ends, whole_ends: Ends) -> tuple[float, float] | None:
    """Fieller's 95 % interval of mean(part) / mean(whole), paired. None: `whole` cannot be told from 0."""
    (of_part, a), (of_whole, b) = _residuals(part), _residuals(whole)
    if len(of_part) < 2:
        return None
    more = [(part_ends[0] - a, 0.0), (part_ends[1] - a, 0.0), (0.0, whole_ends[0] - b), (0.0, whole_ends[1] - b)]
    rows = np.concatenate([np.stack([of_part, of_whole], 1), more])  # (n, 2)
    free = len(rows) - len(part)
    spread = rows.T @ rows / free / len(rows) * stats.t.ppf(1 - LEVEL / 2, free) ** 2
    square, middle, rest = b * b - spread[1, 1], a * b - spread[0, 1], a * a - spread[0, 0]
    if square <= 0:
        return None
    reach = math.sqrt(max(0.0, middle**2 - square * rest))
    return float((middle - reach) / square), float((middle + reach) / square)


def difference_ends(method: Strata, baseline: Strata, top: float) -> Ends:
    """The least and the most that a paired difference can be, if single runs can end anywhere from 0 to `top`: the other run
    of the pair is taken at its mean."""
    x, y = _residuals(method)[1], _residuals(baseline)[1]
    return min(-y, x - top), max(top - y, x)


def sign_flip_p(differences: Sequence[float]) -> float:
    """Two-sided p of "no difference": how often random signs give a mean as far from 0. Exact up to n = 16, else sampled."""
    x = np.asarray(differences, dtype=float)
    if len(x) == 0 or not np.any(x):
        return 1.0
    exact = len(x) <= 16
    result = stats.permutation_test(
        (x,), np.mean, permutation_type="samples", alternative="two-sided",
        n_resamples=np.inf if exact else RESAMPLES, rng=np.random.default_rng(0),
    )  # fmt: skip
    return float(result.pvalue)


def smallest_p(pairs: int) -> float:
    """The smallest p the sign-flip test can give with so many pairs."""
    return min(1.0, max(2.0 / 2.0**pairs, 2 / (RESAMPLES + 1) if pairs > 16 else 0.0))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted


def seeds_needed(differences: Strata, effect: float, comparisons: int = 1, power: float = 0.8) -> int | None:
    """Seeds per world at which `effect` is detected with `power` among so many comparisons, if runs keep varying as they did.
    None: unknown."""
    residuals, _ = _residuals(differences)
    free = len(residuals) - len(differences)
    if free < 1 or effect <= 0 or not np.any(residuals):
        return None
    shift, level = effect / math.sqrt((residuals**2).sum() / free), LEVEL / comparisons
    for n in range(max(3, math.ceil(math.log2(2 / level))), 10_001):
        critical = stats.t.ppf(1 - level / 2, n - 1)
        seen = stats.nct.sf(critical, n - 1, shift * math.sqrt(n)) + stats.nct.cdf(
            -critical, n - 1, shift * math.sqrt(n)
        )
        if seen >= power:
            return math.ceil(n / len(differences))
    return None


def _residuals(values: Strata) -> tuple[np.ndarray, float]:
    """Each value less the mean of its world (n,), and the mean of the worlds' means."""
    worlds = [np.asarray(world, dtype=float) for world in values]
    means = [world.mean() for world in worlds]
    return np.concatenate([world - mean for world, mean in zip(worlds, means, strict=True)]), float(np.mean(means))
