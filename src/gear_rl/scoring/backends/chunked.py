"""Chunked torch: the streaming state over tiles of tokens × vocabulary, on CPU and on any GPU, in bounded memory.

Logits are float32 always. Rounded to bf16 they lose exactly the small divergences that decide where student and teacher
still agree (31 % median error of a KL below 0.05 nats).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.scoring.backends.precision import exact_products
from gear_rl.scoring.backends.problem import Problem
from gear_rl.scoring.backends.state import ABSENT, VocabState, join_rows, merge
from gear_rl.scoring.head import Head

_TILE_BUFFERS = 4  # float32 numbers alive per pair (token, vocabulary entry): both logits, weight, difference
_LEAST_COLUMNS = 128
_CPU_TILE_BYTES = 32 << 20  # a CPU tile should stay near the caches; a GPU tile may take the whole workspace
_FLOAT32_OUT = "dtype" in torch.ops.aten.mm.overloads()  # torch.mm(..., out_dtype=torch.float32), torch 2.8 and later


def vocab_state(problem: Problem) -> VocabState:
    n, forward = problem.student_hidden.shape[0], "forward_kl" in problem.extra
    if problem.student_head.size == 0 or n == 0:
        return VocabState.empty(n, problem.student_hidden.device, forward)
    rows, columns = tile_shape(problem)
    with exact_products(problem.student_hidden.device):
        return join_rows([_rows_state(problem.rows(i, min(i + rows, n)), columns, forward) for i in range(0, n, rows)])


def jensen_shannon(problem: Problem, log_norm_s: Tensor, log_norm_t: Tensor) -> Tensor:
    """This slice's part of the Jensen–Shannon divergence (N,). A second pass: the mixture needs normalised p and q."""
    n = problem.student_hidden.shape[0]
    total = torch.zeros(n, device=problem.student_hidden.device)
    if problem.student_head.size == 0 or n == 0:
        return total
    rows, columns = tile_shape(problem)
    with exact_products(total.device):
        for i in range(0, n, rows):
            j = min(i + rows, n)
            for _, z_s, z_t in _logit_tiles(problem.rows(i, j), columns):
                total[i:j] += _tile_mixture(z_s.sub_(log_norm_s[i:j, None]), z_t.sub_(log_norm_t[i:j, None]))
    return total


def _tile_mixture(log_p: Tensor, log_q: Tensor) -> Tensor:
    """½ Σ p (log p − log m) + ½ Σ q (log q − log m) over one tile (n, c), whose memory is used up; m = ½ (p + q)."""
    log_m = torch.logaddexp(log_p, log_q).sub_(math.log(2.0))
    p = log_p.exp()
    student = p.mul_(log_p.sub_(log_m)).sum(1)
    torch.sub(log_q, log_m, out=log_m)
    return 0.5 * (student + log_q.exp_().mul_(log_m).sum(1))


