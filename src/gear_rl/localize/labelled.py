"""Rollouts whose first mistake is known: what every source makes, and all that is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gear_rl.assignment.rollouts import Rollouts


@dataclass(frozen=True)
class Labelled:
    """B rollouts of T positions."""

    rollouts: Rollouts
    """With the signals of a teacher that read the rollout's own ground truth, and "decision": −1 where it went wrong."""
    units: Tensor
    """(B, T) integer. What is to be found: the step (or turn, or token) a token belongs to; −1 for none."""
    wrong: Tensor
    """(B, T) bool. Tokens known to be wrong. A rollout without any has no mistake to find."""
    problems: Sequence[str]
    """Rollouts of one problem are alike, and are resampled together."""
    wrong_hint: Mapping[str, Tensor] = field(default_factory=dict)
    """The same signals, each (B, T), from a teacher that read another problem's ground truth."""

    @property
    def has_mistake(self) -> Tensor:
        """(B,) bool."""
        return (self.wrong & self.rollouts.action_mask).any(1)

    def with_signals(self, own: Mapping[str, Tensor], wrong_hint: Mapping[str, Tensor]) -> Labelled:
        """The same rollouts as another teacher sees them."""
        rollouts = replace(self.rollouts, signals={**self.rollouts.signals, **own})
        return replace(self, rollouts=rollouts, wrong_hint=wrong_hint)


@dataclass(frozen=True)
class Part:
    """One block of the result: a model with a teacher, or a stretch of training."""

    name: str
    teacher: str | None
    labelled: Labelled
    teacher_only: bool = False
    """A second teacher for rollouts that stand in another part already: only what depends on the teacher is measured."""
    facts: Mapping[str, float | int | str] = field(default_factory=dict)


def token_units(action_mask: Tensor) -> Tensor:
    """(B, T) → (B, T): every action token is a unit of its own."""
    return torch.where(action_mask, action_mask.cumsum(1) - 1, -1)


def turn_units(action_mask: Tensor) -> Tensor:
    """(B, T) → (B, T): every unbroken run of action tokens is a unit."""
    starts = action_mask.clone()
    starts[:, 1:] &= ~action_mask[:, :-1]
    return torch.where(action_mask, starts.cumsum(1) - 1, -1)
