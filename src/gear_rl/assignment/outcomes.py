"""Which rollouts of a group ended better than others, for rewards of any kind."""

from __future__ import annotations

import torch
from torch import Tensor


def sides(rewards: Tensor, group_ids: Tensor) -> tuple[Tensor, Tensor]:
    """(B,) bool each: reward above, and below, the mean of its group. With rewards of 0 and 1: correct, and wrong.

    A rollout at the mean is neither, and so is every rollout of a group of equal rewards. NaN, a rollout that could not be
    scored, is left out of the mean and is neither.
    """
    above = torch.zeros(rewards.shape, dtype=torch.bool, device=rewards.device)
    below = above.clone()
    for group in group_ids.unique():
        scored = (group_ids == group) & ~rewards.isnan()
        of_group = rewards[scored].double()
        if len(of_group) and of_group.min() < of_group.max():  # else: equal, whatever the mean rounds to
            mean = of_group.mean()
            above |= scored & (rewards.double() > mean)
            below |= scored & (rewards.double() < mean)
    return above, below
