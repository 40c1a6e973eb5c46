"""What a step of each method costs over a GRPO step of the same engine, on the embedded default.

    python benchmarks/method_cost.py [--rounds 2] [--steps 8] [--only NAME ...]
        [--out benchmarks/results/method_cost_cpu.json]

`python docs/make_results.py` puts the result into docs/methods.

Every round trains every method for a few steps from the same start, GRPO first. Counted is the processor time of a step
(one thread), which a busy machine troubles less than the clock; the median step of each method counts.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from gear_rl.methods import METHODS
from gear_rl.models import load_model
from gear_rl.records.writer import RecordWriter
from gear_rl.training.config import TrainConfig
from gear_rl.training.run import prepare, versions
from gear_rl.training.run_folder import RunFolder
from gear_rl.training.trainer import build_trainer

WARM_UP = 2


class Silent:
    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def build(credit: str, folder: Path, steps: int) -> Any:
    train = {"steps": steps, "checkpoint_every": 10**6, "record_every": 10**6, "device": "cpu"}
    config = TrainConfig.from_dict({"credit": credit, "train": train})
    task, path = prepare(config)
    run = RunFolder.create(folder, config.as_dict())
    model, tokenizer = load_model(path, "cpu")
    return build_trainer(config, run, task, model, tokenizer, RecordWriter(run.rollouts, {}), Silent())


def measure(credit: str, steps: int) -> list[float]:
    """Seconds of processor time of each step after the first few."""
    with tempfile.TemporaryDirectory() as scratch:
        trainer = build(credit, Path(scratch) / "run", steps + WARM_UP)
        step, times = trainer.training_step, list[float]()

        def measured(*args: Any) -> Any:
            began = time.process_time()
            out = step(*args)
            times.append(time.process_time() - began)
            return out

        trainer.training_step = measured
        trainer.train()
    return times[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="measured steps of each method in each round")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--note", default="The machine did nothing else.", help="about the machine")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = list(dict.fromkeys(["grpo", *options.only]))
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for name in names:
            times[name] += measure(name, options.steps)
    grpo = statistics.median(times["grpo"])
    methods = {}
    for name in names:
        low, middle, high = statistics.quantiles(times[name], n=4)
        cost = METHODS[name].cost
        methods[name] = {
            "declared": f"{cost.forwards}+{cost.backwards}", "ms": 1e3 * middle, "quartiles": [1e3 * low, 1e3 * high],
            "ratio": middle / grpo,
        }  # fmt: skip
        print(f"{name:18s} {methods[name]['declared']:>5s} {1e3 * middle:8.1f} ms   × {middle / grpo:.2f}")
    result = {
        "command": shlex.join(["python", *sys.argv]), "note": options.note, "versions": versions(),
        "steps": options.rounds * options.steps, "methods": methods,
    }  # fmt: skip
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
