"""Does the beginning of a training predict its end? Mean reward over the first steps of a run against true success after it.

    python benchmarks/audition_trials.py --runs evidence/headline/perfect/runs --out trials.json

What an audition is compared with in docs/audition.md. Methods are ranked within a setting: one warm start and kind of hint of
the language model (from benchmarks/results), or one world and seed of the embedded task (from the folder of `evidence.py`).
All methods of a setting see the same prompts in the same order, so that reward differs by what was learned. All of it is ours.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from audition_ranks import pooled
from audition_settings import FEWEST, RESULTS

from gear_rl.files import write_json

SHARES = (0.05, 0.1, 0.2, 0.4)
STARTS = ("words_smollm2_h200", "words_smollm2_second_h200", "words_smollm2_third_h200")
RATE = 3e-5
"""The language model's learning rate; with others only some methods were trained."""
Runs = dict[str, list[tuple[list[float], float]]]
"""Method → reward of each step and true success at the end, of each of its runs."""


def language_model() -> dict[str, Runs]:
    settings: dict[str, Runs] = defaultdict(lambda: defaultdict(list))
    for start in STARTS:
        for run in json.loads((RESULTS / f"{start}.json").read_text())["runs"]:
            if run["learning_rate"] == RATE:
                ends = (run["curves"]["reward"], run["after"]["sampled"]["success"])
                settings[f"{start} {run['hint']}"][run["arm"]].append(ends)
    return {name: dict(runs) for name, runs in settings.items() if len(runs) >= FEWEST}


def embedded(folder: Path) -> dict[str, Runs]:
    settings: dict[str, Runs] = defaultdict(lambda: defaultdict(list))
    for run in sorted(path.parent for path in folder.glob("*/evaluation.json")):
        config = json.loads((run / "config.json").read_text())
        if config["seed"] < 1000:  # the others are for tuning
            rewards = [json.loads(line)["reward"] for line in (run / "metrics.jsonl").read_text().splitlines()]
            success = json.loads((run / "evaluation.json").read_text())["after"]["sampled"]["success"]
            settings[f"{config['task']['world']} {config['seed']}"][config["credit"]["name"]].append((rewards, success))
    return {name: dict(runs) for name, runs in settings.items() if len(runs) >= FEWEST}


def predicted(settings: dict[str, Runs]) -> dict[str, Any]:
    """For each share of the steps: the rank correlation of its mean reward with true success, with its interval."""
    found: dict[str, Any] = {"settings": len(settings), "results": sum(map(len, settings.values()))}
    for share in SHARES:
        parts = []
        for name, runs in settings.items():
            reward = [mean(mean(r[: max(1, round(share * len(r)))]) for r, _ in ends) for ends in runs.values()]
            success = [mean(success for _, success in ends) for ends in runs.values()]
            parts.append((name, np.array(reward), np.array(success)))
        found[f"first {share:.0%}"] = pooled(parts)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, help="the embedded task's runs; without it, the language model alone")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result = {"command": "python benchmarks/audition_trials.py", "language model": predicted(language_model())}
    if args.runs:
        result["embedded task"] = predicted(embedded(args.runs))
    print(json.dumps(result, indent=1))
    if args.out:
        write_json(args.out, result)


if __name__ == "__main__":
    main()
