"""Does a long run stay as it began? Trains and judges in a loop in one process; memory, open files, threads and times over it.

    python tests/chaos/soak.py --seconds 3600 --answers 10000 --out soak.json

Each round trains a short run with `gear train`, and judges answers by math-verify in its worker processes where that is
installed. Flat: over the second half, a straight line through each measure rises by less than its tolerance.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

for name, value in {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1",
                    "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():  # fmt: skip
    os.environ.setdefault(name, value)
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]

from scenes import settings
from tally import resident_mb

TOLERANCE = {"memory_mb": 0.05, "worker_memory_mb": 0.10, "open_files": 0.0, "threads": 0.0, "processes": 0.0,
             "step_seconds": 0.15, "seconds_per_answer": 0.25}  # fmt: skip
"""How far a measure may rise over the second half of the run, as a share of its mean there; times are noisy."""
ANSWERS = [
    (r"\frac{1}{2}", r"so \boxed{0.5}"), ("5", r"\boxed{5}"), ("x^2+1", r"\boxed{1+x^2}"), ("7", "I do not know"),
    ("12", r"\boxed{\frac{24}{2}}"), ("3", r"\boxed{" + "(" * 50 + "}"), ("100", r"\boxed{10^2}"),
    (r"\sqrt{2}", r"\boxed{1.5}"),
]  # fmt: skip


def measures(began: float) -> dict[str, float]:
    children = [int(pid) for t in Path("/proc/self/task").iterdir() for pid in (t / "children").read_text().split()]
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in children]
    return {
        "seconds": time.time() - began,
        "memory_mb": resident_mb(),
        "worker_memory_mb": sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "open_files": float(len(os.listdir("/proc/self/fd"))),
        "threads": float(threading.active_count()),
        "processes": float(len(children)),
    }


def train_once(folder: Path, steps: int, seed: int) -> float:
    """A short `gear train` in this process; seconds a step, the fastest half of them."""
    from gear_rl.cli.main import main

    shutil.rmtree(folder, ignore_errors=True)
    options = settings("train.eval_rows=8", f"train.steps={steps}", "train.checkpoint_every=20", "train.record_every=5")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = main(["train", *options, "--seed", str(seed), "--out", str(folder)])
    if code != 0:
        raise SystemExit(f"a training ended with exit code {code}")
    times = sorted(json.loads(line)["step_time"] for line in (folder / "metrics.jsonl").read_text().splitlines())
    return sum(times[: max(1, len(times) // 2)]) / max(1, len(times) // 2)


class Answers:
    """Judged by math-verify, each in its isolated process."""

    def __init__(self) -> None:
        self.count, self.judge = 0, None
        if importlib.util.find_spec("math_verify"):
            from gear_rl.tasks.workers.judging import Judge

            self.judge = Judge("math")

    def some(self, count: int) -> float:
        """Seconds an answer."""
        if self.judge is None:
            return 0.0
        from gear_rl.tasks.maths.judging import is_right

        began = time.time()
        for _ in range(count):
            reference, answer = ANSWERS[self.count % len(ANSWERS)]
            is_right(self.judge, reference, answer, True)
            self.count += 1
        return (time.time() - began) / max(1, count)

    def close(self) -> None:
        if self.judge is not None:
            self.judge.close()


def risen(rows: list[dict[str, float]], name: str) -> float:
    """By how much the straight line through the second half rises over it, as a share of the mean there."""
    half = rows[len(rows) // 2 :]
    xs, ys = [row["seconds"] for row in half], [row[name] for row in half]
    middle, mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - middle) ** 2 for x in xs)
    if not spread or not mean:
        return 0.0
    slope = sum((x - middle) * (y - mean) for x, y in zip(xs, ys, strict=True)) / spread
    return slope * (xs[-1] - xs[0]) / mean


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--seconds", type=float, default=3600.0)
    add("--answers", type=int, default=10_000, help="answers judged, evenly over the time (less if time runs out)")
    add("--steps", type=int, default=40, help="training steps of a round")
    add("--out", type=Path)
    args = parser.parse_args()
    began, rows, folder, answers = time.time(), list[dict[str, Any]](), Path(tempfile.mkdtemp(prefix="gear-soak-")), Answers()
    try:
        while time.time() - began < args.seconds or len(rows) < 4:
            share = min(1.0, (time.time() - began) / args.seconds * 1.05 + 0.01)
            step = train_once(folder / "run", args.steps, len(rows))
            judged = answers.some(max(20, min(1000, round(share * args.answers) - answers.count)))
            row = {**measures(began), "step_seconds": step, "seconds_per_answer": judged, "answers": answers.count}
            rows.append(row)
            print("  ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
    finally:
        answers.close()
        shutil.rmtree(folder, ignore_errors=True)
    rises = {name: risen(rows, name) for name in TOLERANCE}
    uneven = [name for name, rise in rises.items() if rise > TOLERANCE[name]]
    for name, rise in rises.items():
        print(f"{name:20s} {100 * rise:+6.1f} % over the second half, allowed {100 * TOLERANCE[name]:.0f} %"
              f"{'  NOT FLAT' if name in uneven else ''}")  # fmt: skip
    if args.out is not None:
        report = {"harness": "soak", "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]), "rounds": len(rows),
                  "seconds": round(time.time() - began), "steps": len(rows) * args.steps, "answers": answers.count,
                  "risen": rises, "tolerance": TOLERANCE, "not_flat": uneven, "rows": rows}  # fmt: skip
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    return int(bool(uneven))


if __name__ == "__main__":
    sys.exit(main())
