"""`token_divergence`: four exact numbers per sampled token, over the full vocabulary, in bounded memory.

    z_s = head(student_hidden) / T        p = softmax(z_s)        reverse_kl      = Σ_v p(v) [log p(v) − log q(v)]
    z_t = head(teacher_hidden) / T        q = softmax(z_t)        entropy         = −Σ_v p(v) log p(v)
                                                                  student_logprob = log p(y)
                                                                  teacher_logprob = log q(y)

Forward only: nothing here carries a gradient. Logits are float32 whatever the inputs, also under autocast or TF32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gear_rl.errors import GearError, unknown_name
from gear_rl.scoring import backends
from gear_rl.scoring.backends.problem import EXTRAS, Divergence, Problem
from gear_rl.scoring.head import Head

DEFAULT_WORKSPACE = 256 << 20
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def token_divergence(
    student_hidden: Tensor,
    teacher_hidden: Tensor,
    lm_head: Head | Tensor | nn.Module,
    token_ids: Tensor,
    teacher_lm_head: Head | Tensor | nn.Module | None = None,
    temperature: float = 1.0,
    backend: str = "auto",
    workspace: int = DEFAULT_WORKSPACE,
    extra: Sequence[str] = (),
) -> Divergence:
    """Reverse KL, entropy and both log-probs of every token, each (N,) float32.

    Args:
        student_hidden: (N, D) hidden states at the positions that predict `token_ids`.
        teacher_hidden: (N, D) the same of the teacher.
        lm_head: A weight (V, D), an `nn.Linear`, or a `Head` (bias, scaling, soft-cap, padded rows).
        token_ids: (N,) the sampled tokens.
        teacher_lm_head: The teacher's head where it is a different one; shared heads are read once.
        temperature: Of both distributions.
        backend: "auto", "fused" (Triton), "chunked" (torch, any device) or "naive" (all logits in memory).
        workspace: Bytes to use at most beyond inputs and outputs ("naive" ignores it).
        extra: Any of "forward_kl", "jensen_shannon". The second reads the heads twice.
    """
    student_head = Head.coerce(lm_head, "lm_head")
    teacher_head = student_head if teacher_lm_head is None else Head.coerce(teacher_lm_head, "teacher_lm_head")
    check_inputs(student_hidden, teacher_hidden, student_head, teacher_head, token_ids, temperature, workspace, extra)
    if _same_head(student_head, teacher_head):
        teacher_head = student_head
    if (vocab := student_head.size) == 0:
        raise GearError("the head has no rows: an empty vocabulary has no distribution.")
    # Ids are judged together with the results, in one look at the device; until then they only must not be followed.
    safe_ids = token_ids.long().clamp(0, vocab - 1)
    problem = Problem(
        student_hidden.detach(),
        teacher_hidden.detach(),
        student_head,
        teacher_head,
        safe_ids,
        temperature,
        workspace,
        tuple(extra),
    )
    chosen, _ = backends.choose(problem, backend)
    if student_hidden.shape[0] == 0:
        chosen = "chunked"
    result = backends.divergence(problem, chosen)
    suspicious = (safe_ids != token_ids).any() | ~torch.stack(list(result.items().values())).isfinite().all()
    if bool(suspicious):
        raise_bad_row(problem, token_ids, vocab, result)
    return result


def check_inputs(
    student_hidden: Tensor,
    teacher_hidden: Tensor,
    student_head: Head,
    teacher_head: Head,
    token_ids: Tensor,
    temperature: float,
    workspace: int,
    extra: Sequence[str],
) -> None:
    """Everything that can be refused without looking at values on the device."""
    n = student_hidden.shape[0] if student_hidden.ndim else 0
    for name, hidden, head in (
        ("student_hidden", student_hidden, student_head),
        ("teacher_hidden", teacher_hidden, teacher_head),
    ):
        side = name.split("_")[0]
        if hidden.ndim != 2:
            raise GearError(f"{name} must be (N, D), one row per token, not {tuple(hidden.shape)}: flatten it first.")
        if hidden.shape[0] != n:
            raise GearError(f"{name} has {hidden.shape[0]} rows and student_hidden {n}: both read the same tokens.")
        if hidden.shape[1] != head.width:
            raise GearError(f"{name} is {hidden.shape[1]} wide, the {side}'s head {head.width}: wrong head or layer.")
        if hidden.dtype != head.weight.dtype:
            raise GearError(
                f"{name} is {hidden.dtype} and the {side}'s head {head.weight.dtype}: convert one, "
                f"e.g. {name}.to({head.weight.dtype}), or the head to {hidden.dtype} to lose nothing."
            )
        if hidden.dtype not in _DTYPES:
            raise GearError(f"{name} is {hidden.dtype}: supported are float32, bfloat16 and float16.")
        others = {f"the {side}'s head": head.weight, "token_ids": token_ids, "student_hidden": student_hidden}
        for what, tensor in others.items():
            if tensor.device != hidden.device:
                raise GearError(f"{name} is on {hidden.device} and {what} on {tensor.device}: move them to one device.")
    if token_ids.shape != (n,):
        raise GearError(f"token_ids must be ({n},), one id per row of student_hidden, not {tuple(token_ids.shape)}.")
    if token_ids.is_floating_point() or token_ids.is_complex() or token_ids.dtype == torch.bool:
        raise GearError(f"token_ids must be integers, not {token_ids.dtype}.")
    if student_head.size != teacher_head.size:
        raise GearError(
            f"student and teacher have vocabularies of {student_head.size} and {teacher_head.size}: distributions can "
            "only be compared over the same tokens. If one is padded, give both a Head with vocab_size=."
        )
    if not (math.isfinite(temperature) and temperature > 0):
        raise GearError(f"temperature must be positive and finite, not {temperature}.")
    if workspace <= 0:
        raise GearError(f"workspace must be a positive number of bytes, not {workspace}.")
    for name in extra:
        if name not in EXTRAS:
            raise unknown_name("extra", name, EXTRAS)


def raise_bad_row(problem: Problem, token_ids: Tensor, vocab: int, result: Divergence) -> None:
    """Names the first row that is wrong, and the input to blame. Slow, and only reached when something is wrong."""
    outside = (token_ids < 0) | (token_ids >= vocab)
    if outside.any():
        row = int(outside.nonzero()[0])
        token = int(token_ids[row])
        why = " −100 marks ignored labels: select sampled tokens first, by the action mask." if token == -100 else ""
        raise GearError(
            f"token_ids[{row}] = {token} is outside the vocabulary of {vocab} ({int(outside.sum())} such rows).{why}"
        )
    for name, hidden in (("student_hidden", problem.student_hidden), ("teacher_hidden", problem.teacher_hidden)):
        bad = ~hidden.isfinite().all(1)
        if bad.any():
            raise GearError(
                f"{name} has NaN or Inf in row {int(bad.nonzero()[0])} ({int(bad.sum())} such rows): look for overflow "
                "in the model's forward pass (float16?), or for padding positions without any attended token."
            )
    for name, head in (("lm_head", problem.student_head), ("teacher_lm_head", problem.teacher_head)):
        for part, tensor in (("weight", head.weight), ("bias", head.bias)):
            if tensor is not None and not tensor[: head.size].isfinite().all():
                entry = int((~tensor[: head.size].reshape(head.size, -1).isfinite().all(1)).nonzero()[0])
                raise GearError(f"{name} {part} has NaN or Inf at entry {entry}: a broken checkpoint or update.")
    bad = ~torch.stack(list(result.items().values())).isfinite().all(0)
    raise GearError(
        f"the logits of row {int(bad.nonzero()[0])} overflow float32 ({int(bad.sum())} such rows), though hidden "
        "states and head are finite: their product is too large."
    )


def _same_head(one: Head, other: Head) -> bool:
    """Two descriptions of one head: the weight is then read once for both sides."""

    def memory(tensor: Tensor | None) -> object:
        return None if tensor is None else (tensor.data_ptr(), tensor.shape, tensor.stride())

    return one is other or (
        memory(one.weight) == memory(other.weight)
        and memory(one.bias) == memory(other.bias)
        and (one.scale, one.softcap, one.size) == (other.scale, other.softcap, other.size)
    )
