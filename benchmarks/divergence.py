"""How fast and how exact is `token_divergence`, against the matrix unit's own ceiling and against others' code?

    PYTHONPATH=src python benchmarks/divergence.py --out benchmarks/results/divergence_h200.json

Without a GPU it runs tiny shapes, which say nothing about speed on one. Definitions:

    ceiling    TFLOP/s of an 8192³ bf16 matrix product of random numbers on this machine, measured in turns with each way
    floor      4 N D V FLOPs (two heads, multiply and add) at that ceiling: no exact method runs faster
    of ceiling floor / measured time
    memory     peak beyond inputs and outputs
    error      largest absolute difference from float64, over sampled tokens
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from divergence_peers import peers
from torch import Tensor

from gear_rl.scoring import Head, token_divergence
from gear_rl.scoring.backends import fused
from gear_rl.scoring.backends.problem import Problem

VOCAB = 151_936  # Qwen3
ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
DTYPE = torch.bfloat16 if ON_GPU else torch.float32


def draw(n: int, width: int, vocab: int, shared: bool, seed: int = 0) -> Problem:
    """Hidden states whose teacher differs from the student by noise of log-uniform size: KL from 1e-4 to several nats.

    All logits carry a common offset of 16, as those of real models do.
    """
    generator = torch.Generator(DEVICE).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=DEVICE)

    def head(base: Tensor | None) -> Tensor:
        weight = torch.empty(vocab, width, device=DEVICE, dtype=DTYPE)
        for start in range(0, vocab, 16_384):
            part = weight[start : start + 16_384]
            noise = normal(*part.shape) * 3.5 / math.sqrt(width)
            part.copy_(noise if base is None else base[start : start + 16_384].float() + 0.02 * noise)
        weight[:, 0] = 2.0
        return weight

    student = normal(n, width)
    size = torch.logspace(-2, math.log10(0.8), n, device=DEVICE)
    teacher = student + size[torch.randperm(n, generator=generator, device=DEVICE), None] * normal(n, width)
    student[:, 0] = teacher[:, 0] = 8.0
    student_head = Head(head(None))
    teacher_head = student_head if shared else Head(head(student_head.weight))
    ids = torch.randint(vocab, (n,), generator=generator, device=DEVICE)
    return Problem(student.to(DTYPE), teacher.to(DTYPE), student_head, teacher_head, ids, 1.0, 256 << 20)


def reference(problem: Problem, rows: Tensor) -> dict[str, Tensor]:
    """All numbers of some tokens in float64."""
    ids = problem.token_ids[rows, None]

    def log_softmax(hidden: Tensor, head: Head) -> Tensor:
        parts = [hidden[rows].double() @ part.double().T for part in head.weight[: head.size].split(16_384)]
        return torch.cat(parts, 1).log_softmax(-1)

    log_p = log_softmax(problem.student_hidden, problem.student_head)
    log_q = log_softmax(problem.teacher_hidden, problem.teacher_head)
    p = log_p.exp()
    q, log_m = log_q.exp(), torch.logaddexp(log_p, log_q) - math.log(2.0)
    return {
        "reverse_kl": (p * (log_p - log_q)).sum(1),
        "entropy": -(p * log_p).sum(1),
        "student_logprob": log_p.gather(1, ids)[:, 0],
        "teacher_logprob": log_q.gather(1, ids)[:, 0],
        "forward_kl": (q * (log_q - log_p)).sum(1),
        "jensen_shannon": 0.5 * ((p * (log_p - log_m)).sum(1) + (q * (log_q - log_m)).sum(1)),
    }


class Ceiling:
    """The matrix unit's own rate, measured in turns with a candidate.

    A GPU at its power limit changes its clock by 15 % within seconds, so two rates compare only if they are taken in
    the same seconds. Each turn is one call of the candidate and about as long a run of plain matrix products.
    """

    def __init__(self) -> None:
        size = 8192 if ON_GPU else 512
        self.tera = 2.0 * size**3 / 1e12
        self.left, self.right = (torch.randn(size, size, device=DEVICE).to(DTYPE) for _ in range(2))

    def products(self, count: int) -> None:
        for _ in range(count):
            self.left @ self.right.T

    def beside(self, run: Callable[[], Any], seconds: float = 0.8) -> tuple[float, float]:
        """(milliseconds of one call of `run`, TFLOP/s of plain products in between), medians in steady state."""
        run()
        call, product = timed(run), timed(lambda: self.products(8)) / 8
        count = max(1, min(round(call / product), round(50 / product)))
        turn = call + count * product
        for _ in range(max(2, round(300 / turn))):  # warm up: the clock settles within 0.3 s
            run()
            self.products(count)
        calls, products = [], []
        for _ in range(max(5, round(seconds * 1e3 / turn))):
            calls.append(timed(run))
            products.append(timed(lambda: self.products(count)) / count)
        return statistics.median(calls), self.tera / statistics.median(products) * 1e3


def timed(run: Callable[[], Any]) -> float:
    """Milliseconds of one call, on the device's own clock."""
    if not ON_GPU:
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    run()
    after.record()
    after.synchronize()
    return before.elapsed_time(after)


