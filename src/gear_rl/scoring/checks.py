"""What scoring refuses: rollouts that could only be scored wrongly, or that would take a GPU down."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.scoring.body import Ids
from gear_rl.scoring.packing import flat
from gear_rl.scoring.reading import last_wanted


def checked(
    body: Any, prompts: dict[str, Ids], completions: Ids | Tensor, action_mask: Tensor
) -> tuple[Tensor, Tensor, list[int]]:
    """After looking at everything: the completions as (B, T) ids on the mask's device, the mask on the CPU, and the last
    True of each of its rows."""
    if action_mask.ndim != 2 or action_mask.dtype != torch.bool:
        raise GearError(
            f"the action mask must be bool and (B, T), not {action_mask.dtype} and {tuple(action_mask.shape)}."
        )
    mask = action_mask.cpu()
    counts = last_wanted(mask)
    for side, of_side in prompts.items():
        if not len(of_side) == len(completions) == len(mask):
            raise GearError(
                f"{len(of_side)} prompts of the {side}, {len(completions)} completions and an action mask of "
                f"{len(mask)} rows: scoring takes one of each per rollout."
            )
        for row, (prompt, count) in enumerate(zip(of_side, counts, strict=True)):
            if not prompt and count >= 0:
                raise GearError(f"rollout {row}: the {side}'s prompt is empty, so nothing predicts the first token.")
    lengths = list(map(len, completions)) if not isinstance(completions, Tensor) else [completions.shape[1]] * len(mask)
    for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        if count >= length:
            raise GearError(f"rollout {row}: the action mask marks token {count} of a completion of {length}.")
    ids = _padded(completions, action_mask)
    size = body.get_input_embeddings().num_embeddings
    for side, of_side in prompts.items():
        for row, prompt in {id(p): (row, p) for row, p in enumerate(of_side) if p}.values():
            if not 0 <= min(prompt) <= max(prompt) < size:
                bad = next(token for token in prompt if not 0 <= token < size)
                raise GearError(
                    f"rollout {row}: token {bad} in the {side}'s prompt; the model has tokens 0 to {size - 1}."
                )
    read = torch.arange(mask.shape[1]) <= torch.tensor(counts)[:, None]
    outside = ((ids < 0) | (ids >= size)) & read.to(ids.device)
    if outside.any():
        row, column = outside.nonzero()[0].tolist()
        raise GearError(
            f"rollout {row}: token {int(ids[row, column])} at {column} of the completion; the model has tokens 0 to {size - 1}."
        )
    return ids, mask, counts


def _padded(completions: Ids | Tensor, mask: Tensor) -> Tensor:
    if isinstance(completions, Tensor):
        if completions.shape != mask.shape or completions.is_floating_point():
            raise GearError(
                f"completions of shape {tuple(completions.shape)} and {completions.dtype} do not fit an action mask of "
                f"shape {tuple(mask.shape)}: give ids padded to it, or lists."
            )
        return completions.to(mask.device, torch.long)
    width = mask.shape[1]
    completions = [completion[:width] for completion in completions]
    ids = torch.zeros(mask.shape, dtype=torch.long)
    ids[torch.arange(width) < torch.tensor(list(map(len, completions)))[:, None]] = flat(completions)
    return ids.to(mask.device)
