"""A teacher with weights of its own, kept by each worker as a copy of its shard: `sync`, `ema` and `base`.

As `gear_rl.scoring.teacher.Teacher`, but of parameters that FSDP2 has sharded: contents are exchanged in place, since FSDP2
gathers from the storage it knows. Costs one copy of the trainable part of the shard per worker (of LoRA's a few megabytes).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from gear_rl.errors import GearError
from gear_rl.scoring.teacher import copying


class ShardTeacher:
    def __init__(self, module: nn.Module, kind: str, every: int, decay: float) -> None:
        self.module, self.kind, self.every, self.decay = module, kind, every, decay
        self.steps = 0
        """Optimizer steps seen."""
        with copying(kind, module):
            self._shadow = {name: shard.clone() for name, shard in self._shards()}

    def _shards(self) -> Iterator[tuple[str, Tensor]]:
        """Asked for each time: offloading moves them, and after a forward FSDP2 holds the root's gathered, which would be
        stale copies of what is exchanged."""
        for part in self.module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                data = parameter.detach()
                yield name, data.to_local() if hasattr(data, "to_local") else data

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the module's weights are the teacher's."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, shard in self._shards():
            kept = shard.clone()
            shard.copy_(self._shadow[name])
            self._shadow[name].copy_(kept)

    @torch.no_grad()
    def after_step(self) -> None:
        self.steps += 1
        if self.kind == "ema":
            for name, shard in self._shards():
                self._shadow[name].lerp_(shard.to(self._shadow[name].device), self.decay)
        elif self.kind == "sync" and self.steps % self.every == 0:
            for name, shard in self._shards():
                self._shadow[name].copy_(shard)

    def save(self, path: Path) -> None:
        cpu = {name: shadow.cpu().contiguous() for name, shadow in self._shadow.items()}
        save_file(cpu, path, metadata={"kind": self.kind, "steps": str(self.steps)})

    def load(self, path: Path) -> None:
        if not path.is_file():
            raise GearError(
                f"the checkpoint has no {path.name}, so the {self.kind!r} teacher cannot go on from it. It was written by "
                "another engine, with another number of workers, or with gear.teacher=live."
            )
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("kind") != self.kind or set(file.keys()) != set(self._shadow):
                raise GearError(f"{path} holds a {metadata.get('kind')!r} teacher; this run has a {self.kind!r} one.")
            for name in self._shadow:
                self._shadow[name].copy_(file.get_tensor(name))
            self.steps = int(metadata["steps"])
