"""Fused Triton backend: where it can run, which tiles it takes, and the launches.

Work 4 N D V FLOPs in the matrix units; workspace 24 bytes per token and vocabulary split, under 64 MiB for any N.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.scoring.backends.problem import Problem
from gear_rl.scoring.backends.state import VocabState
from gear_rl.scoring.head import Head

_WORKSPACE = 48 << 20  # more buys nothing: a launch of this size already fills the device for tens of milliseconds
_LOG2E = math.log2(math.e)


@dataclass(frozen=True)
class Tiles:
    """Launch shape. Fixed per device and never tuned at run time: a timing must not decide the last bits of a result."""

    rows: int = 128
    columns: int = 128
    depth: int = 64
    warps: int = 8
    stages: int = 4
    tiles_per_split: int = 12
    group: int = 16
    tma: bool = True
    flatten: bool = False


def why_not(problem: Problem) -> str | None:
    """The reason the kernel cannot run on these inputs, or None."""
    hidden = problem.student_hidden
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    tensors = (hidden, problem.teacher_hidden, problem.student_head.weight, problem.teacher_head.weight)
    if len({t.dtype for t in tensors}) > 1:
        return "student and teacher have different dtypes"
    if any(t.stride(-1) != 1 for t in tensors):
        return "hidden states or head weight are not contiguous along the hidden dimension"
    if hidden.device.type == "cpu":
        return None if os.environ.get("TRITON_INTERPRET") == "1" else "the inputs are on the CPU"
    if not hidden.is_cuda or torch.version.hip is not None:
        return f"it is proven on NVIDIA GPUs only, not on {hidden.device.type}{' (ROCm)' if hidden.is_cuda else ''}"
    if hidden.dtype == torch.float32:
        return "float32 inputs: the matrix units would round them to TF32"
    major, minor = torch.cuda.get_device_capability(hidden.device)
    if major < 8:
        return f"compute capability {major}.{minor} is below 8.0"
    return None


def vocab_state(problem: Problem, tiles: Tiles | None = None) -> VocabState:
    """`tiles` is for benchmarks; by default the device decides."""
    n, forward = problem.student_hidden.shape[0], "forward_kl" in problem.extra
    if problem.student_head.size == 0 or n == 0:
        return VocabState.empty(n, problem.student_hidden.device, forward)
    plan = _Plan.of(problem, tiles)
    fields = 7 if forward else 6
    rows = plan.rows_per_launch(4 * fields * plan.splits)
    out = torch.empty(fields + 2, n, device=problem.student_hidden.device)
    parts = torch.empty(fields * min(rows, n) * plan.splits, device=problem.student_hidden.device)
    slices = 1 << (plan.splits - 1).bit_length()
    tokens = max(1, 512 // slices)  # per program of the merge
    for start in range(0, n, rows):
        block = plan.rows(start, min(start + rows, n))
        plan.kernels.divergence_kernel[block.grid](
            *block.sources(), *block.biases(), parts, *block.numbers(), **block.shape(), **block.flags(),
            FORWARD=forward, FLATTEN=plan.tiles.flatten, num_warps=plan.tiles.warps, num_stages=plan.tiles.stages,
        )  # fmt: skip
        plan.kernels.merge_kernel[(-(-block.n // tokens),)](
            parts, *block.tensors(), *block.biases(), block.problem.token_ids, out[:, start:], *block.numbers(), n,
            BR=tokens, BS=slices, BD=256, FORWARD=forward, **block.flags(), num_warps=4,
        )  # fmt: skip
    return VocabState.unpack(out)


def jensen_shannon(problem: Problem, log_norm_s: Tensor, log_norm_t: Tensor) -> Tensor:
    """This head's part of the Jensen–Shannon divergence (N,): a second pass over the head."""
    n = problem.student_hidden.shape[0]
    total = torch.zeros(n, device=problem.student_hidden.device)
    if problem.student_head.size == 0 or n == 0:
        return total
    plan = _Plan.of(problem)
    rows = plan.rows_per_launch(4 * plan.splits)
    for start in range(0, n, rows):
        block = plan.rows(start, min(start + rows, n))
        parts = torch.empty(block.n, plan.splits, device=total.device)
        plan.kernels.jensen_shannon_kernel[block.grid](
            *block.sources(), *block.biases(), log_norm_s[start:], log_norm_t[start:], parts, *block.numbers(),
            **block.shape(), **block.flags(), num_warps=plan.tiles.warps, num_stages=plan.tiles.stages,
        )  # fmt: skip
        total[start : start + rows] = parts.sum(1)
    return total


def choose_tiles(problem: Problem, interpreted: bool) -> Tiles:
    tensors = (problem.student_hidden, problem.teacher_hidden, problem.student_head.weight, problem.teacher_head.weight)
    # A TMA descriptor wants 16-byte alignment of the first element and of every row.
    aligned = all(t.data_ptr() % 16 == 0 and t.stride(0) * t.element_size() % 16 == 0 for t in tensors)
    has_descriptors = importlib.util.find_spec("triton.tools.tensor_descriptor") is not None
    if interpreted:
        return Tiles(rows=16, columns=64, depth=32, warps=4, stages=2, tiles_per_split=3, group=2, tma=aligned)
    major, shared_memory = _device_limits(problem.student_hidden.device)
    if major >= 9 and aligned and has_descriptors and shared_memory >= 200 << 10:
        return Tiles(stages=4 if problem.shared else 3)
    return Tiles(depth=32, stages=3 if problem.shared else 2, tma=False)


