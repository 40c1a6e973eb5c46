"""Who samples the policy's turns: one small interface for our own decoding, continuous batching and vLLM.

`play` hands in all tokens that a rollout has so far, and gets its next turn back. All samplers mean the same by it: a turn
ends with one of the end tokens, which is part of it, or is cut off after `most` tokens; the temperature divides the logits.
They differ in their random numbers and in rounding (docs/vllm.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

Seeds = Sequence[Any] | None
"""A `random.Random` for each rollout. None: torch's global random state."""


@dataclass(frozen=True)
class Request:
    """A rollout whose next token is the policy's."""

    rollout: int
    """Its number in the batch, counted from 0."""
    context: list[int]
    """All its tokens so far, the prompt's included. The sampler does not change or keep it."""
    most: int
    """Tokens of the turn at most, its end token included."""


@dataclass(frozen=True)
class Turn:
    """What the policy said."""

    rollout: int
    tokens: list[int]
    ended: bool
    """Whether the last token is an end token. If not, the turn was cut off."""
    logprobs: list[float] | None = None
    """The sampler's own log-probability of each token, for an engine that corrects for its rounding. Never a signal: signals
    are read by `scoring` with the policy's own weights."""


class TurnSampler(Protocol):
    """One batch of rollouts. Every rollout is submitted once before the first `finished`, and may be submitted again after
    its turn was returned. If it is not, it is over."""

    def submit(self, requests: list[Request]) -> None: ...

    def finished(self) -> list[Turn]:
        """Sample until at least one turn is finished. Everything that `submit` was given comes back once."""


OpenSampler = Callable[[Any, set[int], float, Seeds, float], AbstractContextManager[TurnSampler]]
"""Policy, end tokens, temperature, a random generator per rollout, top-p → a sampler for one batch."""
