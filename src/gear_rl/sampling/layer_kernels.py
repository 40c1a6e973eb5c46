"""Two kernels of a decoder layer that reads a few tokens: rotate and store, and SwiGLU.

    store     queries are rotated in place; keys are rotated and written into the cache, values are written as they are
    swiglu    silu(gate) · up

Computed in float32, rounded once."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from gear_rl.sampling.rotary_kernel import angles, rotate_to


@triton.jit
def store_kernel(
    qkv, cos, sin, keys, values, columns, tokens, q_heads, kv_heads, half, qkv_row, cos_row, cos_token,
    cache_row, cache_head, cache_column, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """A program for each token of each row. qkv (rows · tokens, (q_heads + 2 kv_heads) · 2 half)."""
    program = tl.program_id(0).to(tl.int64)  # a cache may have more than 2³¹ elements
    row, token = program // tokens, program % tokens
    width = 2 * half
    column = tl.arange(0, HALF)[None, :]
    cos1, sin1, cos2, sin2 = angles(cos, sin, row * cos_row + token * cos_token + column, column < half, half)
    here = qkv + program * qkv_row

    head = tl.arange(0, Q_HEADS)[:, None]
    at = here + head * width + column
    rotate_to(at, at, half, (head < q_heads) & (column < half), cos1, sin1, cos2, sin2)

    head = tl.arange(0, KV_HEADS)[:, None]
    inside = (head < kv_heads) & (column < half)
    to = row * cache_row + head * cache_head + tl.load(columns + token) * cache_column + column
    at = here + (q_heads + head) * width + column
    rotate_to(at, keys + to, half, inside, cos1, sin1, cos2, sin2)
    at += kv_heads * width
    tl.store(values + to, tl.load(at, inside, 0.0), inside)
    tl.store(values + to + half, tl.load(at + half, inside, 0.0), inside)


@triton.jit
def swiglu_kernel(both, out, columns, BLOCK: tl.constexpr):
    """both (rows, 2 columns): gate beside up → out (rows, columns)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    gate = tl.load(both + row * 2 * columns + column, inside, 0.0).to(tl.float32)
    up = tl.load(both + row * 2 * columns + columns + column, inside, 0.0).to(tl.float32)
    tl.store(out + row * columns + column, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), inside)


def store(qkv: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, columns: Tensor, q_heads: int) -> None:
    """qkv (B · tokens, (q_heads + 2 heads) · D), its queries changed in place; cos and sin (B or 1, tokens, D); keys and
    values (B, heads, capacity, D), written at `columns` (tokens,)."""
    tokens, half = columns.numel(), keys.size(3) // 2
    assert qkv.stride(1) == cos.stride(2) == keys.stride(3) == 1
    assert cos.stride() == sin.stride() and keys.stride() == values.stride()
    store_kernel[(qkv.size(0),)](
        qkv, cos, sin, keys, values, columns, tokens, q_heads, keys.size(1), half, qkv.stride(0),
        0 if cos.size(0) == 1 else cos.stride(0), cos.stride(1), *keys.stride()[:3],
        Q_HEADS=triton.next_power_of_2(q_heads), KV_HEADS=triton.next_power_of_2(keys.size(1)),
        HALF=triton.next_power_of_2(half),
    )  # fmt: skip


def swiglu(both: Tensor) -> Tensor:
    """(N, 2 I), gate beside up → (N, I)."""
    columns = both.size(1) // 2
    out = both.new_empty(both.size(0), columns)
    block = min(1024, triton.next_power_of_2(columns))
    swiglu_kernel[(both.size(0), triton.cdiv(columns, block))](both, out, columns, BLOCK=block)
    return out
