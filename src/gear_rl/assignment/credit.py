"""What a credit method returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


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

    distillation: Tensor | None = None
    """(B, T) float. What each token's distillation loss is multiplied with, for methods that have one. None: 1."""
