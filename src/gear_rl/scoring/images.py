"""Signals of rollouts with images or virtual tokens: the engine runs the policy with them, scoring takes the states it goes
through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.scoring.body import Ids, reading_states
from gear_rl.scoring.packing import KeptPrompts
from gear_rl.scoring.reading import Asked
from gear_rl.scoring.scorer import Scorer


class WithImages(Protocol):
    """A batch of rollouts with images, as the engine's own loss reads it."""

    def logprobs(self, prompts: Ids, rows: list[int]) -> Tensor:
        """One forward pass of the policy over the rollouts `rows` of the batch, with their images and whole completions, but
        with `prompts` in place of their own: log-probabilities of the completions' tokens, (n, T)."""


class ImageScorer(Scorer):
    """A scorer that reads batches with images or virtual tokens inside `seeing`, and all others as `Scorer` does.

    With these a prompt is more than its tokens, so every rollout is read with its own.
    """

    _batch: WithImages | None = None

    @contextmanager
    def seeing(self, batch: WithImages) -> Iterator[None]:
        if self.weights.sharded:
            raise GearError(
                "images, and adapters with virtual tokens, are not supported where weights are sharded: use DDP."
            )
        self._batch = batch
        try:
            yield
        finally:
            self._batch = None

    def _may_share(self, alone: int, shared: int, device: torch.device) -> bool:
        return self._batch is None and super()._may_share(alone, shared, device)

    def _hidden(self, sides: list[Ids], asked: Asked, packed: bool, kept: KeptPrompts | None = None) -> list[Tensor]:
        if self._batch is None:
            return super()._hidden(sides, asked, packed, kept)
        states = []
        for prompts in sides:
            with reading_states(self.model) as read:
                self._batch.logprobs(prompts, asked.rows)
            (hidden,) = read  # (n, P + T, D), prompts padded to P, virtual tokens before them
            before_first = hidden.shape[1] - asked.ids.shape[1] - 1
            states.append(hidden[asked.rollout, before_first + asked.token])
        return states

    def _plain(self, prompts: Ids, completions: Ids, action_mask: Tensor) -> Tensor:
        if self._batch is None:
            return super()._plain(prompts, completions, action_mask)
        return self._batch.logprobs(prompts, list(range(len(prompts)))) * action_mask
