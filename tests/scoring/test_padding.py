"""Lists of unequal length as one tensor, on either side."""

import torch

from gear_rl.scoring.padding import padded


def test_padding():
    rows = [[1, 2, 3], [], [4]]
    assert padded(rows).tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]] and padded(rows).dtype == torch.long
    assert padded(rows, left=True).tolist() == [[1, 2, 3], [0, 0, 0], [0, 0, 4]]
    assert padded(rows, torch.bool, width=4).tolist()[0] == [True, True, True, False]
    assert padded([[0.5]], torch.float32, width=2).tolist() == [[0.5, 0.0]]
    assert padded([[], []]).shape == (2, 1), "a batch without tokens is still a matrix"
    assert padded([]).numel() == 0
