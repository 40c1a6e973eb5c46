"""The teacher: the same model with other weights, or the same ones. It never holds a second model.

Kinds (ours; GEAR's own choice is not visible, RLSD syncs every 20 steps, SDPO uses an EMA of 0.05, OPSD the start):

    live   the policy as it is now
    sync   the policy as it was at the last multiple of `every` optimizer steps
    ema    a running average: teacher ← (1 − decay) teacher + decay policy, after every optimizer step
    base   the policy as it was when training began (with LoRA: the adapters as they began, which do nothing)

All but `live` keep a *shadow* of the trainable parameters and swap it in for the teacher's forward. With LoRA that is a few
megabytes; with full training one copy of the weights, which any teacher but `live` must cost. Of sharded weights a process
keeps the shadow of its own shards only. They exist once the engine has sharded the model, so the shadow is then taken at
the first use (`begin`), which must come before the first optimizer step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from gear_rl.errors import GearError, unknown_name
from gear_rl.scoring.weights import Weights

KINDS = ("live", "sync", "ema", "base")


@contextmanager
def copying(kind: str, model: nn.Module) -> Iterator[None]:
    """Around the copy that a teacher with weights of its own takes: where it does not fit, says what would."""
    try:
        yield
    except torch.OutOfMemoryError:
        trained = [p for p in model.parameters() if p.requires_grad]
        size = sum(getattr(p, "ds_numel", p.numel()) * p.element_size() for p in trained) / 1e9  # ZeRO-3 empties them
        raise GearError(
            f"the {kind!r} teacher keeps a copy of the trainable weights ({size:.1f} GB, divided by the number of processes "
            "that share them), which does not fit beside the model. What would: teacher=live, which keeps none; LoRA, whose "
            "copy takes megabytes; or more processes, with FSDP2 or ZeRO-3. `gear plan` computes it."
        ) from None


class Teacher:
    """The policy with other weights, or with its own.

    Args:
        model: The policy, or its weights.
        kind: live (as it is now), sync (a copy made every so many steps), ema (a running average) or base (as it began).
        every: Optimizer steps between two copies, for sync.
        decay: Share of the policy in each update of the average, for ema.
    """

    def __init__(self, model: nn.Module | Weights, kind: str = "live", every: int = 20, decay: float = 0.05) -> None:
        if kind not in KINDS:
            raise unknown_name("teacher", kind, KINDS)
        if every < 1:
            raise GearError(f"teacher_every must be at least 1 optimizer step; got {every}.")
        if not 0.0 < decay <= 1.0:
            raise GearError(f"teacher_decay must lie in (0, 1]; got {decay}.")
        self.kind, self.every, self.decay = kind, every, decay
        self._weights: Weights | None = None if kind == "live" else Weights.of(model)
        self._shadow: dict[str, Tensor] = {}
        self._taken_as = ""
        if self._weights is not None and self._weights.ready:
            self.begin()

    def begin(self) -> None:
        """Take the shadow, unless that is done."""
        if self._weights is None:
            return
        if not self._weights.ready:
            raise GearError(f"the {self.kind!r} teacher was asked for before the engine had sharded the model.")
        if not self._taken_as:
            with copying(self.kind, self._weights.model):
                self._taken_as, self._shadow = self._weights.layout.name, self._weights.shards()
        if self._taken_as != self._weights.layout.name:
            raise GearError(
                f"the {self.kind!r} teacher's weights were taken while the model was {self._taken_as}, and it is "
                f"{self._weights.layout.name} now: shard the model before its teacher is first used."
            )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model *is* the teacher."""
        self.begin()
        if self._weights is None:
            yield
            return
        with self._weights.swapped(self._shadow):
            yield

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Call after optimizer step number `step` (counted from 1)."""
        if self._weights is None or self.kind == "base":
            return
        self.begin()
        for name, kept in self._shadow.items():
            if self.kind == "ema":
                kept.lerp_(self._weights.layout.shard(name), self.decay)
            elif step % self.every == 0:
                kept.copy_(self._weights.layout.shard(name))

    def state(self, keep: bool = True) -> dict[str, Tensor]:
        """What a checkpoint must keep: whole tensors, whatever the shards. All processes call it; those that do not `keep`
        the result only take part."""
        self.begin()
        if self._weights is None:
            return {}
        whole = {}
        for name, kept in self._shadow.items():
            gathered = self._weights.layout.gathered(name, kept)
            if keep:
                whole[name] = gathered.cpu() if self._weights.sharded else gathered
        return whole

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.begin()
        if state.keys() != self._shadow.keys():
            raise GearError(f"the checkpoint's teacher has other parameters than this {self.kind!r} teacher.")
        for name, value in state.items():
            assert self._weights is not None
            self._shadow[name].copy_(self._weights.layout.part(name, value))
