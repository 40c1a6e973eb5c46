"""Attention of a few tokens to a static cache, in one kernel.

    out = Σ_c softmax_c(q · k_c · scale) v_c          over the columns c that the token sees

torch's kernels under a mask take 64 queries at a time and read the whole cache. Here the query heads that share a head of the
cache are 16 queries or more, and only columns in use are read. Softmax and sums are in float32; shares of a column are rounded
to the cache's type before they multiply its values, as flash attention does."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_QUERIES = 64
"""Of one program; more take several."""


@triton.jit
def attention_kernel(
    qkv, keys, values, seen, columns, out, scale, tokens, shared, kv_heads, qkv_row, cache_row, cache_head, cache_column,
    seen_row, seen_token, D: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, COLUMNS: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """A program for each head of the cache of each row, and each `QUERIES` of its queries: a query is a token of one of the
    `shared` query heads. `scale` is for powers of two. EXACT: multiply in float32 (Triton's interpreter cannot in bfloat16)."""
    row = (tl.program_id(0) // kv_heads).to(tl.int64)  # a cache may have more than 2³¹ elements
    head = tl.program_id(0) % kv_heads
    query = tl.program_id(1) * QUERIES + tl.arange(0, QUERIES)
    group, token = query // tokens, query % tokens
    place = tl.arange(0, WIDTH)
    asks = query < shared * tokens
    at = (row * tokens + token)[:, None] * qkv_row + ((head * shared + group) * D)[:, None] + place[None, :]
    inside = asks[:, None] & (place < D)[None, :]
    q = tl.load(qkv + at, inside, 0.0)
    if EXACT:
        q = q.to(tl.float32)
    cache = row * cache_row + head * cache_head
    mask = seen + row * seen_row + token * seen_token
    end = (tl.load(columns + tokens - 1) + 1).to(tl.int32)

    top = tl.full((QUERIES,), -1e30, tl.float32)  # finite: a query that has seen nothing yet must not become NaN
    total = tl.zeros((QUERIES,), tl.float32)
    read = tl.zeros((QUERIES, WIDTH), tl.float32)
    for first in range(0, end, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        used = (column < end)[:, None] & (place < D)[None, :]
        there = cache + column[:, None] * cache_column + place[None, :]
        k, v = tl.load(keys + there, used, 0.0), tl.load(values + there, used, 0.0)
        if EXACT:
            k, v = k.to(tl.float32), v.to(tl.float32)
        sees = tl.load(mask[:, None] + column[None, :], asks[:, None] & (column < end)[None, :], 0) != 0
        score = tl.where(sees, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -1e30)
        higher = tl.maximum(top, tl.max(score, 1))
        fade = tl.exp2(top - higher)
        share = tl.where(sees, tl.exp2(score - higher[:, None]), 0.0)
        total = total * fade + tl.sum(share, 1)
        read = read * fade[:, None] + tl.dot(share.to(v.dtype), v, input_precision="ieee")
        top = higher
    read = read / tl.maximum(total, 1e-30)[:, None]
    to = ((row * tokens + token) * (kv_heads * shared * D) + (head * shared + group) * D)[:, None] + place[None, :]
    tl.store(out + to, read.to(out.dtype.element_ty), inside)


def tile(head_bytes: int) -> tuple[int, int]:
    """Bytes of a head's key → columns of the cache that a program reads at once, and how many such reads are under way. Keys
    and values of all of them must fit the shared memory of small GPUs (99 KB); 128 columns were the fastest on an H200."""
    return max(16, min(128, (1 << 14) // head_bytes)), 3 if head_bytes <= 256 else 2


def attention(
    qkv: Tensor, keys: Tensor, values: Tensor, seen: Tensor, columns: Tensor, q_heads: int, scale: float
) -> Tensor:
    """qkv (B · tokens, q_heads · D or more), of which the first are queries; keys and values (B, heads, capacity, D); seen
    (B, 1, tokens, capacity) bool; `columns` (tokens,) of the tokens, ascending: nothing after the last is read
    → (B · tokens, q_heads · D)."""
    heads, width, tokens = keys.size(1), keys.size(3), columns.numel()
    shared = q_heads // heads
    assert qkv.stride(1) == keys.stride(3) == seen.stride(3) == 1 and keys.stride() == values.stride()
    out = qkv.new_empty(qkv.size(0), q_heads * width)
    queries = min(MOST_QUERIES, max(16, triton.next_power_of_2(shared * tokens)))
    padded = max(16, triton.next_power_of_2(width))
    at_once, stages = tile(padded * keys.element_size())
    attention_kernel[(keys.size(0) * heads, triton.cdiv(shared * tokens, queries))](
        qkv, keys, values, seen.view(torch.uint8), columns, out, scale / math.log(2), tokens, shared, heads, qkv.stride(0),
        *keys.stride()[:3], seen.stride(0), seen.stride(2), D=width, WIDTH=padded,
        QUERIES=queries, COLUMNS=at_once, EXACT=not qkv.is_cuda, num_stages=stages,
    )  # fmt: skip
    return out
