"""Cutting a rollout into segments, and the credit of a token within its segment.

All tensors are packed (B, L): see `gear_rl.assignment.rollouts.ActionTokens`. The equations stand together in
`gear_rl.methods.gear`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gear_rl.assignment.rollouts import ActionTokens


@dataclass(frozen=True)
class Segments:
    """A division of each rollout's action tokens into unbroken segments."""

    firsts: Tensor
    """(B, L) bool. b_t: the token begins a segment. True at every rollout's first token, False in the filling."""

    onsets: Tensor
    """(B, L) bool. The token begins an *adaptive* segment, one that a departure from the teacher opened."""

    @cached_property
    def index(self) -> Tensor:
        """(B, L) integer: running count of boundaries, from 1."""
        return self.firsts.cumsum(1)

    @cached_property
    def first_rank(self) -> Tensor:
        """(B, L) integer: where the token's segment begins."""
        ranks = torch.arange(self.firsts.shape[1], device=self.firsts.device)
        return torch.where(self.firsts, ranks, 0).cummax(1).values


# --- where segments begin ---------------------------------------------------------------------------------------------


def peaks(d: Tensor, actions: ActionTokens, tau_kl: float) -> Tensor:
    """(4) o_t: d_t ≥ τ_kl, d_t > d_prev, d_t ≥ d_next within the turn; a missing neighbour is −∞ → (B, L) bool.

    That peaks of the divergence mark onsets is known; this exact rule is ours.
    """
    infinity = float("inf")
    previous = d.roll(1, 1).masked_fill_(actions.turn_starts, -infinity)
    no_next = (actions.turn_starts | ~actions.valid).roll(-1, 1)  # the last column gets the first, always True
    following = d.roll(-1, 1).masked_fill_(no_next, -infinity)
    return (d >= tau_kl) & (d > previous) & (d >= following) & actions.valid


def adaptive(d: Tensor, h: Tensor, actions: ActionTokens, tau_kl: float, tau_h: float) -> Segments:
    """(5) b_t: an onset, or h_t ≥ τ_h, or the first token of a turn.

    That entropy decides the rest of the boundary is known; this exact rule is ours.
    """
    onsets = peaks(d, actions, tau_kl)
    uncertain = (h >= tau_h) & actions.valid
    return Segments(onsets | uncertain | actions.turn_starts, onsets)


def every_token(actions: ActionTokens) -> Segments:
    """Each token is a segment of its own."""
    return Segments(actions.valid, torch.zeros_like(actions.valid))


def whole_rollout(actions: ActionTokens) -> Segments:
    """Each rollout is one segment."""
    firsts = actions.valid.clone()
    firsts[:, 1:] = False
    return Segments(firsts, torch.zeros_like(firsts))


def every_turn(actions: ActionTokens) -> Segments:
    """Each turn is one segment."""
    return Segments(actions.turn_starts, torch.zeros_like(actions.turn_starts))


def fixed_length(actions: ActionTokens, length: int) -> Segments:
    """Segments of `length` tokens, counted from the start of each turn; the last of a turn may be shorter."""
    turn_first = every_turn(actions).first_rank  # (B, L)
    rank_in_turn = torch.arange(turn_first.shape[1], device=turn_first.device) - turn_first
    firsts = (rank_in_turn % length == 0) & actions.valid
    return Segments(firsts, torch.zeros_like(firsts))


def at_cut_points(cut: Tensor, actions: ActionTokens, interval: int) -> Segments:
    """A segment begins at cut points number 1, interval + 1, … of each rollout; `cut` (B, L) bool. What precedes the first
    is a segment too. By SPO's code."""
    cut = cut & actions.valid
    begins = cut & ((cut.cumsum(1) - 1) % interval == 0)
    return Segments(begins | whole_rollout(actions).firsts, torch.zeros_like(cut))


def shuffled_placement(segments: Segments, keys: Tensor, actions: ActionTokens) -> Segments:
    """The same segments (as many, as long, the same ones adaptive) laid end to end in a random order over the rollout.

    `keys` (B, L) holds one random number per token; a segment goes by that of its first token. A segment may now run
    across the end of a turn.
    """
    order = keys.gather(1, segments.first_rank).masked_fill_(~actions.valid, torch.iinfo(keys.dtype).max)
    source = order.argsort(dim=1, stable=True)  # stable: the tokens of a segment stay together and in order
    return Segments(segments.firsts.gather(1, source), segments.onsets.gather(1, source))


# --- what a token is credited with ------------------------------------------------------------------------------------


def departure_credit(d: Tensor, segments: Segments) -> Tensor:
    """(6) c_t = d of the segment's first token if the segment is adaptive, else d_t → (B, L). Known."""
    is_adaptive = segments.onsets.gather(1, segments.first_rank)
    return torch.where(is_adaptive, d.gather(1, segments.first_rank), d)


def first_token_credit(d: Tensor, segments: Segments) -> Tensor:
    """c_t = d of the segment's first token, adaptive or not → (B, L)."""
    return d.gather(1, segments.first_rank)


def largest_credit(d: Tensor, segments: Segments) -> Tensor:
    """c_t = the largest d in the segment → (B, L). For segments that do not begin at a departure."""
    per_segment = d.new_zeros(d.shape[0], d.shape[1] + 1)  # d ≥ 0; column 0 takes what precedes no segment
    return per_segment.scatter_reduce(1, segments.index, d, "amax").gather(1, segments.index)
