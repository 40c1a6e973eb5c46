"""Lists of unequal length as one tensor. Used by everything that turns token ids or per-token values into a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def padded(
    rows: Sequence[Sequence[float]],
    dtype: torch.dtype = torch.long,
    device: Any = None,
    *,
    width: int | None = None,
    left: bool = False,
) -> Tensor:
    """B lists → (B, width), filled with 0 after their ends, or before their beginnings with `left`.

    `width`: at least the longest list; default that, and at least 1.
    """
    if width is None:
        width = max([1, *map(len, rows)])
    if left:
        filled = [[*[0] * (width - len(row)), *row] for row in rows]
    else:
        filled = [[*row, *[0] * (width - len(row))] for row in rows]
    return torch.tensor(filled, dtype=dtype, device=device)
