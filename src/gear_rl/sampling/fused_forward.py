"""A forward of one token with fewer kernels.

A small model's forward is bound by how many kernels there are, not by what they compute, also where a CUDA graph launches
them: of about 45 per layer in transformers' Llama, norms take 16, rotary embeddings 10 and the mask 4. Here they take 2, 1
and none; layers of Llama's form take nine in all (`fused_layers`). Each replacement is in place only for the length of a
forward, and only where it is proven to compute the same.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gear_rl.sampling import fused_layers
from gear_rl.scoring.fused_norms import fused, provable_norms

ROTARY = "apply_rotary_pos_emb"
"""The name of the function in transformers' models."""


class FusedForward:
    """`with fused_forward(): model(...)`. kernels: replace norms, rotary embeddings and layers; the attention is replaced
    always."""

    def __init__(self, model: Any, kernels: bool) -> None:
        self.config = model.config
        self.norms = provable_norms(model) if kernels else []
        self.rotary = _rotary_modules(model) if kernels and _has_triton(model.device) else []
        self.layers = fused_layers.known_layers(model, self.norms) if self.rotary else []

    @property
    def kernels(self) -> bool:
        """Whether anything but the attention is replaced."""
        return bool(self.norms or self.rotary)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        from transformers import AttentionInterface

        name, attend = grouped_attention.__name__, partial(grouped_attention, {})
        AttentionInterface.register(name, attend)
        before, self.config._attn_implementation = self.config._attn_implementation, name
        theirs = [getattr(module, ROTARY) for module in self.rotary]
        try:
            for module in self.rotary:
                setattr(module, ROTARY, _rotate())
            for layer in self.layers:
                layer.forward = partial(fused_layers.forward, layer)
            with fused(self.norms):
                yield
        finally:
            self.config._attn_implementation = before
            for layer in self.layers:
                vars(layer).pop("forward", None)
            for module, function in zip(self.rotary, theirs, strict=True):
                setattr(module, ROTARY, function)


def grouped_attention(
    biases: dict[tuple[int, torch.dtype], Tensor], module: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor,
    scaling: float | None = None, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """query (B, H, tokens, D), keys and values (B, heads, capacity, D), mask (B, 1, tokens, capacity) → (B, tokens, H, D).

    Several query heads share a head of the cache: here they are more queries to it. Under a mask, transformers copies the
    cache once for each of them instead, in every layer of every forward. `biases`: what a layer has made of the mask, for
    the layers after it."""
    batch, heads, tokens, width = query.shape
    shared = heads // keys.size(1)
    if (shared, query.dtype) not in biases:
        seen = mask[:, :, None].expand(-1, -1, shared, -1, -1).flatten(2, 3)
        biases[shared, query.dtype] = torch.zeros_like(seen, dtype=query.dtype).masked_fill_(~seen, -torch.inf)
    queries = query.reshape(batch, keys.size(1), shared * tokens, width)
    out = scaled_dot_product_attention(queries, keys, values, attn_mask=biases[shared, query.dtype], scale=scaling)
    return out.reshape(batch, heads, tokens, values.size(-1)).transpose(1, 2).contiguous(), None


def _has_triton(device: torch.device) -> bool:
    runs = device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    return runs and importlib.util.find_spec("triton") is not None


def _rotate() -> Callable[..., Any]:
    from gear_rl.sampling.rotary_kernel import rotate

    return rotate


def _rotary_modules(model: Any) -> list[Any]:
    """The Python modules of the model's layers whose rotary function is the plain one."""
    names = {type(layer).__module__ for layer in model.modules()}
    found = [sys.modules[name] for name in sorted(names) if callable(getattr(sys.modules[name], ROTARY, None))]
    return [module for module in found if _is_plain(getattr(module, ROTARY))]


@torch.no_grad()
def _is_plain(theirs: Callable[..., Any]) -> bool:
    draw = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, heads, 3, 8, generator=draw) for heads in (4, 2))
    cos, sin = (torch.randn(2, 3, 8, generator=draw) for _ in range(2))

    def plain(x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos[:, None] + torch.cat([-second, first], -1) * sin[:, None]

    try:
        found = theirs(q.clone(), k.clone(), cos, sin)
        return all(torch.allclose(a, plain(b), atol=1e-5) for a, b in zip(found, (q, k), strict=True))
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
