"""Can the embedded task tell methods apart? Methods × learning rates × seeds, each method at its best learning rate.

    python benchmarks/yardstick.py --methods grpo,gear,oracle --learning-rates 3e-4,6e-4,1.2e-3 --seeds 3 --workers 2

The learning rate of a method is chosen by true success *during training* (mean over all steps); the table shows true
success on unseen problems after it, with the standard error over seeds. Headroom is the oracle's lead over GRPO.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

from gear_rl.training import versions

Job = tuple[str, float, int, dict, dict, dict]


def train_one(job: Job) -> dict:
    os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1")
    from gear_rl.config import TrainConfig
    from gear_rl.run_folder import RunFolder
    from gear_rl.training import prepare, run

    method, rate, seed, task_options, credit_options, train = job
    config = TrainConfig.from_dict(
        {
            "credit": {"name": method, **(credit_options if method == "gear" else {})},
            "seed": seed,
            "task": task_options,
            "train": {
                **train,
                "learning_rate": rate,
                "checkpoint_every": 100_000,
                "record_every": 100_000,
                "device": "cpu",
            },
        }
    )
    task, model = prepare(config)
    began = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder.create(Path(scratch) / "run", config.as_dict())
        run(config, folder, task, model, _Silent())
        evaluation = json.loads(folder.evaluation.read_text())
        curve = [json.loads(line)["success"] for line in folder.metrics.read_text().splitlines()]
    row = {
        "method": method,
        "learning_rate": rate,
        "seed": seed,
        "while_training": statistics.mean(curve),
        **evaluation,
    }
    return {
        **row,
        "curve": [round(statistics.mean(curve[i : i + 25]), 4) for i in range(0, len(curve), 25)],
        "seconds": time.time() - began,
    }


class _Silent:
    def line(self, text: str) -> None: ...
    def step(self, step: int, logs: dict) -> None: ...
    def summary(self, evaluation: dict, folder: object) -> None: ...
    def progress(self, total: int, done: int) -> object:
        import contextlib

        return contextlib.nullcontext()


def table(rows: list[dict]) -> list[dict]:
    lines = []
    for method in dict.fromkeys(r["method"] for r in rows):
        by_rate: dict[float, list[dict]] = {}
        for row in rows:
            if row["method"] == method:
                by_rate.setdefault(row["learning_rate"], []).append(row)
        rate, best = max(by_rate.items(), key=lambda item: statistics.mean(r["while_training"] for r in item[1]))
        line = {"method": method, "learning_rate": rate, "seeds": len(best)}
        for name, values in (
            ("while_training", [r["while_training"] for r in best]),
            ("sampled", [r["after"]["sampled"]["success"] for r in best]),
            ("greedy", [r["after"]["greedy"]["success"] for r in best]),
            ("reward", [r["after"]["sampled"]["reward"] for r in best]),
        ):
            error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
            line[name], line[name + "_se"] = statistics.mean(values), error
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", default="grpo,gear,oracle")
    parser.add_argument("--learning-rates", default="3e-4,6e-4,1.2e-3")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--task", default="{}", help="task options as JSON")
    parser.add_argument("--credit", default="{}", help="options of gear as JSON")
    parser.add_argument("--train", default="{}", help="train options as JSON")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rates = [float(r) for r in options.learning_rates.split(",")]
    shared = [json.loads(getattr(options, name)) for name in ("task", "credit", "train")]
    jobs = [(m, r, s, *shared) for s, r, m in product(range(options.seeds), rates, options.methods.split(","))]
    rows = []
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for row in pool.imap_unordered(train_one, jobs):
            rows.append(row)
            what = f"{row['method']} lr {row['learning_rate']:g} seed {row['seed']}"
            scores = f"{row['while_training']:.3f} → {row['after']['sampled']['success']:.3f}"
            print(f"{len(rows)}/{len(jobs)} {what}: {scores} {row['seconds']:.0f}s", flush=True)
            if options.out:  # as it goes, so that nothing is lost
                facts = {"command": " ".join(sys.argv), "versions": versions(), "table": table(rows), "runs": rows}
                options.out.write_text(json.dumps(facts, indent=1))
    print(f"\n{'method':18s} lr       while training   sampled          greedy           reward")
    for line in table(rows):
        cells = "  ".join(
            f"{line[k]:.3f} ± {line[k + '_se']:.3f}  " for k in ("while_training", "sampled", "greedy", "reward")
        )
        print(f"{line['method']:18s} {line['learning_rate']:<8g} {cells}")


if __name__ == "__main__":
    main()
