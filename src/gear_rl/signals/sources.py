"""Where the ground truth and everything else a method reads comes from, as the user has said."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gear_rl.chat.hints import DEFAULT_TEMPLATE, check_template
from gear_rl.errors import GearError
from gear_rl.scoring.masking import BUDGET
from gear_rl.signals.sampled import Sampled
from gear_rl.tasks.base import Row

FromRow = str | Callable[[Row], Any]
"""A column of the data, or a function of the row."""


class TaskKnowledge:
    """What only the task can tell about finished rollouts. Override what yours can.

    `gear train` uses `gear_rl.signals.from_verdicts.VerdictKnowledge`, which reads a task's verdicts.
    """

    signals: frozenset[str] = frozenset()
    """Names of the token signals that `token_signals` gives."""
    has_channels = False
    """Whether `channels` gives any."""
    has_feedback = False
    """Whether `feedback` gives any."""
    metrics: Mapping[str, float] = MappingProxyType({})
    """Figures about the batch that `token_signals` was asked about last, to be logged."""

    def token_signals(self, sampled: Sampled) -> Mapping[str, Sequence[Sequence[float]]]:
        """Name → for each rollout a number per token of its completion."""
        return {}

    def channels(self, sampled: Sampled) -> Mapping[str, Sequence[float]]:
        """The parts of the reward: name → a number for each rollout."""
        return {}

    def feedback(self, sampled: Sampled) -> Sequence[str | None]:
        """For each rollout what the environment said about it, or None."""
        return [None] * len(sampled)

    def final_states(self, sampled: Sampled) -> Sequence[str | None]:
        """For each rollout how it ended, for a teacher that looks back. None: the environment's last message and the policy's
        last turn."""
        return [None] * len(sampled)

    def sibling_hint(self, sampled: Sampled, rollout: int, sibling: int) -> str | None:
        """The hint made from another rollout of the same group. None: what the policy said in it."""
        return None


@dataclass(frozen=True)
class Sources:
    hint: FromRow | None = None
    """The ground truth that the teacher reads."""
    hint_template: str = DEFAULT_TEMPLATE
    wrong_hint: FromRow | None = None
    """Another problem's ground truth, or a wrong answer to this one. None: for a control the next different ground truth of
    the batch; for a contrast wrong rollouts of the group."""
    answer: FromRow | None = None
    """The reference answer, as the policy would say it."""
    answer_prefix: str = ""
    """What is said before the answer, and is no part of it."""
    knowledge: TaskKnowledge = field(default_factory=TaskKnowledge)
    channels: tuple[str, ...] = ()
    """Names of the engine's reward functions that are the parts of the reward. Empty: `knowledge` may have some."""
    mask_budget: int = BUDGET
    """See `gear_rl.scoring.masking`."""

    def __post_init__(self) -> None:
        check_template(self.hint_template)
        if isinstance(self.mask_budget, bool) or not isinstance(self.mask_budget, int) or self.mask_budget < 1:
            raise GearError(f"mask_budget={self.mask_budget!r}: must be a whole number, at least 1.")


def text_of(source: FromRow, row: Row, i: int, what: str, method: str) -> str:
    """The text of rollout i: a column's value, or what a function makes of the row. Numbers, lists and objects are
    written as JSON."""
    value: Any = source(row) if callable(source) else row.get(source)
    text = as_text(value)
    if not text.strip():
        raise GearError(f"rollout {i} of this batch has no {what} ({value!r}); method {method!r} needs one.")
    return text


def as_text(value: Any) -> str:
    """Ground truth as text: a string as it is, None as nothing, anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        raise GearError(
            f"ground truth of type {type(value).__name__} cannot be shown to a teacher: give text."
        ) from None
