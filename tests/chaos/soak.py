"""Does a long run stay as it began? Trains and judges in a loop in one process; memory, open files, threads and times over it.

    python tests/chaos/soak.py --seconds 3600 --answers 10000 --out soak.json --svg soak.svg

Each round trains a run with `gear train`, and judges answers by math-verify in its worker processes where that is installed.
Flat: over the second half, a straight line through each measure rises by less than its tolerance. What a run takes and gives
back at its end is not seen between rounds, so its growth from the first quarter to the last step is a measure of its own.
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
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

for name, value in {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1",
                    "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():  # fmt: skip
    os.environ.setdefault(name, value)
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]

from scenes import settings
from soak_picture import picture
from tally import about, resident_mb

TOLERANCE = {"memory_mb": 0.05, "worker_memory_mb": 0.10, "open_files": 0.0, "threads": 0.0, "processes": 0.0,
             "step_seconds": 0.15, "seconds_per_answer": 0.25}  # fmt: skip
"""How far a measure may rise over the second half of the run, as a share of its mean there; times are noisy."""
MOST_GROWTH = 0.02
"""Of memory within a run, as a share of it: the median over runs."""
RECORD_MB, KEPT = 0.5, 2
"""Bounds of a run's record and of the number of its checkpoints."""
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
        "threads": float(len(os.listdir("/proc/self/task"))),
        "processes": float(len(children)),
    }


class Trainings:
    """`gear train` in this process, again and again."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.memory: list[float] = []
        """After each step of the run."""

    def one(self, seed: int) -> dict[str, float]:
        """seconds of a step (the fastest half of them), and by which share memory grew within the run."""
        from gear_rl.cli.main import main

        shutil.rmtree(self.folder, ignore_errors=True)
        self.memory = []
        options = settings(
            "train.eval_rows=8", f"train.steps={self.steps}", "train.checkpoint_every=20", "train.record_every=5",
            f"train.keep_checkpoints={KEPT}", f"train.record_megabytes={RECORD_MB}",
        )  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), self._watched():
            code = main(["train", *options, "--seed", str(seed), "--out", str(self.folder)])
        if code != 0:
            raise SystemExit(f"a training ended with exit code {code}")
        times = sorted(json.loads(line)["step_time"] for line in (self.folder / "metrics.jsonl").read_text().splitlines())
        early = self.memory[len(self.memory) // 4]
        return {
            "step_seconds": sum(times[: max(1, len(times) // 2)]) / max(1, len(times) // 2),
            "growth_in_run": (self.memory[-1] - early) / early,
            "folder_mb": sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file()) / 1e6,
            "record_mb": (self.folder / "rollouts.jsonl").stat().st_size / 1e6,
            "checkpoints": float(len(list((self.folder / "checkpoints").glob("checkpoint-*")))),
        }

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        from gear_rl.training.progress import TerminalProgress

        step = TerminalProgress.step

        def watched(*args: Any) -> None:
            self.memory.append(resident_mb())
            step(*args)

        TerminalProgress.step = watched
        try:
            yield
        finally:
            TerminalProgress.step = step


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
    add("--steps", type=int, default=100, help="training steps of a round")
    add("--out", type=Path)
    add("--svg", type=Path, help="a picture of it")
    args = parser.parse_args()
    began, rows, folder, answers = time.time(), list[dict[str, Any]](), Path(tempfile.mkdtemp(prefix="gear-soak-")), Answers()
    trainings = Trainings(folder / "run", args.steps)
    try:
        while time.time() - began < args.seconds or len(rows) < 4:
            share = min(1.0, (time.time() - began) / args.seconds * 1.05 + 0.01)
            trained = trainings.one(len(rows))
            judged = answers.some(max(20, min(1000, round(share * args.answers) - answers.count)))
            row = {**measures(began), **trained, "seconds_per_answer": judged, "answers": answers.count}
            rows.append(row)
            print("  ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
    finally:
        answers.close()
        shutil.rmtree(folder, ignore_errors=True)
    rises = {name: risen(rows, name) for name in TOLERANCE} | {"growth_in_run": median(r["growth_in_run"] for r in rows)}
    allowed = TOLERANCE | {"growth_in_run": MOST_GROWTH}
    uneven = [name for name, rise in rises.items() if rise > allowed[name]]
    for name, rise in rises.items():
        print(f"{name:20s} {100 * rise:+6.1f} %, allowed {100 * allowed[name]:.0f} %{'  NOT FLAT' if name in uneven else ''}")
    # The record ends with the step that passes its bound.
    unbounded = max(r["record_mb"] for r in rows) > 2 * RECORD_MB or max(r["checkpoints"] for r in rows) > KEPT
    print(f"record {max(r['record_mb'] for r in rows):.2f} MB, bound {RECORD_MB}; checkpoints at most "
          f"{max(r['checkpoints'] for r in rows):.0f}, bound {KEPT}{'  NOT BOUNDED' if unbounded else ''}")  # fmt: skip
    report = {"harness": "soak", **about(), "rounds": len(rows), "seconds": round(time.time() - began),
              "steps": len(rows) * args.steps, "answers": answers.count, "risen": rises, "tolerance": allowed,
              "not_flat": uneven + ["record or checkpoints"] * unbounded, "rows": rows}  # fmt: skip
    if args.out is not None:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    if args.svg is not None:
        args.svg.write_text(picture(report))
    return int(bool(report["not_flat"]))


if __name__ == "__main__":
    sys.exit(main())
