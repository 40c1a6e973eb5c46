"""The table of turns, returns over it, and powers of a discount."""

from __future__ import annotations

import torch

from gear_rl import Rollouts
from gear_rl.assignment.turns import Turns, powers, returns_to_go


def test_turns_as_a_table():
    mask = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    rollouts = Rollouts(mask, torch.zeros(3), torch.zeros(3, dtype=torch.long))
    turns, packed = Turns(rollouts.actions), rollouts.actions.pack(torch.arange(15.0).view(3, 5))
    assert turns.counts.tolist() == [2, 1, 0]
    assert turns.taken.tolist() == [[True, True], [True, False], [False, False]]
    assert turns.answered.tolist() == [[True, False], [False, False], [False, False]]
    assert turns.at_first_tokens(packed).tolist() == [[0, 3], [6, 0], [0, 0]]
    assert turns.at_last_tokens(packed).tolist() == [[1, 4], [6, 0], [0, 0]]
    table = torch.tensor([[1.0, 2.0], [3.0, 0.0], [9.0, 9.0]])
    assert rollouts.actions.unpack(turns.spread(table)).tolist() == [[1, 1, 0, 2, 2], [0, 3, 0, 0, 0], [0] * 5]


def test_returns_to_go_are_discounted():
    assert returns_to_go(torch.tensor([[1.0, 0.0, 4.0]]), 0.5).tolist() == [[2.0, 2.0, 4.0]]


def test_powers_are_the_same_in_every_batch():
    short, long = powers(0.99, torch.arange(3)), powers(0.99, torch.arange(900))
    assert torch.equal(short, long[:3]) and powers(0.0, torch.tensor([2, 0])).tolist() == [0.0, 1.0]


def test_the_mean_of_a_turns_tokens():
    mask = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    rollouts = Rollouts(mask, torch.zeros(3), torch.zeros(3, dtype=torch.long))
    means = Turns(rollouts.actions).means(rollouts.actions.pack(torch.arange(15.0).view(3, 5)))
    assert means.tolist() == [[0.5, 3.5], [6.0, 0.0], [0.0, 0.0]]
