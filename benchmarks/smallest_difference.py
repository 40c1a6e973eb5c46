"""The smallest difference that a number of pairs would have shown, for what is written beside a null result."""

from __future__ import annotations

import math

from scipy import optimize, stats


def detectable(spread: float, pairs: int, power: float = 0.8, level: float = 0.05) -> float:
    """That a paired t-test shows with this power. `spread`: standard deviation of the pairs' differences. Not corrected for
    the number of tests."""
    least = stats.t.ppf(1 - level / 2, pairs - 1)
    shift = optimize.brentq(lambda shift: stats.nct.cdf(least, pairs - 1, shift) - (1 - power), 0.0, 30.0)
    return float(shift) * spread / math.sqrt(pairs)
