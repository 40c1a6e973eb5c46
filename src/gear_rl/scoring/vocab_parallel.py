"""Divergence over a head whose vocabulary is split over ranks (tensor parallel): logits are never gathered.

Each rank turns its rows of the head into a `VocabState` of 8 numbers per token; the states are exchanged and merged by
the same formulas that merge tiles on one device (see `gear_rl.scoring.backends.state`). For N tokens that moves 32 N
bytes a rank, instead of 4 N V. Every rank merges in rank order, so all ranks get the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gear_rl.errors import GearError
from gear_rl.scoring import backends
from gear_rl.scoring.backends.problem import Divergence, Problem
from gear_rl.scoring.backends.state import VocabState, merge
from gear_rl.scoring.divergence import DEFAULT_WORKSPACE, check_inputs, raise_bad_row
from gear_rl.scoring.head import Head


def vocab_parallel_divergence(
    student_hidden: Tensor,
    teacher_hidden: Tensor,
    lm_head: Head | Tensor | nn.Module,
    token_ids: Tensor,
    vocab_start: int,
    teacher_lm_head: Head | Tensor | nn.Module | None = None,
    temperature: float = 1.0,
    backend: str = "auto",
    workspace: int = DEFAULT_WORKSPACE,
    extra: Sequence[str] = (),
    group: Any = None,
) -> Divergence:
    """`token_divergence` where this rank's head holds the vocabulary entries from `vocab_start` on.

    Hidden states (N, D) and global `token_ids` (N,) are the same on every rank of `group`. A rank may hold no rows; a
    padded last rank says so with `Head(weight, vocab_size=...)`. Every rank returns the same four numbers.
    """
    student_head = Head.coerce(lm_head, "lm_head")
    teacher_head = student_head if teacher_lm_head is None else Head.coerce(teacher_lm_head, "teacher_lm_head")
    check_inputs(student_hidden, teacher_hidden, student_head, teacher_head, token_ids, temperature, workspace, extra)
    vocab = _whole_vocabulary(vocab_start, student_head.size, student_hidden, group)
    local_ids = token_ids.long() - vocab_start
    problem = Problem(
        student_hidden.detach(),
        teacher_hidden.detach(),
        student_head,
        teacher_head,
        local_ids,
        temperature,
        workspace,
        tuple(extra),
    )
    streaming, _ = backends.choose_streaming(problem, backend)
    state = merge([VocabState.unpack(part) for part in _gather(streaming.vocab_state(problem).pack(), group)])
    mixture = None
    if "jensen_shannon" in extra:
        parts = _gather(streaming.jensen_shannon(problem, *state.log_normalisers()), group)
        mixture = torch.stack(parts).sum(0)
    result = state.finish(mixture)
    outside = (token_ids < 0) | (token_ids >= vocab)
    if bool(outside.any() | ~torch.stack(list(result.items().values())).isfinite().all()):
        raise_bad_row(problem, token_ids, vocab, result)
    return result


def _gather(tensor: Tensor, group: Any) -> list[Tensor]:
    """`tensor` of every rank, in rank order."""
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor.contiguous(), group=group)
    return parts


def _whole_vocabulary(start: int, size: int, hidden: Tensor, group: Any) -> int:
    """Size of the vocabulary over all ranks. Every rank sees the same slices, so all refuse together."""
    mine = torch.tensor([start, size, hidden.shape[0]], device=hidden.device)
    slices = [tuple(part.tolist()) for part in _gather(mine, group)]
    covered = 0
    for rank, (first, count, tokens) in enumerate(slices):
        if tokens != slices[0][2]:
            raise GearError(
                f"rank {rank} has {tokens} tokens and rank 0 {slices[0][2]}: all ranks read the same tokens."
            )
        if count and first != covered:
            what = "overlap" if first < covered else "leave a gap"
            raise GearError(
                f"the vocabulary slices {what}: rank {rank} starts at {first}, and the ranks before it end at {covered}. "
                "Set vocab_start to the number of entries held by the ranks before."
            )
        covered += count
    if covered == 0:
        raise GearError("no rank holds any row of the head: an empty vocabulary has no distribution.")
    return covered
