"""Divergence of student and teacher as a *loss*: exact over the vocabulary, with gradients, in bounded memory.

p is the student's distribution at a token, q the teacher's, z the student's logits; only the student learns:

    reverse_kl   KL(p ‖ q)                                              ∂/∂z = p (log p − log q − KL(p ‖ q))
    forward_kl   KL(q ‖ p)                                              ∂/∂z = p − q
    jsd          β KL(q ‖ m) + (1 − β) KL(p ‖ m),  m = β q + (1 − β) p  ∂/∂z = (1 − β) p (log p − log m − KL(p ‖ m))

Logits exist for a few rows at a time. The backward pass makes them again instead of keeping them: six products with the
head where four would do, for a memory that does not grow with tokens × vocabulary. `plain_divergence` is the naive twin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.scoring.backends.precision import exact_products
from gear_rl.scoring.head import Head

Kind = Literal["jsd", "reverse_kl", "forward_kl"]
WORKSPACE = 256 << 20
"""Bytes of one chunk's buffers. More makes fewer, larger products."""
_BUFFERS = 6  # numbers alive per pair (token, vocabulary entry) in the backward pass
_FLOAT32_OUT = "dtype" in torch.ops.aten.mm.overloads()  # torch.mm(..., out_dtype=torch.float32), torch 2.8 and later


@dataclass(frozen=True)
class Compared:
    """Which divergence, and over which tokens."""

    kind: Kind
    beta: float = 0.5
    top_k: int | None = None
    """only the student's so many likeliest tokens; None: all, exactly"""
    tail: bool = True
    """with `top_k`: all other tokens together are one more, so that both sides still sum to 1"""


def distillation_divergence(
    student_hidden: Tensor,
    student_head: Head,
    teacher_hidden: Tensor,
    teacher_head: Head,
    compared: Compared,
    temperature: float = 1.0,
    workspace: int = WORKSPACE,
) -> Tensor:
    """Per-token divergence (N,), differentiable in `student_hidden` (N, D) and the student head's weight and bias."""
    n = student_hidden.shape[0]
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
        teacher_hidden.detach().to(teacher_head.weight.dtype), teacher_head, compared, temperature, workspace,
    )  # fmt: skip


def trainable_head(model: Any) -> Head:
    """The head of `model` with its parameters as they train: `Head.of` is for reading, and is cut off from gradients."""
    head = Head.of(model)
    parameters = {p.data_ptr(): p for p in model.parameters()}
    bias = None if head.bias is None else parameters.get(head.bias.data_ptr(), head.bias)
    return replace(head, weight=parameters.get(head.weight.data_ptr(), head.weight), bias=bias)


# ---------------------------------------------------------------------------------------------- the formulas
def plain_divergence(log_p: Tensor, log_q: Tensor, compared: Compared) -> Tensor:
    """(n, V) log-probabilities → (n,). Differentiable by torch itself, at the price of all its intermediate tensors."""
    _, log_p, log_q = _classes(log_p, log_q, compared)
    p, q = log_p.exp(), log_q.exp()
    if compared.kind == "reverse_kl":
        return (p * (log_p - log_q)).sum(1)
    if compared.kind == "forward_kl":
        return (q * (log_q - log_p)).sum(1)
    log_m = _mixture(log_p, log_q, compared.beta)
    return compared.beta * (q * (log_q - log_m)).sum(1) + (1 - compared.beta) * (p * (log_p - log_m)).sum(1)


