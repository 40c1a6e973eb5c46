"""Divergence of student and teacher as a *loss*: exact over the vocabulary, with gradients, in bounded memory.

The formulas are in `gear_rl.scoring.distillation_formulas`; `plain_divergence` there is the naive reference. Logits exist for a
few rows at a time. The backward pass makes them again instead of keeping them: six products with the head where four would
do, for a memory that does not grow with tokens × vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.scoring.backends.precision import exact_products
from gear_rl.scoring.distillation_formulas import SAMPLED, Compared, logit_gradient, plain_divergence
from gear_rl.scoring.head import Head
from gear_rl.scoring.weights import Weights

WORKSPACE = 256 << 20
"""Bytes of one chunk's buffers. More makes fewer, larger products."""
_BUFFERS = 8  # numbers alive per pair (token, vocabulary entry) in the backward pass
_FLOAT32_OUT = "dtype" in torch.ops.aten.mm.overloads()  # torch.mm(..., out_dtype=torch.float32), torch 2.8 and later


def distillation_divergence(
    student_hidden: Tensor,
    student_head: Head,
    teacher_hidden: Tensor,
    teacher_head: Head,
    compared: Compared,
    temperature: float = 1.0,
    workspace: int = WORKSPACE,
    token_ids: Tensor | None = None,
) -> Tensor:
    """Per-token divergence (N,), differentiable in `student_hidden` (N, D) and the student head's weight and bias.

    `token_ids` (N,): the sampled tokens, for the kinds that look at them alone.
    """
    n = student_hidden.shape[0]
    if compared.kind in SAMPLED and (token_ids is None or token_ids.shape != (n,)):
        given = "none" if token_ids is None else f"shape {tuple(token_ids.shape)}"
        raise GearError(f"{compared.kind} looks at the sampled tokens: token_ids must be ({n},), got {given}.")
    if student_hidden.ndim != 2 or teacher_hidden.ndim != 2 or teacher_hidden.shape[0] != n:
        raise GearError(
            f"student and teacher states are {tuple(student_hidden.shape)} and {tuple(teacher_hidden.shape)}: both must "
            "be (N, D), a row per token."
        )
    if student_head.size != teacher_head.size:
        raise GearError(
            f"student and teacher have vocabularies of {student_head.size} and {teacher_head.size}: distributions can "
            "only be compared over the same tokens."
        )
    return _Divergence.apply(
        student_hidden.to(student_head.weight.dtype), student_head.weight, student_head.bias, student_head,
        teacher_hidden.detach().to(teacher_head.weight.dtype), teacher_head, compared, temperature, workspace, token_ids,
    )  # fmt: skip


def importance_weight(logprob: Tensor, old_logprob: Tensor, clip: float) -> Tensor:
    """min(exp(clamp(log p − log p_old, ±20)), clip) of the sampled tokens (N,) → (N,), without gradient (SDPO)."""
    return (logprob.detach() - old_logprob.detach()).clamp(-20.0, 20.0).exp().clamp(max=clip)


def trainable_head(model: Any) -> Head:
    """The head of `model` with its parameters as they train: `Head.of` is for reading, and is cut off from gradients."""
    return Weights.of(model).head(trainable=True)


# ---------------------------------------------------------------------------------------------- in chunks
class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, head: Head, teacher_hidden: Tensor,
        teacher_head: Head, compared: Compared, temperature: float, workspace: int, token_ids: Tensor | None,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(hidden, weight, bias, teacher_hidden, token_ids)
        ctx.rest = head, teacher_head, compared, temperature, workspace
        of_teacher = temperature if compared.temper_teacher else 1.0
        out = torch.empty(hidden.shape[0], dtype=_exact(hidden.dtype), device=hidden.device)
        with exact_products(hidden.device):
            for rows in _chunks(hidden, head, workspace):
                log_p = _logits(hidden[rows], weight, bias, head, temperature)[0].log_softmax(1)
                log_q = _logits(teacher_hidden[rows], teacher_head.weight, teacher_head.bias, teacher_head, of_teacher)
                chosen = None if token_ids is None else token_ids[rows]
                out[rows] = plain_divergence(log_p, log_q[0].log_softmax(1), compared, chosen)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        hidden, weight, bias, teacher_hidden, token_ids = ctx.saved_tensors
        head, teacher_head, compared, temperature, workspace = ctx.rest
        of_teacher = temperature if compared.temper_teacher else 1.0
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        exact = _exact(hidden.dtype)
        d_hidden = torch.empty_like(hidden) if wants_hidden else None
        d_weight = torch.zeros(weight.shape, dtype=exact, device=weight.device) if wants_weight else None
        d_bias = torch.zeros(bias.shape, dtype=exact, device=bias.device) if wants_bias and bias is not None else None
        with exact_products(hidden.device):
            for rows in _chunks(hidden, head, workspace):
                z, slope = _logits(hidden[rows], weight, bias, head, temperature)
                z_t, _ = _logits(teacher_hidden[rows], teacher_head.weight, teacher_head.bias, teacher_head, of_teacher)
                chosen = None if token_ids is None else token_ids[rows]
                d = logit_gradient(z.log_softmax(1), z_t.log_softmax(1), compared, chosen)
                d.mul_(slope).mul_(grads[0][rows, None].to(exact))
                rounded = d.to(weight.dtype)
                if d_hidden is not None:
                    d_hidden[rows] = _product(rounded, weight[: head.size]).to(hidden.dtype)
                if d_weight is not None:
                    d_weight[: head.size] += _product(rounded.T, hidden[rows])
                if d_bias is not None:
                    d_bias[: head.size] += d.sum(0)
        to_weight = None if d_weight is None else d_weight.to(weight.dtype)
        return d_hidden, to_weight, None if d_bias is None else d_bias.to(bias.dtype), *[None] * 7


def _logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, head: Head, temperature: float
) -> tuple[Tensor, Tensor | float]:
    """softcap(scale · (W h + b)) / T, (n, V); and its derivative by W h + b, (n, V) or a number."""
    z = _product(hidden, weight[: head.size].T)
    if bias is not None:
        z = z + bias[: head.size].to(z.dtype)
    if head.softcap is None:
        factor = head.scale / temperature
        return z.mul_(factor), factor
    squashed = z.mul_(head.scale / head.softcap).tanh_()
    slope = (1.0 - squashed.square()).mul_(head.scale / temperature)
    return squashed.mul_(head.softcap / temperature), slope


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float32, whatever they are stored in; float64 stays."""
    if a.dtype in (torch.float32, torch.float64):
        return a @ b
    if a.is_cuda and _FLOAT32_OUT and torch.version.hip is None:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _chunks(hidden: Tensor, head: Head, workspace: int) -> list[slice]:
    """Rows of `hidden` (N, D) whose logits' buffers fit the workspace, one row at least."""
    size = max(1, workspace // (_BUFFERS * _exact(hidden.dtype).itemsize * max(1, head.size)))
    return [slice(i, i + size) for i in range(0, hidden.shape[0], size)]
