"""The naive reference: all logits in memory, log-softmax, the definitions written out. The others are proven against it."""

from __future__ import annotations

import math

import torch

from gear_rl.scoring.backends.precision import exact_products
from gear_rl.scoring.backends.problem import Divergence, Problem


def divergence(problem: Problem) -> Divergence:
    """Takes 8 N V bytes and more; `workspace` is not obeyed. Everything is float32."""
    with exact_products(problem.student_hidden.device):
        log_p = (problem.student_head.logits(problem.student_hidden) / problem.temperature).log_softmax(-1)
        log_q = (problem.teacher_head.logits(problem.teacher_hidden) / problem.temperature).log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    y = problem.token_ids[:, None]
    forward_kl = jensen_shannon = None
    if "forward_kl" in problem.extra:
        forward_kl = (q * (log_q - log_p)).sum(-1).clamp_min(0)
    if "jensen_shannon" in problem.extra:
        log_m = torch.logaddexp(log_p, log_q) - math.log(2.0)
        jensen_shannon = 0.5 * ((p * (log_p - log_m)).sum(-1) + (q * (log_q - log_m)).sum(-1)).clamp_min(0)
    return Divergence(
        reverse_kl=(p * (log_p - log_q)).sum(-1).clamp_min(0),
        entropy=-(p * log_p).sum(-1),
        student_logprob=log_p.gather(-1, y)[:, 0],
        teacher_logprob=log_q.gather(-1, y)[:, 0],
        forward_kl=forward_kl,
        jensen_shannon=jensen_shannon,
    )
