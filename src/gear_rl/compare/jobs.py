"""One run of a comparison, and the settings that a method is tried with before it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """What is tuned: the learning rate, and the method's own strength."""

    learning_rate: float
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        return "-".join([f"{self.learning_rate:g}", *(f"{option}{value:g}" for option, value in self.options)])

    def __str__(self) -> str:
        return " ".join([f"{self.learning_rate:g}", *(f"{option}={value:g}" for option, value in self.options)])


@dataclass(frozen=True)
class Job:
    method: str
    setting: Setting
    seed: int
    world: int | None = None

    @property
    def name(self) -> str:
        world = "" if self.world is None else f"w{self.world}-"
        return f"{self.method}-{self.setting.name}-{world}{self.seed}"


def candidates(rates: Sequence[float], strengths: Sequence[Mapping[str, Any]], count: int) -> list[Setting]:
    """`count` settings: every strength at each of the learning rates, which are evenly spaced (by ratio) from the lowest to
    the highest. A method without a strength gets `count` rates, so a finer grid of them."""
    each = strengths or [{}]
    number = count // len(each)
    low, high = min(rates), max(rates)
    if number == len(rates):
        spaced = sorted(rates)
    elif number == 1:
        spaced = [float(f"{math.sqrt(low * high):.3g}")]
    else:
        spaced = [float(f"{low * (high / low) ** (i / (number - 1)):.3g}") for i in range(number)]
    return [Setting(rate, tuple(strength.items())) for strength in each for rate in spaced]
