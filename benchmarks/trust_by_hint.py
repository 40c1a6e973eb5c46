"""Trust in hints by kind of hint, as every run with a hint logs it: `python benchmarks/trust_by_hint.py --out trust.json`.

Trust is the correlation of following the hinted self and winning (`gear_rl.assignment.trust`). It is said to tell right hints
from wrong ones without labels. This trains GEAR at its defaults on the embedded task with each kind of hint, and shows T over
the run, and from which step on the evidence excludes 0.03 (the guard for hints rings).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

from embedded_run import train
from evidence_tables import HINTS, TITLES

from gear_rl.files import write_json
from gear_rl.scoring.guards import FIRST_STEPS, LEAST_TRUST

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("gear", options) for name, options in HINTS.items()},
    "sibling": ("gear+sibling_hint", {}),
}
"""Name → method and options of the task."""
SHOWN = (20, 60, 120)
"""Steps."""


def measure(kind: str, world: int, seed: int, steps: int) -> dict[str, Any]:
    method, options = KINDS[kind]
    settings = {"train.steps": steps, "train.eval_rows": 2, "train.record_every": 10**6, "task.world": world}
    settings |= {f"task.{name}": value for name, value in options.items()}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(run, method, seed, settings)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    most = [row["guards/trust"] for row in rows]
    return {
        "kind": kind, "world": world, "seed": seed, "trust": [round(row["hints/trust"], 4) for row in rows],
        "rang_at": next((i for i, value in enumerate(most, 1) if value < LEAST_TRUST and i > FIRST_STEPS), None),
        "success": round(mean(row["success"] for row in rows[-20:]), 4),
    }  # fmt: skip


def table(runs: list[dict[str, Any]]) -> str:
    steps = [step for step in SHOWN if step <= len(runs[0]["trust"])]
    lines = ["| hint | " + " | ".join(f"T, step {step}" for step in steps) + " | the guard rang |"]
    lines.append("|---" * (len(steps) + 2) + "|")
    for kind in KINDS:
        if found := [run for run in runs if run["kind"] == kind]:
            cells = []
            for step in steps:
                values = [run["trust"][step - 1] for run in found]
                cells.append(f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})")
            rang = sorted(run["rang_at"] for run in found if run["rang_at"])
            when = f", step {' to '.join(map(str, dict.fromkeys((rang[0], rang[-1]))))}" if rang else ""
            lines.append(f"| {TITLES[kind]} | " + " | ".join(cells) + f" | {len(rang)} of {len(found)}{when} |")
    return "\n".join(lines).replace("-0.", "−0.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, default=max(SHOWN))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    cells = [(kind, world, seed) for seed in args.seeds for world in args.worlds for kind in args.kinds]
    with ThreadPoolExecutor(args.workers) as pool:
        runs = list(pool.map(lambda cell: measure(*cell, args.steps), cells))
    write_json(args.out, {"steps": args.steps, "runs": runs})
    print(table(runs))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
