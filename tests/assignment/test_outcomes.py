"""Who ended better than the others of a group."""

from __future__ import annotations

import torch

from gear_rl.assignment.outcomes import sides


def test_above_and_below_the_groups_mean():
    nan = float("nan")
    rewards = torch.tensor([1.0, 0, 0.5, nan, 0.1, 0.1, 0.1, nan, 3.0, nan, 0.0])
    groups = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 3, 3, 3])
    above, below = sides(rewards, groups)
    assert above.nonzero()[:, 0].tolist() == [0, 8]
    assert below.nonzero()[:, 0].tolist() == [1, 10]
