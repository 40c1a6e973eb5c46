"""The key-value cache of a batch of rollouts, and the forward passes that extend it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.scoring.padding import padded

MOST_TOKENS = 8
"""Tokens of an environment's reply read in one forward while other rollouts sample. In tool dialogues half of the tokens
are replies. This takes about half as many forwards as one token at a time; more would only widen the cache."""


class Decoder:
    """`read` feeds each row its next tokens and returns the logits after them. The cache is transformers' own and grows
    with every forward: any model, any device."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.cache: Any = None
        self.mask: Tensor | None = None
        """(B, columns): 1 where a row has read a token, 0 where it was padded."""

    def read(self, ids: list[list[int]]) -> Tensor:
        """A list per row, empty where there is nothing to read, padded on the left → logits after the last, (B, V)."""
        tokens, alive = self._inputs(ids, max(map(len, ids)))
        self.mask = alive if self.mask is None else torch.cat([self.mask, alive], dim=1)
        positions = (self.mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.size(1) :]
        out = self.model(
            input_ids=tokens, attention_mask=self.mask, position_ids=positions, past_key_values=self.cache, use_cache=True,
            logits_to_keep=1,
        )  # fmt: skip
        self.cache = out.past_key_values
        if self.cache is None:
            raise GearError("the model returned no cache: turn gradient checkpointing off while it samples.")
        return out.logits[:, -1].float()

    def keep(self, rows: list[int]) -> None:
        """Drop all other rows. One that is named twice is there twice."""
        assert self.cache is not None and self.mask is not None
        index = torch.tensor(rows, device=self.model.device)
        self.cache.batch_select_indices(index)
        self.mask = self.mask[index]

    def _inputs(self, ids: list[list[int]], width: int) -> tuple[Tensor, Tensor]:
        """Tokens and mask, both (B, width), padded on the left."""
        device = self.model.device
        mask = padded([[1] * len(row) for row in ids], device=device, width=width, left=True)
        return padded(ids, device=device, width=width, left=True), mask
