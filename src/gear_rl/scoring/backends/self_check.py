"""The proof that `gear doctor` prints: the backend chosen on a device against the naive reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from gear_rl.scoring import backends
from gear_rl.scoring.backends.problem import Problem
from gear_rl.scoring.head import Head


@dataclass(frozen=True)
class SelfCheck:
    device: str
    backend: str
    """what "auto" chooses on this device"""
    fallback: str | None
    """why the fused kernel is not used, or None"""
    max_errors: dict[str, float]
    """largest absolute difference from the naive reference per number, in nats"""
    limit: float = 2e-4

    @property
    def passed(self) -> bool:
        return all(error <= self.limit for error in self.max_errors.values())


def self_check(device: torch.device | str = "cpu", dtype: torch.dtype | None = None) -> SelfCheck:
    """Runs the backend that "auto" chooses on `device` and the naive reference on the same random inputs."""
    device = torch.device(device)
    dtype = dtype or (torch.float32 if device.type == "cpu" else torch.bfloat16)
    draw = torch.Generator().manual_seed(0)
    # Ragged on purpose: no dimension is a multiple of a tile, and the vocabulary takes several tiles and splits.
    n, width, vocab = 193, 200, 5003
    student = torch.randn(n, width, generator=draw)
    teacher = student + torch.logspace(-2, 0, n)[:, None] * torch.randn(n, width, generator=draw)
    weight = torch.randn(vocab, width, generator=draw) * 3.5 / math.sqrt(width)
    student, teacher, weight = (t.to(device, dtype) for t in (student, teacher, weight))
    head = Head(weight, vocab_size=vocab - 3)
    ids = torch.randint(head.size, (n,), generator=draw).to(device)
    problem = Problem(student, teacher, head, head, ids, temperature=0.9, workspace=64 << 20)
    chosen, fallback = backends.choose(problem)
    fast = backends.divergence(problem, chosen).items()
    twin = backends.divergence(problem, "naive").items()
    return SelfCheck(str(device), chosen, fallback, {k: float((fast[k] - twin[k]).abs().max()) for k in twin})
