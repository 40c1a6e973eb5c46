"""Divergences of student and teacher that are used as a loss: their values, and their gradients by the student's logits.

p is the student's distribution at a token, q the teacher's, z the student's logits; only the student learns:

    reverse_kl   KL(p ‖ q)                                              ∂/∂z = p (log p − log q − KL(p ‖ q))
    forward_kl   KL(q ‖ p)                                              ∂/∂z = p − q
    jsd          β KL(q ‖ m) + (1 − β) KL(p ‖ m),  m = β q + (1 − β) p  ∂/∂z = (1 − β) p (log p − log m − KL(p ‖ m))
    squared      ½ (log p(y) − log q(y))², y the sampled token          ∂/∂z = (log p(y) − log q(y)) (1[y] − p)
    ratio        q(y) / p(y)                                            ∂/∂z = −q(y)/p(y) (1[y] − p)

Everything here is of whole log-probabilities (n, V); `gear_rl.scoring.distillation` does it in bounded memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["jsd", "reverse_kl", "forward_kl", "squared", "ratio"]
SAMPLED = ("squared", "ratio")
"""Kinds that look at the sampled token alone, and need `token_ids`."""


@dataclass(frozen=True)
class Compared:
    """Which divergence, and over which tokens."""

    kind: Kind
    beta: float = 0.5
    top_k: int | None = None
    """only the student's so many likeliest tokens; None: all, exactly"""
    tail: bool = True
    """with `top_k`: all other tokens together are one more, so that both sides still sum to 1"""
    entry_clip: float | None = None
    """each token's term of the sum is clamped from above at this; the sum may then be negative"""
    token_cap: float | None = None
    """the divergence is clamped from above at this, without gradient beyond"""
    temper_teacher: bool = True
    """whether the temperature divides the teacher's logits too, or only the student's"""


def plain_divergence(log_p: Tensor, log_q: Tensor, compared: Compared, token_ids: Tensor | None = None) -> Tensor:
    """(n, V) log-probabilities → (n,). Differentiable by torch itself, at the price of all its intermediate tensors."""
    if compared.kind in SAMPLED:
        assert token_ids is not None
        gap = (log_p - log_q).gather(1, token_ids[:, None]).squeeze(1)
        found = 0.5 * gap.square() if compared.kind == "squared" else (-gap).exp()
    else:
        _, log_p, log_q = _classes(log_p, log_q, compared)
        entries = _entries(log_p, log_q, compared)
        found = (entries if compared.entry_clip is None else entries.clamp(max=compared.entry_clip)).sum(1)
    return found if compared.token_cap is None else found.clamp(max=compared.token_cap)


def _entries(log_p: Tensor, log_q: Tensor, compared: Compared) -> Tensor:
    """The terms that a divergence is the sum of, (n, classes)."""
    p, q = log_p.exp(), log_q.exp()
    if compared.kind == "reverse_kl":
        return p * (log_p - log_q)
    if compared.kind == "forward_kl":
        return q * (log_q - log_p)
    log_m = _mixture(log_p, log_q, compared.beta)
    return compared.beta * (q * (log_q - log_m)) + (1 - compared.beta) * (p * (log_p - log_m))


def logit_gradient(log_p: Tensor, log_q: Tensor, compared: Compared, token_ids: Tensor | None) -> Tensor:
    """∂ divergence / ∂z, (n, V).

    With P_c the student's probability of class c (a token, or the tail) and r_c = P_c ∂D/∂P_c, a token of class c that
    has the share s of it gets s r_c − p Σ r. A term that is clamped has r = 0; so has all of a token that is capped.
    """
    if compared.kind in SAMPLED:
        assert token_ids is not None
        chosen = token_ids[:, None]
        gap = (log_p - log_q).gather(1, chosen)  # (n, 1)
        slope = gap if compared.kind == "squared" else -(-gap).exp()
        gradient = log_p.exp().mul_(-slope).scatter_add_(1, chosen, slope)
    else:
        gradient = _gradient_of_sum(log_p, log_q, compared)
    if compared.token_cap is not None:
        gradient *= (
            plain_divergence(log_p, log_q, replace(compared, token_cap=None), token_ids) <= compared.token_cap
        )[:, None]
    return gradient


def _gradient_of_sum(log_p: Tensor, log_q: Tensor, compared: Compared) -> Tensor:
    top, of_p, of_q = _classes(log_p, log_q, compared)
    if compared.kind == "reverse_kl":
        r = of_p.exp() * (of_p - of_q + 1.0)
    elif compared.kind == "forward_kl":
        r = -of_q.exp()
    else:
        r = (1 - compared.beta) * of_p.exp() * (of_p - _mixture(of_p, of_q, compared.beta))
    if compared.entry_clip is not None:
        r = r.masked_fill(_entries(of_p, of_q, compared) > compared.entry_clip, 0.0)
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
