"""The teacher: the same model with other weights, or the same ones. It never holds a second model.

Kinds (ours; GEAR's own choice is not visible, RLSD syncs every 20 steps, SDPO uses an EMA of 0.05, OPSD the start):

    live   the policy as it is now
    sync   the policy as it was at the last multiple of `every` optimizer steps
    ema    a running average: teacher ← (1 − decay) teacher + decay policy, after every optimizer step
    base   the policy as it was when training began (with LoRA: the adapters as they began, which do nothing)

All but `live` keep a *shadow* of the trainable parameters and swap it in, pointer by pointer, for the teacher's forward.
With LoRA that is a few megabytes; with full training one copy of the weights, which any teacher but `live` must cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from gear_rl.errors import GearError, unknown_name

KINDS = ("live", "sync", "ema", "base")


class Teacher:
    """The policy with other weights, or with its own.

    Args:
        model: The policy.
        kind: live (as it is now), sync (a copy made every so many steps), ema (a running average) or base (as it began).
        every: Optimizer steps between two copies, for sync.
        decay: Share of the policy in each update of the average, for ema.
    """

    def __init__(self, model: nn.Module, kind: str = "live", every: int = 20, decay: float = 0.05) -> None:
        if kind not in KINDS:
            raise unknown_name("teacher", kind, KINDS)
        if every < 1:
            raise GearError(f"teacher_every must be at least 1 optimizer step; got {every}.")
        if not 0.0 < decay <= 1.0:
            raise GearError(f"teacher_decay must lie in (0, 1]; got {decay}.")
        self.kind, self.every, self.decay = kind, every, decay
        self._parameters = {} if kind == "live" else {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._shadow = {name: p.detach().clone() for name, p in self._parameters.items()}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model *is* the teacher."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, parameter in self._parameters.items():
            parameter.data, self._shadow[name] = self._shadow[name], parameter.data

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Call after optimizer step number `step` (counted from 1)."""
        if self.kind == "ema":
            for name, parameter in self._parameters.items():
                self._shadow[name].lerp_(parameter.detach(), self.decay)
        elif self.kind == "sync" and step % self.every == 0:
            for name, parameter in self._parameters.items():
                self._shadow[name].copy_(parameter.detach())

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must keep."""
        return dict(self._shadow)

    def load_state(self, state: dict[str, Tensor]) -> None:
        if state.keys() != self._shadow.keys():
            raise GearError(f"the checkpoint's teacher has other parameters than this {self.kind!r} teacher.")
        for name, value in state.items():
            self._shadow[name].copy_(value)
