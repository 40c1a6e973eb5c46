"""The model that samples during training: the policy itself, or a copy of it in 16 bits."""

from __future__ import annotations

import copy
from typing import Any

import torch

from gear_rl.sampling.fused_layers import lay_side_by_side
from gear_rl.scoring.sharded_weights import looks_sharded


class Sampler:
    """`bfloat16`: a copy of the policy in 16 bits, updated on every call. Faster than rounding the weights in every forward,
    and its cache takes half the memory. `float32`: the policy itself."""

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self._copy: Any = None

    @torch.no_grad()
    def __call__(self, policy: Any) -> Any:
        """The model to sample from, with the current weights of `policy`."""
        if self.precision == "float32" or looks_sharded(policy):  # sharded: gathered for sampling, a copy would not fit
            return policy
        if self._copy is None:
            self._copy = copy.deepcopy(policy).eval().requires_grad_(False)
            vars(self._copy).pop("forward", None)  # accelerate's wrapper, which rounds inputs and returns float32
            for weight in self._copy.parameters():  # weights only: `.to` would round rotary frequencies as well
                weight.data = weight.data.to(getattr(torch, self.precision))
            lay_side_by_side(self._copy)
        for mine, its in zip(self._copy.parameters(), policy.parameters(), strict=True):
            mine.copy_(its)
        return self._copy
