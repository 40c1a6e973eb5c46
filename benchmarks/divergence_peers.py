"""What others do for the same numbers, for `divergence.py`. Each peer: name, what it returns, and a callable.

A peer that can be imported is called as its authors wrote it. Where it cannot, a few lines "in the manner of" it stand
in, and their name says so.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

from gear_rl.scoring.backends.problem import Problem

FOUR = ("reverse_kl", "entropy", "student_logprob", "teacher_logprob")


@dataclass(frozen=True)
class Peer:
    name: str
    returns: tuple[str, ...]
    """which of the four numbers it gives per token; () where it gives only a sum"""
    run: Callable[[], dict[str, Tensor]]


def peers(problem: Problem) -> list[Peer]:
    found = [Peer("all logits in memory, bf16, then float32 log-softmax", FOUR, lambda: _all_logits(problem))]
    found += _trl(problem)
    found += _liger(problem)
    return found


def _all_logits(problem: Problem) -> dict[str, Tensor]:
    """What most training code does: logits in the model's dtype, raised to float32 for the log-softmax."""
    log_p = (problem.student_hidden @ problem.student_head.weight.T).float().log_softmax(-1)
    log_q = (problem.teacher_hidden @ problem.teacher_head.weight.T).float().log_softmax(-1)
    p, ids = log_p.exp(), problem.token_ids[:, None]
    return {
        "reverse_kl": (p * (log_p - log_q)).sum(-1),
        "entropy": -(p * log_p).sum(-1),
        "student_logprob": log_p.gather(-1, ids)[:, 0],
        "teacher_logprob": log_q.gather(-1, ids)[:, 0],
    }


def _trl(problem: Problem) -> list[Peer]:
    if importlib.util.find_spec("trl") is None:
        return [
            Peer("in the manner of TRL's chunked log-prob (eager torch)", FOUR, lambda: _vocabulary_chunks(problem))
        ]
    from trl.kernels.chunked_divergence import ChunkedDivergenceFunction
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction

    student, teacher = problem.student_head.weight, problem.teacher_head.weight

    def divergence() -> dict[str, Tensor]:
        reverse_kl, entropy = ChunkedDivergenceFunction.apply(
            problem.student_hidden, student, None, problem.teacher_hidden, teacher, None, 1.0
        )
        return {"reverse_kl": reverse_kl, "entropy": entropy}

    def all_four() -> dict[str, Tensor]:
        result = divergence()
        for side, hidden, weight in (
            ("student", problem.student_hidden, student),
            ("teacher", problem.teacher_hidden, teacher),
        ):
            scored = ChunkedLogProbFunction.apply(hidden, weight, None, problem.token_ids, 1.0, 32768, None, 1.0, ())
            result[f"{side}_logprob"] = scored[0]
        return result

    label = f"TRL {_version('trl')}"
    return [
        Peer(f"{label}, ChunkedDivergenceFunction", ("reverse_kl", "entropy"), divergence),
        Peer(f"{label}, the same and ChunkedLogProbFunction twice", FOUR, all_four),
    ]


def _vocabulary_chunks(problem: Problem, chunk: int = 8192) -> dict[str, Tensor]:
    """All tokens × vocabulary chunks, bf16 products with float32 output, running sums in eager torch."""
    n, device = problem.student_hidden.shape[0], problem.student_hidden.device
    max_s, max_t = (torch.full((n,), float("-inf"), device=device) for _ in range(2))
    sum_s, sum_t, a, b, y_s, y_t = (torch.zeros(n, device=device) for _ in range(6))
    for start in range(0, problem.student_head.size, chunk):
        z_s = problem.student_head.weight[start : start + chunk]
        z_s = torch.mm(problem.student_hidden, z_s.T, out_dtype=torch.float32)
        z_t = problem.teacher_head.weight[start : start + chunk]
        z_t = torch.mm(problem.teacher_hidden, z_t.T, out_dtype=torch.float32)
        top = torch.maximum(max_s, z_s.amax(1))
        old, w = (max_s - top).exp(), (z_s - top[:, None]).exp()
        sum_s, a, b = old * sum_s + w.sum(1), old * a + (w * z_s).sum(1), old * b + (w * (z_s - z_t)).sum(1)
        max_s, top = top, torch.maximum(max_t, z_t.amax(1))
        sum_t = (max_t - top).exp() * sum_t + (z_t - top[:, None]).exp().sum(1)
        max_t = top
        local = problem.token_ids - start
        inside, index = (local >= 0) & (local < z_s.shape[1]), local.clamp(0, z_s.shape[1] - 1)[:, None]
        y_s += z_s.gather(1, index)[:, 0] * inside
        y_t += z_t.gather(1, index)[:, 0] * inside
    norm_s, norm_t = max_s + sum_s.log(), max_t + sum_t.log()
    return {
        "reverse_kl": b / sum_s - norm_s + norm_t,
        "entropy": norm_s - a / sum_s,
        "student_logprob": y_s - norm_s,
        "teacher_logprob": y_t - norm_t,
    }


def _liger(problem: Problem) -> list[Peer]:
    if importlib.util.find_spec("liger_kernel") is None:
        return []
    from liger_kernel.ops.fused_linear_jsd import fused_linear_jsd_forward

    def run() -> dict[str, Tensor]:
        # beta 1 is the reverse KL. Its forward also prepares the gradient of the hidden states, which cannot be left out.
        fused_linear_jsd_forward(
            problem.student_hidden, problem.student_head.weight, problem.teacher_hidden, problem.teacher_head.weight,
            problem.token_ids, 1.0, -100, True, 1.0,
        )  # fmt: skip
        return {}

    return [Peer(f"Liger {_version('liger_kernel')}, fused_linear_jsd (a sum only, with its gradient)", (), run)]


def _version(package: str) -> str:
    try:
        return version(package.replace("_", "-"))
    except PackageNotFoundError:
        return str(getattr(importlib.import_module(package), "__version__", "unknown"))
