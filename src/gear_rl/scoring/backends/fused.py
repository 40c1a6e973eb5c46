"""Fused Triton backend: where it can run, which tiles it takes, and the launches.

Work 4 N D V FLOPs in the matrix units; workspace under 64 MiB for any N.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import math
import os
from dataclasses import dataclass, replace
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
    """Launch shape. Fixed per device and never tuned at run time: a timing must not decide the last bits of a result.

    A tile is `rows` tokens by `columns` vocabulary entries, `depth` at a time. One program has `per_split` tiles of the
    vocabulary, whatever N, so a token's bits do not depend on its batch; `group` token blocks walk through it side by side.
    `hopper`: `kernels_hopper` instead of `kernels`, whose tiles are 192 × 128 × 64, its warps and stages its own.
    """

    hopper: bool = False
    tma: bool = True
    rows: int = 128
    columns: int = 128
    depth: int = 64
    warps: int = 8
    stages: int = 4
    per_split: int = 12
    group: int = 16


def why_not(problem: Problem) -> str | None:
    """The reason the kernel cannot run on these inputs, or None."""
    hidden = problem.student_hidden
    if not _has("triton"):
        return "Triton is not installed"
    tensors = (hidden, problem.teacher_hidden, problem.student_head.weight, problem.teacher_head.weight)
    if len({t.dtype for t in tensors}) > 1:
        return "student and teacher have different dtypes"
    if hidden.shape[1] != problem.teacher_hidden.shape[1]:
        return "student and teacher have different hidden sizes"
    if any(t.stride(-1) != 1 for t in tensors):
        return "hidden states or head weight are not contiguous along the hidden dimension"
    if hidden.device.type == "cpu":
        return None if os.environ.get("TRITON_INTERPRET") == "1" else "the inputs are on the CPU"
    if not hidden.is_cuda or torch.version.hip is not None:
        return f"it is proven on NVIDIA GPUs only, not on {hidden.device.type}{' (ROCm)' if hidden.is_cuda else ''}"
    if hidden.dtype == torch.float32:
        return "float32 inputs: the matrix units would round them to TF32"
    if (major := _device_limits(hidden.device)[0]) < 8:
        return f"compute capability {major}.x is below 8.0"
    return None


def vocab_state(problem: Problem, tiles: Tiles | None = None) -> VocabState:
    """`tiles` is for benchmarks; by default the device decides."""
    with _current(problem.student_hidden.device):
        return _vocab_state(problem, tiles)


def jensen_shannon(problem: Problem, log_norm_s: Tensor, log_norm_t: Tensor) -> Tensor:
    """This head's part of the Jensen–Shannon divergence (N,): a second pass over the head."""
    with _current(problem.student_hidden.device):
        return _jensen_shannon(problem, log_norm_s, log_norm_t)


