"""How a difference is written, and the smallest that so many pairs would have shown."""

from __future__ import annotations

import math

from scipy import optimize, stats


def detectable(spread: float, pairs: int, power: float = 0.8, level: float = 0.05) -> float:
    """That a paired t-test shows with this power. `spread`: standard deviation of the pairs' differences. Not corrected for
    the number of tests."""
    least = stats.t.ppf(1 - level / 2, pairs - 1)
    shift = optimize.brentq(lambda shift: stats.nct.cdf(least, pairs - 1, shift) - (1 - power), 0.0, 30.0)
    return float(shift) * spread / math.sqrt(pairs)


def signed(value: float) -> str:
    """With a sign, but for 0."""
    return f"{round(value, 1) + 0.0:+.1f}".replace("-", "−").replace("+0.0", "0.0")
