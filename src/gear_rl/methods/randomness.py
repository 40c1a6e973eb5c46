"""Random numbers for the controls that depend on a seed and on the rollout itself, and on nothing else.

A generator with a state would tie each rollout's numbers to its place in the batch, to the padding, and to the device.
Here they are hashes: the same rollout gets the same numbers in every batch and on every device, bit for bit; two
different rollouts, and so two steps of training, get unrelated ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.rollouts import Rollouts


def hashed(values: Tensor) -> Tensor:
    """SplitMix64 (Steele, Lea, Flood 2014) of each int64; sums and products wrap around at 64 bits."""
    values = values + _signed(0x9E3779B97F4A7C15)
    values = (values ^ _shifted_right(values, 30)) * _signed(0xBF58476D1CE4E5B9)
    values = (values ^ _shifted_right(values, 27)) * _signed(0x94D049BB133111EB)
    return values ^ _shifted_right(values, 31)


def rollout_keys(rollouts: Rollouts, seed: int) -> Tensor:
    """One random int64 per rollout → (B,), from the seed, its action tokens and its reward.

    Without token ids, the bits of its signals (as float32, names in order) stand for the tokens.
    """
    actions = rollouts.actions
    if rollouts.token_ids is not None:
        content = actions.pack(rollouts.token_ids.long())  # (B, L)
    else:
        content = torch.zeros_like(actions.positions)
        for _, signal in sorted(rollouts.signals.items()):
            content = content * _signed(0x9E3779B97F4A7C15) + actions.pack(_bits(signal))
    ranks = torch.arange(content.shape[1], device=content.device)
    # A sum of hashes, each bound to its rank: the filling adds nothing, and integer sums are exact in any order.
    tokens = hashed(content ^ hashed(ranks)).masked_fill_(~actions.valid, 0).sum(1)  # (B,)
    start = hashed(torch.full_like(tokens, seed))
    return hashed(hashed(start ^ tokens) ^ _bits(rollouts.rewards))


def token_keys(rollouts: Rollouts, seed: int) -> Tensor:
    """One random int64 per action token → (B, L)."""
    ranks = torch.arange(rollouts.actions.valid.shape[1], device=rollouts.action_mask.device)
    return hashed(rollout_keys(rollouts, seed)[:, None] ^ hashed(ranks))


def _bits(values: Tensor) -> Tensor:
    return values.float().view(torch.int32).long()


def _shifted_right(values: Tensor, places: int) -> Tensor:
    """Shift that fills with zeros; torch's own fills with the sign."""
    return (values >> places) & ((1 << (64 - places)) - 1)


def _signed(constant: int) -> int:
    """A 64-bit constant as torch's int64 spells it."""
    return constant - (1 << 64) if constant >= 1 << 63 else constant