def _current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be the one that holds the tensors."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _vocab_state(problem: Problem, tiles: Tiles | None) -> VocabState:
    n, device, forward = problem.student_hidden.shape[0], problem.student_hidden.device, "forward_kl" in problem.extra
    if problem.student_head.size == 0 or n == 0:
        return VocabState.empty(n, device, forward)
    from gear_rl.scoring.backends import kernels

    launch = _Launch.of(problem, kernels.INTERPRETED, tiles)
    tiles, splits, fields = launch.tiles, launch.splits, 7 if forward else 6
    rows = launch.rows_each(bytes_per_row=4 * fields * splits)
    out = torch.empty(fields + 2, n, device=device)
    parts = torch.empty(fields * min(rows, n) * splits, device=device)
    slices = 1 << (splits - 1).bit_length()
    merged = max(1, 512 // slices)  # tokens per program of the merge
    for start in range(0, n, rows):
        block = launch.rows(start, min(start + rows, n))
        if tiles.hopper:
            block.run_on_hopper(parts)
        else:
            kernels.divergence_kernel[(block.programs,)](
                *block.sources(), *block.biases(), parts, *block.numbers(), **block.flags(), FORWARD=forward,
                num_warps=tiles.warps, num_stages=tiles.stages,
            )  # fmt: skip
        kernels.merge_kernel[(-(-block.n // merged),)](
            parts, out[:, start:], block.n, splits, n, BR=merged, BS=slices, FORWARD=forward, num_warps=4
        )
    for side, (hidden, head) in enumerate(launch.sides):
        kernels.target_kernel[(-(-n // 64),)](
            hidden, head.weight, head.weight if head.bias is None else head.bias, launch.problem.token_ids, out[6 + side],
            n, head.size, head.width, hidden.stride(0), head.weight.stride(0), *launch.factors(head),
            BM=64, BK=64, HAS_BIAS=head.bias is not None, CAPPED=head.softcap is not None, num_warps=4,
        )  # fmt: skip
    return VocabState.unpack(out)


def _jensen_shannon(problem: Problem, log_norm_s: Tensor, log_norm_t: Tensor) -> Tensor:
    n = problem.student_hidden.shape[0]
    total = torch.zeros(n, device=problem.student_hidden.device)
    if problem.student_head.size == 0 or n == 0:
        return total
    from gear_rl.scoring.backends import kernels, kernels_mixture

    launch = _Launch.of(problem, kernels.INTERPRETED, choose_tiles(problem, kernels.INTERPRETED, portable=True))
    rows = launch.rows_each(bytes_per_row=4 * launch.splits)
    for start in range(0, n, rows):
        block = launch.rows(start, min(start + rows, n))
        parts = torch.empty(block.n, launch.splits, device=total.device)
        kernels_mixture.jensen_shannon_kernel[(block.programs,)](
            *block.sources(), *block.biases(), log_norm_s[start:], log_norm_t[start:], parts, *block.numbers(),
            **block.flags(), num_warps=launch.tiles.warps, num_stages=launch.tiles.stages,
        )  # fmt: skip
        total[start : start + rows] = parts.sum(1)
    return total


def choose_tiles(problem: Problem, interpreted: bool, portable: bool = False) -> Tiles:
    """`portable`: not those of `kernels_hopper`."""
    tensors = (problem.student_hidden, problem.teacher_hidden, problem.student_head.weight, problem.teacher_head.weight)
    # A TMA descriptor wants 16-byte alignment of the first element and of every row.
    tma = all(t.data_ptr() % 16 == 0 and t.stride(0) * t.element_size() % 16 == 0 for t in tensors)
    if interpreted:
        return Tiles(rows=16, columns=32, depth=32, warps=4, stages=2, per_split=3, group=2, tma=tma)
    major, shared_memory = _device_limits(problem.student_hidden.device)
    if tma and major >= 9 and shared_memory >= 200 << 10 and _has("triton.tools.tensor_descriptor"):
        heads = problem.student_head, problem.teacher_head
        plain = "forward_kl" not in problem.extra and all(h.bias is None and h.softcap is None for h in heads)
        if plain and not portable and major == 9 and _gluon():
            return Tiles(rows=192, per_split=9, group=8, hopper=True)
        return Tiles(stages=4, group=16) if problem.shared else Tiles(stages=3, group=8)
    # Separate heads load four tiles a step instead of three: smaller ones, or the registers spill.
    return Tiles(rows=128 if problem.shared else 64, depth=32, stages=3, tma=False)


@functools.cache
def _gluon() -> bool:
    """Whether this Triton has the Gluon that `kernels_hopper` is written in."""
    import triton

    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    return version >= (3, 6) and _has("triton.experimental.gluon")


@functools.cache
def _device_limits(device: torch.device) -> tuple[int, int]:
    """(compute capability's major number, bytes of shared memory a block may take)."""
    properties = torch.cuda.get_device_properties(device)
    return properties.major, getattr(properties, "shared_memory_per_block_optin", 48 << 10)


@functools.cache
def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@dataclass(frozen=True)
class _Launch:
    """A problem with its launch shape, and the arguments that the kernels share."""

    problem: Problem
    tiles: Tiles

    @classmethod
    def of(cls, problem: Problem, interpreted: bool, tiles: Tiles | None = None) -> _Launch:
        if interpreted and problem.student_hidden.dtype == torch.bfloat16:
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
        return cls(problem, tiles or choose_tiles(problem, interpreted))

    def rows(self, start: int, stop: int) -> _Launch:
        return _Launch(self.problem.rows(start, stop), self.tiles)

    @property
    def n(self) -> int:
        return self.problem.student_hidden.shape[0]

    @property
    def sides(self) -> tuple[tuple[Tensor, Head], tuple[Tensor, Head]]:
        problem = self.problem
        return (problem.student_hidden, problem.student_head), (problem.teacher_hidden, problem.teacher_head)

    @property
    def splits(self) -> int:
        """Parts of the vocabulary that programs work on side by side."""
        return -(-self.problem.student_head.size // (self.tiles.columns * self.tiles.per_split))

    @property
    def programs(self) -> int:
        return -(-self.n // self.tiles.rows) * self.splits

    def rows_each(self, bytes_per_row: int) -> int:
        """Tokens per launch: as few launches as the workspace allows, about equal, in whole groups of four blocks."""
        unit = self.tiles.rows * bytes_per_row
        blocks = min(self.problem.workspace, _WORKSPACE) // unit
        if blocks < 1:
            raise GearError(
                f"workspace of {self.problem.workspace:,} bytes is too small: the fused backend works on blocks of "
                f"{self.tiles.rows} rows and needs {unit:,} bytes for one. Raise `workspace` (the default is 256 MiB)."
            )
        blocks = blocks - blocks % 4 if blocks > 4 else blocks
        needed = -(-self.n // self.tiles.rows)
        launches = -(-needed // blocks)
        return self.tiles.rows * min(blocks, -(-needed // launches // 4) * 4)

    def sources(self) -> list[Any]:
        """Hidden states and weights as the products read them: TMA descriptors, or the tensors themselves."""
        hidden = [hidden for hidden, _ in self.sides]
        weights = [head.weight[: head.size] for _, head in self.sides]
        if not self.tiles.tma:
            return hidden + weights
        from triton.tools.tensor_descriptor import TensorDescriptor

        rows, columns, depth = self.tiles.rows, self.tiles.columns, self.tiles.depth
        return [TensorDescriptor.from_tensor(t, [rows, depth]) for t in hidden] + [
            TensorDescriptor.from_tensor(t, [columns, depth]) for t in weights
        ]

    def run_on_hopper(self, parts: Tensor) -> None:
        from triton.experimental.gluon import language as gl
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        from gear_rl.scoring.backends import kernels_hopper as kernels

        def described(tensor: Tensor, rows: int) -> TensorDescriptor:
            shape = [rows, kernels.BK.value]
            dtype = gl.bfloat16 if tensor.dtype == torch.bfloat16 else gl.float16
            return TensorDescriptor.from_tensor(tensor, shape, gl.NVMMASharedLayout.get_default_for(shape, dtype))

        head, device = self.problem.student_head, self.problem.student_hidden.device
        programs = min(self.programs, torch.cuda.get_device_properties(device).multi_processor_count)
        kernels.divergence_kernel[(programs,)](
            *(described(hidden, kernels.BM.value) for hidden, _ in self.sides),
            *(described(head.weight[: head.size], kernels.BN.value) for _, head in self.sides),
            parts, self.n, head.size, head.width, self.splits, self.tiles.per_split, self.tiles.group,
            *(self.factors(head)[1] for _, head in self.sides),
            SHARED=self.problem.shared, RAGGED=head.size % kernels.BN.value != 0, num_warps=4,
        )  # fmt: skip

    def biases(self) -> list[Tensor]:
        """Where there is none, the weight stands in; it is not read."""
        return [head.weight if head.bias is None else head.bias for _, head in self.sides]

    def factors(self, head: Head) -> tuple[float, float]:
        """(inner, outer) of `shape_logits`."""
        if head.softcap is None:
            return 0.0, _LOG2E * head.scale / self.problem.temperature
        return 2 * _LOG2E * head.scale / head.softcap, _LOG2E * head.softcap / self.problem.temperature

    def numbers(self) -> list[float]:
        """n, vocab, width, four row strides, splits, and both sides' factors."""
        head = self.problem.student_head
        strides = [hidden.stride(0) for hidden, _ in self.sides] + [head.weight.stride(0) for _, head in self.sides]
        factors = [factor for _, head in self.sides for factor in self.factors(head)]
        return [self.n, head.size, head.width, *strides, self.splits, *factors]

    def flags(self) -> dict[str, Any]:
        """The constexpr arguments that the big kernels share."""
        student, teacher = self.problem.student_head, self.problem.teacher_head
        return {
            "BM": self.tiles.rows,
            "BN": self.tiles.columns,
            "BK": self.tiles.depth,
            "TILES": self.tiles.per_split,
            "GROUP": self.tiles.group,
            "SHARED": self.problem.shared,
            "TMA": self.tiles.tma,
            "RAGGED": student.size % self.tiles.columns != 0,
            "HAS_BIAS_S": student.bias is not None,
            "HAS_BIAS_T": teacher.bias is not None,
            "CAPPED_S": student.softcap is not None,
            "CAPPED_T": teacher.softcap is not None,
        }
