"""Where a method's needs come from, as the user of `CreditGRPOTrainer` has said; and a batch as it was sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.chat.hints import DEFAULT_TEMPLATE, check_template
from gear_rl.errors import GearError
from gear_rl.scoring.masking import BUDGET

Ids = list[list[int]]
FromRow = str | Callable[[dict], str]
"""A column of the data set, or a function of the row."""


@dataclass(frozen=True)
class Sources:
    """The trainer's own arguments; `CreditGRPOTrainer` says what each is."""

    hint: FromRow | None = None
    hint_template: str = DEFAULT_TEMPLATE
    token_signals: Callable[[list[dict], Ids], Mapping[str, list[list[float]]]] | None = None
    channels: Callable[[list[dict], Ids], Mapping[str, list[float]]] | list[str] | None = None
    answer: FromRow | None = None
    answer_prefix: str = ""
    feedback: Callable[[list[dict], Ids], list[str | None]] | None = None
    sibling: Callable[[dict, list[int], str | None], str] | None = None
    mask_budget: int = BUDGET

    def __post_init__(self) -> None:
        check_template(self.hint_template)
        if isinstance(self.mask_budget, bool) or not isinstance(self.mask_budget, int) or self.mask_budget < 1:
            raise GearError(f"mask_budget={self.mask_budget!r}: must be a whole number, at least 1.")


@dataclass(frozen=True)
class Sampled:
    """A batch of B rollouts on this process, before any credit."""

    rows: list[dict]
    prompts: Ids
    completions: Ids
    ids: Tensor
    """(B, T) the completions, padded"""
    actions: Tensor
    """(B, T) bool"""
    rewards: Tensor
    """(B,)"""
    groups: Tensor
    """(B,)"""
    known: dict[str, Tensor] = field(default_factory=dict)
    """signals that TRL's step has computed itself, (B, T)"""


class Recorder(Protocol):
    """Sees every scored batch: where a run folder, a report or a test looks in."""

    def __call__(
        self,
        step: int,
        rows: list[dict],
        rollouts: Rollouts,
        credit: Credit,
        prompts: Ids,
        hinted: Ids | None,
        completions: Ids,
    ) -> None: ...


def text_of(source: FromRow, row: dict, i: int, what: str, method: str) -> str:
    """The text of rollout i: a column's value, or what a function makes of the row."""
    text: Any = source(row) if callable(source) else row.get(source)
    if not isinstance(text, str) or not text.strip():
        raise GearError(f"rollout {i} of this batch has no {what} ({text!r}); method {method!r} needs one.")
    return text
