"""What a GEAR step costs over a GRPO step of the same engine, and where the extra goes.

    python benchmarks/step_cost.py [--steps 60] [--out benchmarks/results/step_cost_cpu.json]

Both train the embedded default, in turns (so that a busy machine troubles both alike), and the median step counts.
The floor is what no implementation with a separate teacher can avoid: one forward of the teacher over the rollouts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from gear_rl.models import load_model
from gear_rl.records.record import RecordWriter
from gear_rl.scoring import scorer as scorer_module
from gear_rl.training.config import TrainConfig
from gear_rl.training.run import build_trainer, prepare, versions
from gear_rl.training.run_folder import RunFolder

FLOOR = "teacher alone"


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


def timed(parts: dict[str, float], name: str, function: Any) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            parts[name] += time.perf_counter() - began

    return wrapper


def instrument(trainer: Any, parts: dict[str, float]) -> None:
    """Wrap what GEAR adds. Student and teacher are read in one pass; the floor is timed by reading the teacher alone, and
    that time is not counted as part of the step."""
    scorer = trainer.scorer
    read = scorer._hidden

    def hidden(sides: Any, *args: Any, **kwargs: Any) -> Any:
        states = timed(parts, "student and teacher", read)(sides, *args, **kwargs)
        timed(parts, FLOOR, read)(sides[-1:], *args, **kwargs)
        return states

    scorer._hidden = hidden
    scorer_module.token_divergence = timed(parts, "head and divergence", scorer_module.token_divergence)
    trainer._hinted_prompts = timed(parts, "hinted prompts", trainer._hinted_prompts)
    trainer.method.assign = timed(parts, "credit", trainer.method.assign)
    trainer._log_credit = timed(parts, "logging and guards", trainer._log_credit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=60, help="measured steps of each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warm_up, times, extra = 5, defaultdict(list), defaultdict(list)
    for _ in range(options.rounds):
        for credit in ("grpo", "gear"):
            with tempfile.TemporaryDirectory() as scratch:
                per_round = options.steps // options.rounds + warm_up
                trainer = build(credit, Path(scratch) / "run", per_round)
                parts: dict[str, float] = defaultdict(float)
                snapshots: list[dict[str, float]] = []
                if credit == "gear":
                    instrument(trainer, parts)
                step = trainer.training_step

                def measured(
                    *args: Any, step: Any = step, parts: Any = parts, snapshots: Any = snapshots, credit: str = credit
                ) -> Any:
                    parts.clear()
                    began = time.perf_counter()
                    out = step(*args)
                    times[credit].append(time.perf_counter() - began - parts.get(FLOOR, 0.0))
                    snapshots.append(dict(parts))
                    return out

                trainer.training_step = measured
                trainer.train()
                del times[credit][-per_round : -per_round + warm_up]
                for shot in snapshots[warm_up:]:
                    for name, seconds in shot.items():
                        extra[name].append(seconds)
    grpo, gear = (statistics.median(times[c]) for c in ("grpo", "gear"))
    parts_ms = {name: 1e3 * statistics.median(values) for name, values in extra.items()}
    floor = 1 + parts_ms.pop(FLOOR) / 1e3 / grpo
    result = {
        "command": "python " + " ".join(sys.argv), "versions": versions(), "steps": len(times["gear"]),
        "grpo_ms": 1e3 * grpo, "gear_ms": 1e3 * gear, "ratio": gear / grpo, "floor": floor, "extra_ms": parts_ms,
    }  # fmt: skip
    print(
        f"GRPO step {1e3 * grpo:.1f} ms   GEAR step {1e3 * gear:.1f} ms   ratio {gear / grpo:.3f}   "
        f"(floor, one teacher forward: {floor:.3f})"
    )
    for name, ms in sorted(parts_ms.items(), key=lambda item: -item[1]):
        print(f"  {name:20s} {ms:6.2f} ms   {100 * ms / 1e3 / grpo:5.1f} % of a GRPO step")
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
