"""Who else takes part in a step: one process alone, or several that must agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor


class Ranks(Protocol):
    index: int
    size: int

    def total(self, count: Tensor) -> Tensor:
        """The sum of a number () over all processes."""

    def means(self, values: Mapping[str, float]) -> dict[str, float]:
        """The mean of each value over all processes, and of names that end in "_max" the largest."""


class Alone:
    """One process."""

    index, size = 0, 1

    def total(self, count: Tensor) -> Tensor:
        return count.float()

    def means(self, values: Mapping[str, float]) -> dict[str, float]:
        return dict(values)
