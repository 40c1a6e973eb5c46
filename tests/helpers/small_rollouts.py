"""Groups of two and of four rollouts, small enough to work out by hand."""

from __future__ import annotations

import torch

from gear_rl import Rollouts


def pair(rewards=(1.0, 0.0), turns=None, channels=None, **signals) -> Rollouts:
    """Two rollouts of one group that say the same; the first won, unless rewards say otherwise."""
    rows = {name: torch.tensor([row, row] if not isinstance(row[0], list) else row) for name, row in signals.items()}
    T = next(iter(rows.values())).shape[1] if rows else len(turns or [0])
    return Rollouts(
        torch.ones(2, T, dtype=torch.bool),
        torch.tensor(rewards),
        torch.tensor([0, 0]),
        turn_ids=None if turns is None else torch.tensor([turns, turns]),
        advantages=torch.tensor([1.0, -1.0]),
        signals=rows,
        channels={name: torch.tensor(values) for name, values in (channels or {}).items()},
    )


def four(rewards, **signals) -> Rollouts:
    rows = {name: torch.tensor([row] * 4 if not isinstance(row[0], list) else row) for name, row in signals.items()}
    shape = next(iter(rows.values())).shape
    return Rollouts(
        torch.ones(shape, dtype=torch.bool),
        torch.tensor(rewards),
        torch.zeros(4, dtype=torch.long),
        advantages=torch.tensor([1.0, 0.2, -0.3, -1.0]),
        signals=rows,
    )
