"""Attention for packed rows: a segment sees its context and itself, nothing else.

Plugged into transformers' attention interface for the length of one forward pass, so it serves every model that goes
through that interface. Three forms of the same sum:

    whole   CUDA, 16 bits. What each segment sees is copied together, and one variable-length flash kernel does all
            segments: the fewest launches. Taken while the copies stay small (`MOST_COPIED`).
    joined  CUDA, 16 bits, long contexts. Attention to the context and attention to oneself, each by a variable-length
            flash kernel without copies for every segment, joined by their normalisers:
                o = (1 − s) o_self + s o_context,    s = sigmoid(lse_context − lse_self)
    dense   everywhere else, and for sliding windows: what a segment sees is gathered and masked (`dense_attention`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from gear_rl.scoring.dense_attention import dense_attention
from gear_rl.scoring.packing import Packed

NAME = "gear_rl_packed"
MOST_COPIED = 4
"""keys that the whole form may copy, over the tokens of the row"""
_UNKNOWN_TERMS = ("softcap", "s_aux", "position_bias")  # what some families add to attention, and this does not

_row: ContextVar[Packed] = ContextVar("gear_rl_packed_row")


class CannotPack(Exception):
    """This model's attention is not the plain causal kind. The message says why."""


@contextmanager
def packed_attention(config: Any, packed: Packed) -> Iterator[None]:
    """Inside, models of `config` attend by the layout of `packed`."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attention)  # without a mask function: transformers then makes no mask
    usual, token = config._attn_implementation, _row.set(packed)
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = usual
        _row.reset(token)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """query (1, H, N, d), key and value (1, H', N, d) → (1, N, H, d)."""
    packed = _row.get()
    for name in _UNKNOWN_TERMS:
        if options.get(name) is not None:
            raise CannotPack(f"its attention has a term {name!r}")
    if attention_mask is not None or is_causal is False or not getattr(module, "is_causal", True):
        raise CannotPack("its attention is not purely causal")
    if query.shape[0] != 1 or query.shape[2] != key.shape[2]:
        raise CannotPack("its attention reads more than the row it is given")
    windows = packed.scratch.setdefault("windows", [])
    windows.append(sliding_window)
    q, k, v = (
        t[0].transpose(0, 1).to(value.dtype) for t in (query, key, value)
    )  # as autocast would: the values' dtype
    window = sliding_window if sliding_window is not None and sliding_window < packed.longest else None
    if "form" not in packed.scratch:  # the same in every layer, windows apart
        few = packed.keys_seen <= MOST_COPIED * packed.tokens
        packed.scratch["form"] = ("whole" if few else "joined") if _flash_serves(q, k, v) else "dense"
    form = packed.scratch["form"] if window is None else "dense"
    if packed.kept is not None or form == "joined":
        seen_k, seen_v = _contexts(packed, k, v, layer=len(windows))
    if form == "joined":
        return _joined(packed, q, k, v, seen_k, seen_v, scaling)[None], None
    if packed.kept_keys:
        k, v = torch.cat([seen_k, k]), torch.cat([seen_v, v])
    whole = form == "whole"
    out = _whole(packed, q, k, v, scaling) if whole else dense_attention(packed, q, k, v, scaling, window)
    return out[None], None


def _contexts(packed: Packed, k: Tensor, v: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Keys and values of all contexts, one after the other: (C, H', d) each. `layer`: layers are identified by their order."""
    if packed.kept_keys:
        assert packed.kept is not None
        return packed.kept.keys_values[layer]
    if "places" not in packed.scratch:
        packed.scratch["places"] = packed.context_places(packed.device)
    seen_k, seen_v = k[packed.scratch["places"]], v[packed.scratch["places"]]
    if packed.kept is not None:
        number = [number for number, _ in packed.prompts]
        packed.kept.keys_values[layer] = tuple(  # type: ignore[assignment]
            torch.cat([part for i, part in enumerate(seen.split(packed.contexts)) if i in number])
            for seen in (seen_k, seen_v)
        )
    return seen_k, seen_v


def _flash_serves(q: Tensor, k: Tensor, v: Tensor) -> bool:
    width = q.shape[-1]
    return (
        q.is_cuda
        and torch.version.hip is None
        and q.dtype in (torch.bfloat16, torch.float16)
        and width == k.shape[-1] == v.shape[-1] <= 256
        and width % 8 == 0
        and torch.cuda.get_device_capability(q.device) >= (8, 0)
    )


def _whole(packed: Packed, q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
    """q (N, H, d) of the row, k and v (N, H', d) with kept contexts before it → (N, H, d)."""
    if "whole" not in packed.scratch:
        lengths = [segment.length for segment in packed.segments if segment.length]
        seen = [segment.position + segment.length for segment in packed.segments if segment.length]
        cum_q, cum_k = (_cumulative(packed, each) for each in (lengths, seen))
        packed.scratch["whole"] = packed.seen_places(), cum_q, cum_k, max(lengths), max(seen)
    places, cum_q, cum_k, longest, most_seen = packed.scratch["whole"]
    seen_k, seen_v = k.index_select(0, places), v.index_select(0, places)
    return _varlen(q, seen_k, seen_v, cum_q, cum_k, longest, most_seen, True, scale)[0]


def _joined(
    packed: Packed, q: Tensor, k: Tensor, v: Tensor, seen_k: Tensor, seen_v: Tensor, scale: float | None
) -> Tensor:
    """q (N, H, d) and k, v (N, H', d) of the row; seen_k, seen_v (C, H', d) of its contexts → (N, H, d)."""
    if "joined" not in packed.scratch:
        packed.scratch["joined"] = _bounds(packed)
    segments, longest, behind, most, contexts, longest_context = packed.scratch["joined"]
    out, lse = _varlen(q, k, v, segments, segments, longest, longest, True, scale)
    if (first := packed.followers) < len(q):
        seen, lse_seen = _varlen(q[first:], seen_k, seen_v, behind, contexts, most, longest_context, False, scale)
        share = torch.sigmoid(lse_seen - lse[:, first:]).T[..., None].to(out.dtype)
        out[first:].lerp_(seen, share)
    return out


def _varlen(
    q: Tensor, k: Tensor, v: Tensor, cum_q: Tensor, cum_k: Tensor, max_q: int, max_k: int, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """→ output (N, H, d) and log-normalisers (H, N). Causal: the last query sees the last key."""
    out, lse, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, cum_q, cum_k, max_q, max_k, 0.0, causal, False, scale=scale
    )
    if lse.shape != (q.shape[1], q.shape[0]):
        raise CannotPack(f"the flash kernel of torch {torch.__version__} returns its normalisers in another form")
    return out, lse


def _bounds(packed: Packed) -> tuple[Tensor, int, Tensor, int, Tensor, int]:
    """Cumulative lengths and the longest, of segments, of what follows each context, and of contexts."""
    alone = [segment.length for segment in packed.segments if segment.length]
    behind = [0] * len(packed.contexts)
    for segment in packed.segments:
        if segment.context >= 0:
            behind[segment.context] += segment.length

    return (
        _cumulative(packed, alone),
        max(alone),
        _cumulative(packed, behind),
        max(behind),
        _cumulative(packed, packed.contexts),
        max(packed.contexts),
    )


def _cumulative(packed: Packed, lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(packed.device, torch.int32)