def memory_beyond_output(run: Callable[[], dict[str, Tensor]]) -> int | None:
    if not ON_GPU:
        return None
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before - sum(t.numel() * t.element_size() for t in result.values())


def evaluate(name: str, problem: Problem, run: Callable[[], dict[str, Tensor]], ceiling: Ceiling) -> dict[str, Any]:
    n, width = problem.student_hidden.shape
    result = run()
    rows = torch.linspace(0, n - 1, min(n, 64), device=DEVICE).long()
    truth = reference(problem, rows)
    errors = {key: float((result[key][rows].double() - truth[key]).abs().max()) for key in result}
    again = run()
    ms, tflops = ceiling.beside(run)
    floor = 4.0 * n * width * problem.student_head.size / tflops / 1e9
    row: dict[str, Any] = {
        "way": name, "tokens": n, "width": width, "vocabulary": problem.student_head.size,
        "heads": "shared" if problem.shared else "separate",
        "ms": ms, "ceiling_tflops": tflops, "floor_ms": floor, "of_ceiling": floor / ms,
        "memory_bytes": memory_beyond_output(run), "max_error": errors,
        "same_bits_again": all(torch.equal(result[key], again[key]) for key in result) if result else None,
    }  # fmt: skip
    if "reverse_kl" in result:
        small = truth["reverse_kl"] < 0.05
        relative = ((result["reverse_kl"][rows].double() - truth["reverse_kl"]) / truth["reverse_kl"]).abs()
        row["median_relative_error_of_small_kl"] = float(relative[small].median()) if small.any() else None
    print(describe(row), flush=True)
    return row


def describe(row: dict[str, Any]) -> str:
    memory = "-" if row["memory_bytes"] is None else f"{row['memory_bytes'] / 2**20:,.0f} MiB"
    error = f"{max(row['max_error'].values()):.1e}" if row["max_error"] else "-"
    small = row.get("median_relative_error_of_small_kl")
    return (
        f"{row['way'][:64]:64s} N {row['tokens']:6d} D {row['width']:5d} {row['heads']:8s} {row['ms']:9.2f} ms "
        f"{100 * row['of_ceiling']:6.1f} % of ceiling {memory:>12s}  error {error:>8s}  "
        f"small KL {'-' if small is None else f'{100 * small:.3f} %'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the results here, as JSON")
    arguments = parser.parse_args()
    widths, tokens, vocab = ((2560, 4096), (8192, 16_384, 32_768, 65_536), VOCAB) if ON_GPU else ((64,), (256,), 4000)
    ceiling, rows = Ceiling(), []
    for width in widths:
        for shared in (True, False):
            for n in tokens:
                problem = draw(n, width, vocab, shared)
                rows.append(evaluate("gear_rl fused" if ON_GPU else "gear_rl chunked", problem, ours(problem), ceiling))
                if ON_GPU and n == tokens[0]:
                    with patch.object(fused, "_gluon", lambda: False):
                        rows.append(evaluate("gear_rl fused, portable kernel", problem, ours(problem), ceiling))
                del problem
    problem = draw(tokens[0], widths[0], vocab, shared=True)
    rows.append(evaluate("gear_rl chunked, 256 MiB", problem, ours(problem, backend="chunked"), ceiling))
    rows.append(evaluate("gear_rl naive reference", problem, ours(problem, backend="naive"), ceiling))
    padded = Head(problem.student_head.weight, vocab_size=vocab - 267)
    masked = Problem(
        problem.student_hidden, problem.teacher_hidden, padded, padded, problem.token_ids % padded.size, 1.0, 1
    )
    extra = ours(problem, extra=("forward_kl", "jensen_shannon"))
    if ON_GPU:
        rows.append(evaluate("gear_rl fused, 267 padded rows masked", masked, ours(masked), ceiling))
        rows.append(evaluate("gear_rl fused, with forward KL and Jensen–Shannon", problem, extra, ceiling))
        for peer in peers(problem):
            rows.append(evaluate(peer.name, problem, peer.run, ceiling))
    report = {"command": " ".join(["python", *sys.argv]), "machine": machine(), "rows": rows}
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")
        print(f"wrote {arguments.out}")


def ours(problem: Problem, **options: Any) -> Callable[[], dict[str, Tensor]]:
    return lambda: token_divergence(
        problem.student_hidden,
        problem.teacher_hidden,
        problem.student_head,
        problem.token_ids,
        problem.teacher_head,
        **options,
    ).items()


def machine() -> dict[str, str]:
    versions = {"python": platform.python_version(), "torch": torch.__version__, "device": platform.processor()}
    if ON_GPU:
        import triton

        versions |= {"triton": triton.__version__, "device": torch.cuda.get_device_name()}
    return versions


if __name__ == "__main__":
    main()
