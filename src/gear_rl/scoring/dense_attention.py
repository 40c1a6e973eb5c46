"""Attention for packed rows on any device, with or without a sliding window: gather, mask, attend.

Segments of like length go through one call of `scaled_dot_product_attention`, each with its own copy of the keys it may
see. The copies live for one call, and their size is bounded.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gear_rl.scoring.packing import Packed, Segment

_MOST_PAIRS, _MOST_KEYS = 1 << 24, 1 << 16
"""pairs (query, key) and keys of one call: they bound its mask and its copy of keys and values"""
_PADDING = 1.5
"""pairs of a call over those without padding, at most"""


class _Block(NamedTuple):
    queries: Tensor
    """(n, Q) places in the row"""
    keys: Tensor
    """(n, K) places in the row; where contexts were kept, these are counted first"""
    allowed: Tensor
    """(n, 1, Q, K)"""


def dense_attention(packed: Packed, q: Tensor, k: Tensor, v: Tensor, scale: float | None, window: int | None) -> Tensor:
    """q (N, H, d), k and v (N, H', d) of the row → (N, H, d). Where contexts were kept, k and v begin with them."""
    if ("blocks", window) not in packed.scratch:
        packed.scratch["blocks", window] = _blocks(packed, window)
    blocks, place = packed.scratch["blocks", window]
    repeats = q.shape[1] // k.shape[1]
    parts = []
    for block in blocks:
        keys, values = (t[block.keys].transpose(1, 2) for t in (k, v))  # (n, H', K, d)
        if repeats > 1:
            keys, values = (t.repeat_interleave(repeats, 1) for t in (keys, values))
        queries = q[block.queries].transpose(1, 2)  # (n, H, Q, d)
        out = scaled_dot_product_attention(queries, keys, values, attn_mask=block.allowed, scale=scale)
        parts.append(out.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts)[place]


def _blocks(packed: Packed, window: int | None) -> tuple[list[_Block], Tensor]:
    """The calls to make; and for every token of the row, where its output stands among theirs."""
    context_start = [0, *accumulate(packed.contexts)]
    context_places = packed.context_places("cpu")
    place = torch.empty(packed.tokens, dtype=torch.long)
    blocks, done = [], 0
    for together in _together([segment for segment in packed.segments if segment.length]):
        start, length, context, before = torch.tensor(together)[:, :, None].unbind(1)  # each (n, 1)
        seen_from = torch.tensor(context_start)[context]  # of no context, nothing is taken
        query, key = torch.arange(int(length.max())), torch.arange(int((before + length).max()))
        asked, seen = query < length, key < before + length
        position = (before + query)[..., None]  # (n, Q, 1); a key's position is its number in the reading
        allowed = seen[:, None] & (key <= position)
        if window is not None:
            allowed &= key > position - window
        source = packed.kept_keys + start + key - before
        if len(context_places):
            in_context = context_places[(seen_from + key).clamp(max=len(context_places) - 1)]
            source = torch.where(key < before, in_context, source)
        place[(start + query)[asked]] = done + torch.arange(asked.numel()).view_as(asked)[asked]
        done += asked.numel()
        tensors = ((start + query).where(asked, 0), source.where(seen, 0), allowed[:, None])
        blocks.append(_Block(*(t.to(packed.device) for t in tensors)))
    return blocks, place.to(packed.device)


def _together(segments: list[Segment]) -> list[list[Segment]]:
    """Segments of like length, in calls of bounded size and padding."""
    calls: list[list[Segment]] = []
    longest = pairs = 0
    for segment in sorted(segments, key=lambda s: (s.position + s.length, s.length), reverse=True):
        own_keys = segment.position + segment.length
        if calls:
            keys = (len(calls[-1]) + 1) * (calls[-1][0].position + calls[-1][0].length)
            longest, pairs = max(longest, segment.length), pairs + segment.length * own_keys
            if keys <= _MOST_KEYS and keys * longest <= min(_MOST_PAIRS, _PADDING * pairs):
                calls[-1].append(segment)
                continue
        calls.append([segment])
        longest, pairs = segment.length, segment.length * own_keys
    return calls
