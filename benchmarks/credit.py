"""How long credit takes on the CPU, and that it grows linearly with the action tokens.

    OMP_NUM_THREADS=1 python benchmarks/credit.py --out benchmarks/results/credit_cpu.json

Each time is the median of several runs of what a training step pays: building `Rollouts`, with all its checks, and
`credit()`. Rollouts are agentic: a third of the positions are prompt, tool output and padding, and lengths differ.

The time per token is level up to a million tokens and then steps up, by three quarters at most. That step is the C
library, which returns buffers above 32 MB to the system after each use: with MALLOC_MMAP_THRESHOLD_=4294967296 and
MALLOC_TRIM_THRESHOLD_=8589934592 in the environment, time stays proportional to tokens throughout.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import torch

import gear_rl
from gear_rl import METHODS, Rollouts, credit

SIZES = (125_000, 250_000, 500_000, 1_000_000, 2_000_000)
TARGET_TOKENS, TARGET_SECONDS = 1_000_000, 0.5
OF_PEERS = (
    "turn_reward", "answer_logprob", "answer_logprob_start", "frozen_answer_logprob", "frozen_answer_logprob_start",
    "hindsight_logprob", "wrong_teacher_logprob", "forward_kl", "values", "request_ids", "saliency_mask", "saliency_grad",
    "answer_saliency", "answer_box", "span_distance", "sibling_length", "prefix_value",
    "judged_turn",
)  # fmt: skip


def agentic_batch(tokens: int, positions: int = 1500, group_size: int = 8, seed: int = 0) -> dict:
    """Everything `Rollouts` takes, with about `tokens` action tokens in turns of about 20."""
    g = torch.Generator().manual_seed(seed)
    B = math.ceil(tokens / (positions * 2 / 3 * 0.949) / group_size) * group_size
    action = torch.arange(positions) % 30 < 20  # a turn of 20, then a tool result of 10
    lengths = torch.randint(positions * 9 // 10, positions + 1, (B, 1), generator=g)
    logprob = {
        name: -(torch.rand(B, positions, generator=g) ** 3) * 4 for name in ("student_logprob", "teacher_logprob")
    }
    return dict(
        action_mask=action & (torch.arange(positions) < lengths),
        rewards=torch.randint(0, 2, (B,), generator=g).float(),
        group_ids=torch.arange(B) // group_size,
        token_ids=torch.randint(0, 150_000, (B, positions), generator=g),
        signals=logprob
        | {
            "reverse_kl": torch.rand(B, positions, generator=g) ** 6 * 3,
            "entropy": torch.rand(B, positions, generator=g) ** 4 * 2,
            "decision": torch.randint(-1, 2, (B, positions), generator=g).float(),
            "tool_call": torch.randint(0, 2, (B, positions), generator=g).float(),
            "anchor_state": torch.randint(0, 9, (B, positions), generator=g).float(),
        }
        | {name: torch.rand(B, positions, generator=g) for name in OF_PEERS}
        | {"request_ids": (torch.arange(positions) // 300).float().expand(B, -1) + 1},
        channels={name: torch.rand(B, generator=g) for name in ("task", "style")},
    )


def median_seconds(name: str, batch: dict, options: dict, repeats: int) -> float:
    unread = {"tool_call", "anchor_state", *OF_PEERS} - set(METHODS[name].needs)  # a step has what its method needs
    batch = {**batch, "signals": {k: v for k, v in batch["signals"].items() if k not in unread}}
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        credit(name, Rollouts(**batch), **options)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])  # the first one warms up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    args = parser.parse_args()

    cases: list[tuple[str, dict]] = []
    for name in METHODS:
        cases.append((name, {}))
        if name == "gear":
            cases.append((name, {"quantile": 0.9}))  # sorts each rollout, where quantile 1 takes its maximum
    batches = [agentic_batch(tokens) for tokens in SIZES]
    counts = [int(batch["action_mask"].sum()) for batch in batches]
    threads = torch.get_num_threads()
    print(f"seconds, {threads} thread{'s' if threads > 1 else ''}; columns are action tokens")
    print(f"{'':26}" + "".join(f"{n:>11,}" for n in counts) + "   tokens/s at 1M   ns/token from 125k to 2M")
    rows = []
    for name, options in cases:
        seconds = [median_seconds(name, batch, options, args.repeats) for batch in batches]
        at_target = SIZES.index(TARGET_TOKENS)
        per_second = counts[at_target] / seconds[at_target]
        nanoseconds = [round(s / n * 1e9, 1) for s, n in zip(seconds, counts, strict=True)]
        label = name + "".join(f" {k}={v}" for k, v in options.items())
        print(f"{label:26}" + "".join(f"{s:11.4f}" for s in seconds) + f"{per_second:17,.0f}", end="")
        print("   " + " ".join(f"{x:.0f}" for x in nanoseconds), flush=True)
        rows.append(
            dict(method=name, options=options, seconds=[round(s, 5) for s in seconds], ns_per_token=nanoseconds)
        )

    slowest = max(row["seconds"][SIZES.index(TARGET_TOKENS)] for row in rows)
    met = slowest < TARGET_SECONDS
    print(f"slowest at a million tokens: {slowest:.3f} s; target {TARGET_SECONDS} s: {'met' if met else 'MISSED'}")
    if args.out:
        result = dict(
            benchmark="credit",
            command=f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')} python " + " ".join(sys.argv),
            versions=dict(gear_rl=gear_rl.__version__, torch=torch.__version__, python=platform.python_version()),
            machine=dict(processor=processor(), threads=threads),
            repeats=args.repeats,
            statistic="median",
            target=dict(action_tokens=TARGET_TOKENS, seconds=TARGET_SECONDS, met=met),
            action_tokens=counts,
            rows=rows,
        )
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if met else 1)


def processor() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
