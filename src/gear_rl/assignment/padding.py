"""Lists of unequal length as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def padded(rows: Sequence[Sequence[float]], dtype: torch.dtype, width: int | None = None) -> Tensor:
    """B lists → (B, T), 0 after their ends. T: the longest, at least 1, or `width`."""
    longest = max([1, *map(len, rows)]) if width is None else width
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=dtype)
