"""Rotary position embedding of queries and keys in one kernel, in place:

    x₁, x₂ = the halves of a head;   x₁ ← x₁ cos₁ − x₂ sin₁,   x₂ ← x₂ cos₂ + x₁ sin₂

transformers writes it as ten operations. Computed in float32, rounded once."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from gear_rl.errors import GearError


@triton.jit
def angles(cos, sin, place, inside, half):
    """cos and sin of both halves at `place`, in float32."""
    cos1 = tl.load(cos + place, inside, 0.0).to(tl.float32)
    sin1 = tl.load(sin + place, inside, 0.0).to(tl.float32)
    cos2 = tl.load(cos + place + half, inside, 0.0).to(tl.float32)
    sin2 = tl.load(sin + place + half, inside, 0.0).to(tl.float32)
    return cos1, sin1, cos2, sin2


@triton.jit
def rotate_to(at, to, half, inside, cos1, sin1, cos2, sin2):
    """The heads at `at`, rotated, are written to `to`."""
    first = tl.load(at, inside, 0.0).to(tl.float32)
    second = tl.load(at + half, inside, 0.0).to(tl.float32)
    tl.store(to, (first * cos1 - second * sin1).to(to.dtype.element_ty), inside)
    tl.store(to + half, (second * cos2 + first * sin2).to(to.dtype.element_ty), inside)


@triton.jit
def rotary_kernel(
    q, k, cos, sin, tokens, q_heads, k_heads, half,
    q_batch, q_head, q_token, k_batch, k_head, k_token, cos_batch, cos_token,
    Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """A program for each token of each row."""
    row, token = tl.program_id(0) // tokens, tl.program_id(0) % tokens
    column = tl.arange(0, HALF)[None, :]
    cos1, sin1, cos2, sin2 = angles(cos, sin, row * cos_batch + token * cos_token + column, column < half, half)
    head = tl.arange(0, Q_HEADS)[:, None]
    at = q + row * q_batch + token * q_token + head * q_head + column
    rotate_to(at, at, half, (head < q_heads) & (column < half), cos1, sin1, cos2, sin2)
    head = tl.arange(0, K_HEADS)[:, None]
    at = k + row * k_batch + token * k_token + head * k_head + column
    rotate_to(at, at, half, (head < k_heads) & (column < half), cos1, sin1, cos2, sin2)


def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1, **_: Any) -> tuple[Tensor, Tensor]:
    """q (B, H, tokens, D), k (B, heads, tokens, D), cos and sin (B or 1, tokens, D) → q and k, changed in place."""
    whole = unsqueeze_dim == 1 and q.size(-1) == cos.size(-1) and cos.stride() == sin.stride()
    if not (whole and q.stride(-1) == k.stride(-1) == cos.stride(-1) == 1):  # the caller then uses the model's own function
        raise GearError("only a part of each head is rotated, or it is stored in another order")
    batch, tokens = q.size(0), q.size(2)
    half = q.size(-1) // 2
    rotary_kernel[(batch * tokens,)](
        q, k, cos, sin, tokens, q.size(1), k.size(1), half,
        *q.stride()[:3], *k.stride()[:3], 0 if cos.size(0) == 1 else cos.stride(0), cos.stride(1),
        Q_HEADS=triton.next_power_of_2(q.size(1)), K_HEADS=triton.next_power_of_2(k.size(1)),
        HALF=triton.next_power_of_2(half),
    )  # fmt: skip
    return q, k
