"""Where the hidden state before each sampled token lies in a worker's batch. Pure tensors; B sequences.

verl packs a micro-batch without padding (B sequences one after the other) or pads it on the right (B, L). Per-token results
follow its convention: what predicts token j + 1 of a sequence stands at j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Positions:
    """Of N sampled tokens, in the order of sequences and tokens."""

    packed: Tensor
    """(N,) index of the state before each, where all sequences are packed into one."""
    row: Tensor
    """(N,) its sequence."""
    column: Tensor
    """(N,) its place in the sequence."""

    @staticmethod
    def of(prompts: Sequence[int], masks: Sequence[Tensor]) -> Positions:
        """prompts: the length of each sequence's prompt, at least 1. masks: for each, (T_i,) true at sampled tokens."""
        rows, columns, packed, start = [], [], [], 0
        for i, (prompt, mask) in enumerate(zip(prompts, masks, strict=True)):
            column = mask.nonzero()[:, 0] + prompt - 1
            rows.append(torch.full_like(column, i))
            columns.append(column)
            packed.append(column + start)
            start += prompt + len(mask)
        return Positions(torch.cat(packed), torch.cat(rows), torch.cat(columns))

    def states(self, hidden: Tensor, is_packed: bool) -> Tensor:
        """hidden (1, total, D) or (B, L, D) → (N, D)."""
        return hidden[0, self.packed] if is_packed else hidden[self.row, self.column]

    def spread(self, values: Tensor, total: int) -> Tensor:
        """(N,) → (total,), 0 elsewhere."""
        return values.new_zeros(total).index_put((self.packed,), values)
