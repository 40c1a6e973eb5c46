"""What a credit method returns, and the one call that runs any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gear_rl.rollouts import Rollouts


@dataclass(frozen=True)
class Credit:
    """Where the credit went. Masked positions are 0 in every field."""

    advantages: Tensor
    """(B, T) float. What the engine's loss multiplies each token's log-probability ratio with."""

    weights: Tensor
    """(B, T) float. w_t of equation (8): how a rollout's advantage is spread over its tokens; 1 on average."""

    segments: Tensor
    """(B, T) integer. The segment a token belongs to, counted from 1 in each rollout."""

    onsets: Tensor
    """(B, T) bool. True at the first token of each adaptive segment: where student and teacher part."""


def credit(name: str, rollouts: Rollouts, /, **options: Any) -> Credit:
    """Assign credit to `rollouts` with the method `name`.

    A pure function of tensors: no model is run, nothing is remembered between calls, and the result is the same bit for
    bit each time. For options see `gear_rl.methods.METHODS[name].Options`.
    """
    from gear_rl.methods import method  # methods return Credit, so they import this module

    return method(name, **options).assign(rollouts)
