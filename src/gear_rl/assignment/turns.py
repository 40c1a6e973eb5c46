"""The turns of a batch as a table: one row per rollout, one column per turn. For methods that credit turns.

K is the largest number of turns of a rollout. Packed tensors are (B, L): see `gear_rl.assignment.rollouts.ActionTokens`.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from gear_rl.assignment.baselines import wide
from gear_rl.assignment.rollouts import ActionTokens


class Turns:
    """Reads per-token signals turn by turn, and spreads what a turn has earned over its tokens."""

    def __init__(self, actions: ActionTokens) -> None:
        self._actions = actions
        self.index = (actions.turn_starts.cumsum(1) - 1).clamp_(min=0)  # (B, L) the turn of each token, from 0
        self.counts = actions.turn_starts.sum(1)  # (B,) turns of each rollout
        columns = torch.arange(max(1, int(self.counts.max())), device=self.counts.device)
        self.taken = columns < self.counts[:, None]  # (B, K) False: the rollout has no such turn
        self.answered = columns < self.counts[:, None] - 1  # (B, K) the environment answered: another turn followed
        self.last = columns == self.counts[:, None] - 1  # (B, K)

    @cached_property
    def first_tokens(self) -> Tensor:
        """(B, K) packed place of each turn's first token; 0 where there is no such turn."""
        starts = self._actions.turn_starts
        places = starts.nonzero()[:, 1]
        return torch.zeros_like(self.taken, dtype=torch.long).masked_scatter_(self.taken, places)

    @cached_property
    def last_tokens(self) -> Tensor:
        """(B, K) packed place of each turn's last token; 0 where there is no such turn."""
        after = torch.cat([self.first_tokens[:, 1:], torch.zeros_like(self.first_tokens[:, :1])], dim=1)  # (B, K)
        after = torch.where(self.last, self._actions.counts[:, None], after)
        return (after - 1).clamp_(min=0)

    def at_first_tokens(self, packed: Tensor) -> Tensor:
        """(B, L) → (B, K): the value at each turn's first token; 0 where there is no such turn."""
        return packed.gather(1, self.first_tokens).masked_fill_(~self.taken, 0)

    def at_last_tokens(self, packed: Tensor) -> Tensor:
        """(B, L) → (B, K): the value at each turn's last token; 0 where there is no such turn."""
        return packed.gather(1, self.last_tokens).masked_fill_(~self.taken, 0)

    def means(self, packed: Tensor) -> Tensor:
        """(B, L) → (B, K): the mean over each turn's tokens; 0 where there is no such turn."""
        sums = packed.new_zeros(self.taken.shape, dtype=wide(packed))
        sums.scatter_add_(1, self.index, packed.to(sums.dtype).masked_fill(~self._actions.valid, 0))
        sizes = (self.last_tokens - self.first_tokens + 1).clamp(min=1)
        return (sums / sizes).masked_fill_(~self.taken, 0).to(packed.dtype)

    def spread(self, table: Tensor) -> Tensor:
        """(B, K) → (B, L): each token gets the value of its turn; the filling 0."""
        return table.gather(1, self.index).masked_fill_(~self._actions.valid, 0)


def returns_to_go(rewards: Tensor, gamma: float) -> Tensor:
    """R_k = Σ_{l ≥ k} γ^{l − k} r_l of each row, (B, K) → (B, K). Rewards after the last turn are 0."""
    returns = rewards.clone()
    for k in range(rewards.shape[1] - 2, -1, -1):  # over turns, of which there are few
        returns[:, k] += gamma * returns[:, k + 1]
    return returns


def powers(base: float, exponents: Tensor) -> Tensor:
    """base^exponent for whole exponents of at least 0, of any shape. By a running product, so that the same power is the
    same number in every batch."""
    table = torch.full((int(exponents.max()) + 1,), base, dtype=wide(exponents), device=exponents.device)
    table[0] = 1.0
    return table.cumprod(0)[exponents]