@functools.cache
def _device_limits(device: torch.device) -> tuple[int, int]:
    """(compute capability's major number, shared memory a block may take)."""
    properties = torch.cuda.get_device_properties(device)
    return properties.major, getattr(properties, "shared_memory_per_block_optin", 48 << 10)


@dataclass(frozen=True)
class _Plan:
    """A problem with its launch shape, and the arguments that the kernels share."""

    problem: Problem
    tiles: Tiles
    kernels: ModuleType

    @classmethod
    def of(cls, problem: Problem, tiles: Tiles | None = None) -> _Plan:
        from gear_rl.scoring.backends import kernels

        if kernels.INTERPRETED and problem.student_hidden.dtype == torch.bfloat16:
            # Triton's interpreter multiplies bf16 bit patterns as if they were integers. The values survive in float32.
            student_head = replace(problem.student_head, weight=problem.student_head.weight.float())
            teacher_head = replace(problem.teacher_head, weight=problem.teacher_head.weight.float())
            problem = replace(
                problem,
                student_hidden=problem.student_hidden.float(),
                teacher_hidden=problem.teacher_hidden.float(),
                student_head=student_head,
                teacher_head=student_head if problem.shared else teacher_head,
            )
        return cls(problem, tiles or choose_tiles(problem, kernels.INTERPRETED), kernels)

    def rows(self, start: int, stop: int) -> _Plan:
        return replace(self, problem=self.problem.rows(start, stop))

    @property
    def n(self) -> int:
        return self.problem.student_hidden.shape[0]

    @property
    def heads(self) -> tuple[Head, Head]:
        return self.problem.student_head, self.problem.teacher_head

    @property
    def splits(self) -> int:
        """Parts of the vocabulary that programs work on side by side; it does not depend on N."""
        return -(-self.problem.student_head.size // (self.tiles.columns * self.tiles.tiles_per_split))

    @property
    def grid(self) -> tuple[int]:
        return (-(-self.n // self.tiles.rows) * self.splits,)

    def rows_per_launch(self, bytes_per_row: int) -> int:
        """Tokens whose partial states fit the workspace, in whole token blocks."""
        blocks = min(self.problem.workspace, _WORKSPACE) // (bytes_per_row * self.tiles.rows)
        if blocks == 0:
            raise GearError(
                f"workspace of {self.problem.workspace:,} bytes is too small: the fused backend works on blocks of "
                f"{self.tiles.rows} rows and needs {bytes_per_row * self.tiles.rows:,} bytes for one of this vocabulary. "
                "Raise `workspace` (the default is 256 MiB)."
            )
        return self.tiles.rows * (blocks - blocks % 4 if blocks > 4 else blocks)

    def tensors(self) -> list[Tensor]:
        return [self.problem.student_hidden, self.problem.teacher_hidden, *(h.weight[: h.size] for h in self.heads)]

    def sources(self) -> list[Any]:
        """Hidden states and weights as the products read them: TMA descriptors, or the tensors themselves."""
        if not self.tiles.tma:
            return list(self.tensors())
        from triton.tools.tensor_descriptor import TensorDescriptor

        heights = (self.tiles.rows, self.tiles.rows, self.tiles.columns, self.tiles.columns)
        return [
            TensorDescriptor.from_tensor(tensor, [height, self.tiles.depth])
            for tensor, height in zip(self.tensors(), heights, strict=True)
        ]

    def biases(self) -> list[Tensor]:
        return [h.weight if h.bias is None else h.bias for h in self.heads]  # the weight stands in and is never read

    def numbers(self) -> list[float]:
        """n, vocab, width, four row strides, splits; then per side the inner and outer factor of `_shape_logits`."""
        numbers: list[float] = [self.n, self.heads[0].size, self.heads[0].width]
        numbers += [*(tensor.stride(0) for tensor in self.tensors()), self.splits]
        for head in self.heads:
            capped = head.softcap is not None
            numbers.append(2.0 * _LOG2E * head.scale / head.softcap if capped else 0.0)
            numbers.append(_LOG2E * (head.softcap if capped else head.scale) / self.problem.temperature)
        return numbers

    def shape(self) -> dict[str, Any]:
        return {
            "BM": self.tiles.rows,
            "BN": self.tiles.columns,
            "BK": self.tiles.depth,
            "TILES": self.tiles.tiles_per_split,
            "GROUP": self.tiles.group,
            "SHARED": self.problem.shared,
            "TMA": self.tiles.tma,
            "RAGGED": self.problem.student_head.size % self.tiles.columns != 0,
        }

    def flags(self) -> dict[str, bool]:
        student, teacher = self.heads
        return {
            "HAS_BIAS_S": student.bias is not None,
            "HAS_BIAS_T": teacher.bias is not None,
            "CAPPED_S": student.softcap is not None,
            "CAPPED_T": teacher.softcap is not None,
        }
