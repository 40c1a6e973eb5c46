"""Fused Triton backend: where it can run, which tiles it takes, and the launches.

Work 4 N D V FLOPs in the matrix units; workspace 24 bytes per token and vocabulary split, under 64 MiB for any N.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
from dataclasses import dataclass
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


def vocab_state(problem: Problem) -> VocabState:
    n, forward = problem.student_hidden.shape[0], "forward_kl" in problem.extra
    device = problem.student_hidden.device
    if problem.student_head.size == 0 or n == 0:
        return VocabState.empty(n, device, forward)
    kernels, problem, tiles = _prepare(problem)
    fields, splits = (7 if forward else 6), _splits(problem, tiles)
    out = torch.empty(fields + 2, n, device=device)
    rows = _rows_per_launch(problem, tiles, 4 * fields * splits)
    parts = torch.empty(fields * min(rows, n) * splits, device=device)
    slices = 1 << (splits - 1).bit_length()
    for start in range(0, n, rows):
        block = problem.rows(start, min(start + rows, n))
        size = block.student_hidden.shape[0]
        tensors, numbers, flags = _arguments(block)
        grid = (-(-size // tiles.rows) * splits,)
        kernels.divergence_kernel[grid](
            *_sources(block, tiles), *tensors[4:], parts, *numbers, **_blocks(block, tiles), **flags,
            FORWARD=forward, FLATTEN=tiles.flatten, num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
        per_program = max(1, 512 // slices)
        kernels.merge_kernel[(-(-size // per_program),)](
            parts, *tensors, block.token_ids, out[:, start:], *numbers, n,
            BR=per_program, BS=slices, BD=256, FORWARD=forward, **flags, num_warps=4,
        )  # fmt: skip
    return VocabState.unpack(out)


def jensen_shannon(problem: Problem, log_norm_s: Tensor, log_norm_t: Tensor) -> Tensor:
    """This head's part of the Jensen–Shannon divergence (N,): a second pass over the head."""
    n, device = problem.student_hidden.shape[0], problem.student_hidden.device
    total = torch.zeros(n, device=device)
    if problem.student_head.size == 0 or n == 0:
        return total
    kernels, problem, tiles = _prepare(problem)
    splits = _splits(problem, tiles)
    rows = _rows_per_launch(problem, tiles, 4 * splits)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        block = problem.rows(start, stop)
        tensors, numbers, flags = _arguments(block)
        parts = torch.empty(stop - start, splits, device=device)
        kernels.jensen_shannon_kernel[(-(-(stop - start) // tiles.rows) * splits,)](
            *_sources(block, tiles), *tensors[4:], log_norm_s[start:stop], log_norm_t[start:stop], parts, *numbers,
            **_blocks(block, tiles), **flags, num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
        total[start:stop] = parts.sum(1)
    return total


def _prepare(problem: Problem) -> tuple[ModuleType, Problem, Tiles]:
    from gear_rl.scoring.backends import kernels

    if kernels.INTERPRETED and problem.student_hidden.dtype == torch.bfloat16:
        # Triton's interpreter multiplies bf16 bit patterns as if they were integers; the values survive in float32.
        heads = {id(h): Head(h.weight.float(), h.bias, h.scale, h.softcap, h.vocab_size) for h in _heads(problem)}
        problem = Problem(
            problem.student_hidden.float(),
            problem.teacher_hidden.float(),
            heads[id(problem.student_head)],
            heads[id(problem.teacher_head)],
            problem.token_ids,
            problem.temperature,
            problem.workspace,
            problem.extra,
        )
    return kernels, problem, choose_tiles(problem, kernels.INTERPRETED)


def choose_tiles(problem: Problem, interpreted: bool) -> Tiles:
    tensors = (problem.student_hidden, problem.teacher_hidden, *(h.weight for h in _heads(problem)))
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


def _splits(problem: Problem, tiles: Tiles) -> int:
    return -(-problem.student_head.size // (tiles.columns * tiles.tiles_per_split))


def _rows_per_launch(problem: Problem, tiles: Tiles, bytes_per_row: int) -> int:
    """Tokens whose partial states fit the workspace: a multiple of four token blocks where possible."""
    budget = min(problem.workspace, _WORKSPACE)
    blocks = budget // (bytes_per_row * tiles.rows)
    if blocks == 0:
        raise GearError(
            f"workspace of {problem.workspace:,} bytes is too small for one block of {tiles.rows} rows: the fused backend "
            f"needs {bytes_per_row * tiles.rows:,} bytes for this vocabulary. Raise `workspace` (the default is 256 MiB)."
        )
    return tiles.rows * (blocks - blocks % 4 if blocks > 4 else blocks)


def _heads(problem: Problem) -> tuple[Head, Head]:
    return problem.student_head, problem.teacher_head


def _arguments(problem: Problem) -> tuple[list[Tensor], list[float], dict[str, bool]]:
    """(tensors, numbers, constexpr flags) in the order the kernels share."""
    tensors = [problem.student_hidden, problem.teacher_hidden, *(h.weight for h in _heads(problem))]
    biases = [h.weight if h.bias is None else h.bias for h in _heads(problem)]  # a stand-in that is never read
    splits_later = _splits(problem, choose_tiles(problem, _interpreted()))
    numbers: list[float] = [problem.student_hidden.shape[0], problem.student_head.size, problem.student_head.width]
    numbers += [t.stride(0) for t in tensors] + [splits_later]
    for head in _heads(problem):
        if head.softcap is None:
            numbers += [0.0, _LOG2E * head.scale / problem.temperature]
        else:
            numbers += [2.0 * _LOG2E * head.scale / head.softcap, _LOG2E * head.softcap / problem.temperature]
    flags = {}
    for side, head in zip("ST", _heads(problem), strict=True):
        flags |= {f"HAS_BIAS_{side}": head.bias is not None, f"CAPPED_{side}": head.softcap is not None}
    return tensors + biases, numbers, flags


def _interpreted() -> bool:
    from gear_rl.scoring.backends import kernels

    return kernels.INTERPRETED


def _sources(problem: Problem, tiles: Tiles) -> list[Any]:
    """Hidden states and weights as the kernel reads them: TMA descriptors or plain tensors."""
    hidden = [problem.student_hidden, problem.teacher_hidden]
    weights = [h.weight[: h.size] for h in _heads(problem)]
    if not tiles.tma:
        return hidden + weights
    from triton.tools.tensor_descriptor import TensorDescriptor

    return [
        *(TensorDescriptor.from_tensor(t, [tiles.rows, tiles.depth]) for t in hidden),
        *(TensorDescriptor.from_tensor(t, [tiles.columns, tiles.depth]) for t in weights),
    ]


def _blocks(problem: Problem, tiles: Tiles) -> dict[str, Any]:
    return {
        "BM": tiles.rows,
        "BN": tiles.columns,
        "BK": tiles.depth,
        "TILES": tiles.tiles_per_split,
        "GROUP": tiles.group,
        "SHARED": problem.shared,
        "TMA": tiles.tma,
        "RAGGED": problem.student_head.size % tiles.columns != 0,
    }
