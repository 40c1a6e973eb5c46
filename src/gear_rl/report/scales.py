"""One scale per colouring for the whole page, so that a colour means the same everywhere: the 99th percentile, rounded
up to a number one can say. Found from a histogram, for records larger than memory."""

from __future__ import annotations

import math

import numpy as np

_LOW, _HIGH, _PER_DECADE = -9, 9, 40
_EDGES = np.logspace(_LOW, _HIGH, (_HIGH - _LOW) * _PER_DECADE + 1)
_ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class Scale:
    def __init__(self) -> None:
        self._counts = np.zeros(len(_EDGES) + 1, dtype=np.int64)
        self.negative = False
        """Whether a value below zero was seen: such a signal needs two colours."""

    def add(self, values: np.ndarray) -> None:
        """values (n,)."""
        self.negative |= bool((values < 0).any())
        # float64 throughout: a float32 edge would put equal values into different bins
        self._counts += np.bincount(np.searchsorted(_EDGES, np.abs(values)), minlength=len(self._counts))

    def top(self) -> float:
        """What 99 of 100 magnitudes stay below, rounded up; zeros do not count, or a sparse signal would have no scale."""
        counts = self._counts[1:]
        if not counts.sum():
            return 1.0
        place = int(np.searchsorted(counts.cumsum(), 0.99 * counts.sum()))
        return _rounded_up(float(_EDGES[min(place + 1, len(_EDGES) - 1)]))


def _rounded_up(x: float) -> float:
    power = 10.0 ** math.floor(math.log10(x))
    return float(f"{power * next(r for r in (*_ROUND, 20.0) if r * power >= x * 0.999):.3g}")