def tile_shape(problem: Problem) -> tuple[int, int]:
    """(tokens, vocabulary entries) of one tile, so that a tile's buffers fit the workspace.

    bytes = 16 · tokens · entries, and where inputs must be raised to float32 first, 8 · tokens · D + 4 · entries · D.
    """
    n, vocab = problem.student_hidden.shape[0], problem.student_head.size
    width = max(problem.student_head.width, problem.teacher_head.width)
    on_cpu = problem.student_hidden.device.type == "cpu"
    raised = 0 if _multiplies_natively(problem.student_hidden) else width
    rows_cap = min(n, 256 if on_cpu else 2048)
    # Weights raised to float32 are worth a larger tile even on a CPU: they are raised again for every block of tokens.
    budget = min(problem.workspace, _CPU_TILE_BYTES) if on_cpu and not raised else problem.workspace

    def columns_for(rows: int) -> int:
        return min(vocab, (budget - 8 * rows * raised) // (4 * _TILE_BUFFERS * rows + 4 * raised))

    whole_rows = (budget - 4 * vocab * raised) // (4 * _TILE_BUFFERS * vocab + 8 * raised)
    if whole_rows >= rows_cap:  # one sweep over the vocabulary: nothing to merge
        return min(n, whole_rows), vocab
    rows = rows_cap
    least = min(vocab, _LEAST_COLUMNS)
    while rows > 1 and columns_for(rows) < max(least, min(vocab, rows)):
        rows = (rows + 1) // 2
    if columns_for(rows) < least:
        need = 4 * _TILE_BUFFERS * least + 4 * raised * least + 8 * raised
        raise GearError(
            f"workspace of {problem.workspace:,} bytes is too small for one row: with hidden size {width} the chunked "
            f"backend needs {need:,} bytes. Raise `workspace` (the default is 256 MiB)."
        )
    return rows, columns_for(rows)


def _rows_state(problem: Problem, columns: int, forward: bool) -> VocabState:
    state: VocabState | None = None
    for start, z_s, z_t in _logit_tiles(problem, columns):
        tile = _tile_state(z_s, z_t, problem.token_ids - start, forward)
        state = tile if state is None else merge([state, tile])
    assert state is not None
    return state


def _tile_state(z_s: Tensor, z_t: Tensor, local_ids: Tensor, forward: bool) -> VocabState:
    """The state of one tile (n, c) of logits, whose memory is used up. `local_ids` (n,) may lie outside the tile."""
    inside = (local_ids >= 0) & (local_ids < z_s.shape[1])
    index = torch.where(inside, local_ids, 0)[:, None]
    target_s = torch.where(inside, z_s.gather(1, index)[:, 0], ABSENT)
    target_t = torch.where(inside, z_t.gather(1, index)[:, 0], ABSENT)
    max_s, max_t = z_s.amax(1, keepdim=True), z_t.amax(1, keepdim=True)
    below_s, below_t = z_s.sub_(max_s), z_t.sub_(max_t)
    w_s = below_s.exp()
    difference = below_s - below_t
    sum_s = w_s.sum(1)
    a = below_s.mul_(w_s).sum(1)
    b = w_s.mul_(difference).sum(1)
    w_t = below_t.exp_()
    sum_t = w_t.sum(1)
    f = -w_t.mul_(difference).sum(1) if forward else None
    return VocabState(max_s[:, 0], sum_s, a, b, max_t[:, 0], sum_t, target_s, target_t, f)


def _logit_tiles(problem: Problem, columns: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(first vocabulary entry, student logits (n, c), teacher logits (n, c)), float32, temperature included.

    The two tensors are fresh: the caller may overwrite them.
    """
    native = _multiplies_natively(problem.student_hidden)
    h_s = problem.student_hidden if native else problem.student_hidden.float()
    h_t = problem.teacher_hidden if native else problem.teacher_hidden.float()
    for start in range(0, problem.student_head.size, columns):
        stop = min(start + columns, problem.student_head.size)
        w_s = problem.student_head.weight[start:stop]
        w_s = w_s if native else w_s.float()
        z_s = _logits(h_s, w_s, problem.student_head, start, stop, problem.temperature)
        if not problem.shared:
            w_s = problem.teacher_head.weight[start:stop]
            w_s = w_s if native else w_s.float()
        yield start, z_s, _logits(h_t, w_s, problem.teacher_head, start, stop, problem.temperature)
        del z_s


def _logits(hidden: Tensor, weight: Tensor, head: Head, start: int, stop: int, temperature: float) -> Tensor:
    """softcap(scale · (W h + b)) / T for vocabulary entries [start, stop), (n, c) float32."""
    if hidden.dtype == torch.float32:
        z = torch.mm(hidden, weight.T)
    else:
        z = torch.mm(hidden, weight.T, out_dtype=torch.float32)
    if head.bias is not None:
        z.add_(head.bias[start:stop].float())
    if head.softcap is None:
        return z if (factor := head.scale / temperature) == 1.0 else z.mul_(factor)
    return z.mul_(head.scale / head.softcap).tanh_().mul_(head.softcap / temperature)


def _multiplies_natively(hidden: Tensor) -> bool:
    """Whether float32 products need no float32 copy of the inputs: float32 itself, and 16 bits on CUDA."""
    return hidden.dtype == torch.float32 or (hidden.is_cuda and _FLOAT32_OUT and torch.version.hip is None)
