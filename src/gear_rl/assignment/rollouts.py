"""What a credit method sees: sampled rollouts, their outcomes, and the signals that scoring added.

Shapes: B rollouts, T token positions, L action tokens in the longest rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from gear_rl.errors import GearError


@dataclass(frozen=True)
class Rollouts:
    """A batch of rollouts. Everything is checked on construction; what does not fit is a `GearError` that names it.

    Positions outside `action_mask` (prompt, tool output, padding) may hold anything, even NaN: no method reads them.
    """

    action_mask: Tensor
    """(B, T) bool. True where the policy sampled the token."""

    rewards: Tensor
    """(B,) float. The outcome of each rollout. NaN: it could not be scored. Such a rollout is left out of every group
    statistic and has advantage 0 on all its tokens."""

    group_ids: Tensor
    """(B,) integer. Rollouts of one prompt share an id. Groups may be in any order and of any size."""

    turn_ids: Tensor | None = None
    """(B, T) integer, not decreasing along a rollout. None: every unbroken run of action tokens is a turn."""

    advantages: Tensor | None = None
    """(B,) float. The group advantage, where an engine has computed it already (across processes). None: by (1)."""

    token_ids: Tensor | None = None
    """(B, T) integer. The tokens themselves. No weight depends on them; they seed the random controls."""

    signals: Mapping[str, Tensor] = field(default_factory=dict)
    """Name → (B, T), real numbers. What scoring (or a task) knows about each token: "reverse_kl", "entropy", ..."""

    channels: Mapping[str, Tensor] = field(default_factory=dict)
    """Name → (B,) float. The parts a reward is made of, as they were before they were added up: "format", "style", ...
    NaN: this part could not be scored."""

    trained: Tensor | None = None
    """(B,) bool. False: the engine will not train on this rollout, such as a truncated one that TRL masks. Its reward, turns
    and signals count in every baseline as any other's; its tokens enter no statistic over tokens, and have advantage 0. None:
    all are trained on."""

    hint_trust: float | None = None
    """How far the hints of the batches so far can be trusted (`gear_rl.assignment.trust`), where an engine remembers it. None:
    this batch is all there is."""

    def __post_init__(self) -> None:
        mask = self.action_mask
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.ndim != 2:
            raise GearError(f"action_mask must be a bool tensor of shape (B, T), got {_describe(mask)}.")
        if mask.numel() == 0:
            raise GearError(f"action_mask is empty: its shape is {tuple(mask.shape)}.")
        per_rollout, per_token = mask.shape[:1], mask.shape
        self._check("rewards", self.rewards, per_rollout, "float", nan=True)
        self._check("group_ids", self.group_ids, per_rollout, "integer")
        if self.turn_ids is not None:
            self._check("turn_ids", self.turn_ids, per_token, "integer")
        if self.advantages is not None:
            self._check("advantages", self.advantages, per_rollout, "float")
        if self.token_ids is not None:
            self._check("token_ids", self.token_ids, per_token, "integer")
        for name, signal in self.signals.items():
            self._check(f"signal {name!r}", signal, per_token, "real")
        for name, channel in self.channels.items():
            self._check(f"channel {name!r}", channel, per_rollout, "float", nan=True)
        if self.trained is not None:
            self._check("trained", self.trained, per_rollout, "bool")
        self._check_turns_in_order()

    @property
    def dtype(self) -> torch.dtype:
        """What credit is computed and returned in: float32, or float64 where any input is float64."""
        given = [self.rewards, self.advantages, *self.signals.values(), *self.channels.values()]
        return torch.float64 if any(x is not None and x.dtype == torch.float64 for x in given) else torch.float32

    @cached_property
    def actions(self) -> ActionTokens:
        """The action tokens alone, side by side."""
        return ActionTokens(self.action_mask, self.turn_ids)

    @cached_property
    def scorable(self) -> Tensor:
        """(B,) bool. False: the reward is NaN, no outcome is known."""
        return ~self.rewards.isnan()

    @cached_property
    def counted(self) -> Tensor:
        """(B,) bool. Scorable, and with action tokens: those that have turns and signals to compare, and can be shown to
        others. Rewards alone are compared over all that are `scorable`, as TRL does."""
        return self.scorable & (self.actions.counts > 0)

    @cached_property
    def credited(self) -> Tensor:
        """(B,) bool. Those whose tokens may have an advantage: scorable, and trained on."""
        return self.scorable if self.trained is None else self.scorable & self.trained

    def _check(self, name: str, value: Tensor, shape: torch.Size, kind: str, nan: bool = False) -> None:
        """Shape, dtype, device and, for floats, finiteness wherever a method will look. `nan`: NaN is allowed."""
        if not isinstance(value, Tensor) or value.shape != shape or not _is_kind(value.dtype, kind):
            raise GearError(f"{name} must be {_KINDS[kind]} tensor of shape {tuple(shape)}, got {_describe(value)}.")
        if value.device != self.action_mask.device:
            raise GearError(f"{name} is on {value.device}, but action_mask is on {self.action_mask.device}.")
        if not value.is_floating_point():
            return
        bad = value.isinf() if nan else ~value.isfinite()
        if value.ndim == 2:
            bad &= self.action_mask
        if bad.any():
            place = bad.nonzero()[0].tolist()
            where = f"rollout {place[0]}" + (f", position {place[1]}" if len(place) == 2 else "")
            must = "it must be finite, or NaN for a rollout that could not be scored" if nan else "it must be finite"
            raise GearError(f"{name} is {value[tuple(place)].item()} at {where}; {must}.")

    def _check_turns_in_order(self) -> None:
        if self.turn_ids is None:
            return
        turns, actions = self.actions.pack(self.turn_ids), self.actions
        back = (turns[:, 1:] < turns[:, :-1]) & actions.valid[:, 1:]
        if back.any():
            row, rank = back.nonzero()[0].tolist()
            position = actions.positions[row, rank + 1].item()
            raise GearError(f"turn_ids go back at rollout {row}, position {position}; a later turn needs a larger id.")


class ActionTokens:
    """The action tokens of a batch, left-aligned: (B, T) → (B, L) and back.

    Every rule of a method is about neighbours, turns, sums and quantiles *over action tokens*. On left-aligned rows
    these are plain row operations, so masked tokens cannot matter, however many there are and wherever they stand.
    """

    def __init__(self, action_mask: Tensor, turn_ids: Tensor | None) -> None:
        self.mask = action_mask  # (B, T)
        self.counts = action_mask.sum(1)  # (B,)  n_i
        longest = max(1, int(self.counts.max()))  # one column is kept where no rollout has any action token
        ranks = torch.arange(longest, device=action_mask.device)
        self.valid = ranks < self.counts[:, None]  # (B, L)  False: filling of a shorter rollout
        # Row by row, the k-th True of the mask and the k-th True of `valid` are the same token.
        columns = action_mask.nonzero()[:, 1]
        self.positions = torch.zeros_like(self.valid, dtype=torch.long).masked_scatter_(self.valid, columns)  # (B, L)
        self._ranks = (action_mask.cumsum(1) - 1).clamp_(min=0)  # (B, T)
        self.turn_starts = self._turn_starts(turn_ids)  # (B, L)  first token of each turn

    def _turn_starts(self, turn_ids: Tensor | None) -> Tensor:
        starts = self.valid.clone()
        if turn_ids is None:  # a turn ends where the run of action tokens breaks
            starts[:, 1:] &= self.positions[:, 1:] != self.positions[:, :-1] + 1
        else:
            turns = self.pack(turn_ids)
            starts[:, 1:] &= turns[:, 1:] != turns[:, :-1]
        return starts

    def pack(self, values: Tensor) -> Tensor:
        """(B, T) → (B, L); the filling is 0."""
        return values.gather(1, self.positions).masked_fill_(~self.valid, 0)

    def unpack(self, packed: Tensor) -> Tensor:
        """(B, L) → (B, T); masked positions are 0."""
        return packed.gather(1, self._ranks).masked_fill_(~self.mask, 0)


_KINDS = {"float": "a floating-point", "integer": "an integer", "real": "a real-valued", "bool": "a bool"}


def _is_kind(dtype: torch.dtype, kind: str) -> bool:
    if kind == "bool":
        return dtype == torch.bool
    if kind == "float":
        return dtype.is_floating_point
    if kind == "integer":
        return not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool
    return not dtype.is_complex


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return type(value).__name__
