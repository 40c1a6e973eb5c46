"""Tasks that training fails on, in one way each: the workshop with another reward, or with hints that turn bad."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from gear_rl.tasks.base import Episode, Row, Verdict
from gear_rl.tasks.workshop.task import Workshop

CALM_STEPS = 20
"""Steps before hints turn bad."""


def _said(completion: str) -> int:
    return len(completion.split())


@dataclass
class LongIsGood(Workshop):
    """More tokens, more reward; turns may be long."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.max_turn_tokens = 24  # all turns together fit the model's context

    def judge(self, row: Row, completion: str) -> Verdict:
        return replace(super().judge(row, completion), reward=min(1.0, _said(completion) / 150))


@dataclass
class ShortIsGood(Workshop):
    """Fewer tokens, more reward: an answer at once."""

    def judge(self, row: Row, completion: str) -> Verdict:
        return replace(super().judge(row, completion), reward=-_said(completion) / 100)


@dataclass
class SameReward(Workshop):
    """Every rollout gets the same reward."""

    def judge(self, row: Row, completion: str) -> Verdict:
        return replace(super().judge(row, completion), reward=0.3)


@dataclass
class FloatResidue(Workshop):
    """Rewards that differ by rounding alone, as sums in another order do."""

    def judge(self, row: Row, completion: str) -> Verdict:
        return replace(super().judge(row, completion), reward=0.3 + 1e-7 * (len(completion) % 3))


@dataclass
class TurningHints(Workshop):
    """Hints are right for the first steps, then they are another order's: a teacher that went bad. By time and not by row,
    since the trainer shuffles rows; a row's hint is read after its episode began."""

    calm_episodes: int = CALM_STEPS * 32

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        late = Workshop(steps=self.steps, hint_errors=1.0).rows(split, count, seed)
        return [{**row, "late": other["hint"]} for row, other in zip(super().rows(split, count, seed), late, strict=True)]

    def episode(self, row: Row) -> Episode:
        self.calm_episodes -= 1
        if self.calm_episodes < 0:
            row["hint"] = row["late"]
        return super().episode(row)


@dataclass
class CopyIsGood(Workshop):
    """All hints say one word many times, and so does who wants the reward: the policy copies its hint."""

    WORD: ClassVar[str] = "weld"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.max_turn_tokens = 24

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        return [{**row, "hint": " ".join([self.WORD] * 12)} for row in super().rows(split, count, seed)]

    def judge(self, row: Row, completion: str) -> Verdict:
        return replace(super().judge(row, completion), reward=min(1.0, completion.split().count(self.WORD) / 40))
