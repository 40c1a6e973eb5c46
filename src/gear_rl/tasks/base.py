"""What a task offers: rows, an episode per rollout, a verdict. Tasks know nothing of credit, and nothing of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

Row = dict[str, Any]
"""One problem: `prompt` (a list of chat messages), `hint` (the ground truth as text) and whatever else the task needs."""


@dataclass(frozen=True)
class Verdict:
    """What one finished rollout was worth."""

    reward: float
    """What training sees."""
    success: bool
    """True success: every decision was right. A lucky rollout has reward without it."""
    decisions: list[int] = field(default_factory=list)
    """Per token of the completion: +1 a right decision, −1 a wrong one, 0 none. Empty where the task cannot know."""


class Episode(Protocol):
    """One rollout's world, driven turn by turn."""

    def reply(self, turn: str) -> str | None:
        """What the environment answers to the policy's `turn` (decoded, end mark cut off). None: the episode is over."""


class Task(ABC):
    """A source of problems with a verifiable outcome."""

    name: ClassVar[str]
    summary: ClassVar[str]
    hint_template: str = "{prompt}\n\n{hint}"
    """How the teacher's prompt is made from the last user message and the hint. Shown in every run's config."""
    max_turns: int = 1
    max_turn_tokens: int = 256
    judge_knows_decisions: bool = False
    """Whether verdicts say which decisions were wrong: what the `oracle` control needs."""

    @abstractmethod
    def rows(self, split: str, count: int, seed: int = 0) -> list[Row]:
        """`count` problems of "train" or "test"; the same arguments always give the same rows."""

    @abstractmethod
    def episode(self, row: Row) -> Episode:
        """A fresh world for one rollout of `row`."""

    @abstractmethod
    def judge(self, row: Row, completion: str) -> Verdict:
        """The verdict on a whole completion, environment's words included, special tokens kept."""

    def default_model(self) -> str | None:
        """A model that comes with the task, or None."""
        return None
