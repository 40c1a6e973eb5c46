"""Two ways to read rollouts with a model's body, one result: the hidden state before each wanted token.

    packed   every prompt once, no padding, student and hinted prompts in one pass (`packing`, `packed_attention`)
    padded   each rollout with its prompt, padded on the right. Causal models need no mask there: nothing looks right.

Packed is used where `why_not_packed` finds nothing against it, and that includes a proof on the model itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gear_rl.scoring.body import Ids, rounds
from gear_rl.scoring.packed_attention import CannotPack, packed_attention
from gear_rl.scoring.packing import KeptPrompts, Packed
from gear_rl.scoring.padding import padded
from gear_rl.scoring.weights import Body

_PLAIN_LAYERS = {"full_attention", "sliding_attention"}


@dataclass(frozen=True)
class Asked:
    """Rollouts to read, and the tokens of theirs whose predecessors' states are wanted."""

    ids: Tensor
    """(n, T) completions, on the model's device"""
    counts: list[int]
    """(n,) tokens to read of each: up to the last wanted one, without it"""
    rollout: Tensor
    """(N,) on the model's device: of each wanted token its row …"""
    token: Tensor
    """(N,) … and its column"""
    rows: list[int]
    """(n,) places of these rollouts in the whole batch"""

    @classmethod
    def of(cls, ids: Tensor, mask: Tensor, rows: list[int] | None = None) -> Asked:
        """`ids` (n, T) on any device; `mask` (n, T) on the CPU, at least one True a row. `rows`: None: the whole batch."""
        rollout, token = mask.nonzero().T.contiguous().to(ids.device)
        return cls(ids, last_wanted(mask), rollout, token, list(range(len(ids))) if rows is None else rows)


def last_wanted(mask: Tensor) -> list[int]:
    """Per row of `mask` (B, T) its last True; −1 where there is none."""
    if mask.shape[1] == 0:
        return [-1] * len(mask)
    return torch.where(mask, torch.arange(mask.shape[1]), -1).amax(1).tolist()


def read_packed(body: Any, sides: list[Ids], asked: Asked, kept: KeptPrompts | None = None) -> list[Tensor]:
    """For each side, given by its prompts, the states before the wanted tokens: (N, D)."""
    return _read_packed(body, sides, asked, kept)[1]


def _read_packed(
    body: Any, sides: list[Ids], asked: Asked, kept: KeptPrompts | None = None
) -> tuple[Packed, list[Tensor]]:
    packed = Packed.of([p for side in sides for p in side], asked.counts * len(sides), asked.ids.device, kept)
    # before the body runs: a copy to the device waits for all that is under way there
    places = [packed.places_before(asked.rollout + i * len(side), asked.token) for i, side in enumerate(sides)]
    if packed.tokens:
        ids, positions = packed.inputs(asked.ids)
        with packed_attention(body.config, packed):
            hidden = body(input_ids=ids, position_ids=positions, use_cache=False).last_hidden_state
    else:  # nothing is left to read: the ends of kept prompts predict all there is
        assert kept is not None and kept.ends is not None
        if isinstance(body, Body) and body.sharded:
            body.idle(asked.ids.device)  # this is a pass of the others
        hidden = kept.ends[None, :0]
    states = packed.states(hidden)
    return packed, [states[place] for place in places]


def read_padded(body: Any, prompts: Ids, asked: Asked) -> Tensor:
    """The states before the wanted tokens: (N, D)."""
    device, lengths = asked.ids.device, torch.tensor(list(map(len, prompts)))
    places = lengths.to(device)[asked.rollout] + asked.token - 1
    width = int((lengths + torch.tensor(asked.counts)).max())
    rows = padded(prompts, width=width).to(device)  # padding: never seen
    column = torch.arange(width) - lengths[:, None]
    answer = ((column >= 0) & (column < asked.ids.shape[1])).to(device)
    rows = torch.where(answer, asked.ids.gather(1, column.clamp(0, asked.ids.shape[1] - 1).to(device)), rows)
    hidden = body(input_ids=rows, use_cache=False).last_hidden_state
    return hidden[asked.rollout, places]


# ---------------------------------------------------------------------------------------------- proof
@torch.no_grad()
def why_not_packed(body: Any, device: torch.device) -> str | None:
    """What speaks against reading packed rows with this model, or None. Runs a few tokens through it both ways."""
    if not getattr(body, "_supports_attention_backend", False):
        return "its attention does not go through transformers' attention interface"
    kinds = getattr(body.config, "layer_types", None)
    if kinds and not set(kinds) <= _PLAIN_LAYERS:
        return f"it has layers of the kind {', '.join(sorted(set(kinds) - _PLAIN_LAYERS))}"
    ids = [(7919 * i + 13) % body.get_input_embeddings().num_embeddings for i in range(64)]
    prompts = [ids[:20], ids[:20], ids[:23], ids[30:34]]  # the third begins like the first
    answers = torch.tensor([ids[34:41], ids[41:48], ids[48:55], ids[55:62]], device=device)
    asked = Asked.of(answers, torch.arange(7) < torch.tensor([7, 4, 6, 1])[:, None])
    try:
        packed, (ours,) = _read_packed(body, [prompts], asked)
    except torch.OutOfMemoryError:
        raise
    except (CannotPack, RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        return str(error) if isinstance(error, CannotPack) else f"it does not take packed rows ({error!r})"
    if not _windows_as_configured(body.config, packed.scratch.get("windows", [])):
        return "it does not tell its attention about its sliding window"
    plain = read_padded(body, prompts, asked)
    difference = float((ours - plain).float().norm() / plain.float().norm())
    limit = 0.05 if rounds(body) else 2e-3
    return (
        None if difference <= limit else f"packed rows give other hidden states (by {difference:.1e}, allowed {limit})"
    )


def _windows_as_configured(config: Any, seen: list[int | None]) -> bool:
    """A model may keep its window to the mask it builds, which packed rows do not use. Then they would look too far."""
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return [window is not None for window in seen] == [kind == "sliding_attention" for kind in kinds]
    windowed = getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)
    return not windowed or all(window is not None for window in seen)