def _logit_gradient(log_p: Tensor, log_q: Tensor, compared: Compared) -> Tensor:
    """∂ divergence / ∂z, (n, V).

    With P_c the student's probability of class c (a token, or the tail) and r_c = P_c ∂D/∂P_c, a token of class c that
    has the share s of it gets s r_c − p Σ r.
    """
    top, of_p, of_q = _classes(log_p, log_q, compared)
    if compared.kind == "reverse_kl":
        r = of_p.exp() * (of_p - of_q + 1.0)
    elif compared.kind == "forward_kl":
        r = -of_q.exp()
    else:
        r = (1 - compared.beta) * of_p.exp() * (of_p - _mixture(of_p, of_q, compared.beta))
    total = r.sum(1, keepdim=True)
    if top is None:
        return r.sub_(log_p.exp().mul_(total))
    gradient = log_p.exp().mul_(-total)
    k = top.shape[1]
    if of_p.shape[1] > k:  # the tail's tokens share its r by their part of it
        gradient += (log_p - of_p[:, k:]).exp_().mul_(r[:, k:])
    return gradient.scatter_(1, top, r[:, :k] - log_p.gather(1, top).exp() * total)


def _classes(log_p: Tensor, log_q: Tensor, compared: Compared) -> tuple[Tensor | None, Tensor, Tensor]:
    """The student's top k tokens (n, k), and both sides' log-probabilities of what is compared, (n, k + 1) or (n, V)."""
    if compared.top_k is None or compared.top_k >= log_p.shape[1]:
        return None, log_p, log_q
    top = log_p.detach().topk(compared.top_k, dim=1).indices
    sides = []
    for side in (log_p, log_q):
        kept = side.gather(1, top)
        if compared.tail:
            rest = side.scatter(1, top, -math.inf).logsumexp(1, keepdim=True)
            kept = torch.cat([kept, rest], dim=1)
        sides.append(kept)
    return top, sides[0], sides[1]


def _mixture(log_p: Tensor, log_q: Tensor, beta: float) -> Tensor:
    """log(β q + (1 − β) p)."""
    return torch.logaddexp(log_q + math.log(beta), log_p + math.log1p(-beta))


# ---------------------------------------------------------------------------------------------- in chunks
class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, head: Head, teacher_hidden: Tensor,
        teacher_head: Head, compared: Compared, temperature: float, workspace: int,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(hidden, weight, bias, teacher_hidden)
        ctx.rest = head, teacher_head, compared, temperature, workspace
        out = torch.empty(hidden.shape[0], dtype=_exact(hidden.dtype), device=hidden.device)
        with exact_products(hidden.device):
            for rows in _chunks(hidden, head, workspace):
                log_p = _logits(hidden[rows], weight, bias, head, temperature)[0].log_softmax(1)
                log_q = _logits(teacher_hidden[rows], teacher_head.weight, teacher_head.bias, teacher_head, temperature)
                out[rows] = plain_divergence(log_p, log_q[0].log_softmax(1), compared)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        hidden, weight, bias, teacher_hidden = ctx.saved_tensors
        head, teacher_head, compared, temperature, workspace = ctx.rest
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        exact = _exact(hidden.dtype)
        d_hidden = torch.empty_like(hidden) if wants_hidden else None
        d_weight = torch.zeros(weight.shape, dtype=exact, device=weight.device) if wants_weight else None
        d_bias = torch.zeros(bias.shape, dtype=exact, device=bias.device) if wants_bias and bias is not None else None
        with exact_products(hidden.device):
            for rows in _chunks(hidden, head, workspace):
                z, slope = _logits(hidden[rows], weight, bias, head, temperature)
                z_t, _ = _logits(
                    teacher_hidden[rows], teacher_head.weight, teacher_head.bias, teacher_head, temperature
                )
                d = _logit_gradient(z.log_softmax(1), z_t.log_softmax(1), compared)
                d.mul_(slope).mul_(grads[0][rows, None].to(exact))
                rounded = d.to(weight.dtype)
                if d_hidden is not None:
                    d_hidden[rows] = _product(rounded, weight[: head.size]).to(hidden.dtype)
                if d_weight is not None:
                    d_weight[: head.size] += _product(rounded.T, hidden[rows])
                if d_bias is not None:
                    d_bias[: head.size] += d.sum(0)
        to_weight = None if d_weight is None else d_weight.to(weight.dtype)
        return d_hidden, to_weight, None if d_bias is None else d_bias.to(bias.dtype), *[None] * 6


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
