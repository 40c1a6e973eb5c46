"""What is left of a method when outcomes are shuffled: `python benchmarks/shuffled_outcomes.py TABLE.json …`.

Reads the tables `controls` and `controls_of_peers` of `evidence.py`, a row for each method that has both kinds of run. GRPO
with shuffled outcomes is of the same rate where the table has it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

from differences import signed

SHUFFLED = "+shuffled_outcomes"
NAMES = {"shuffled_outcomes": "gear" + SHUFFLED}
Runs = dict[tuple[int, int], float]
"""(world, seed) → true success in %."""


def by_method(runs: list[dict[str, Any]]) -> dict[str, Runs]:
    found: dict[str, Runs] = {}
    for run in runs:
        found.setdefault(NAMES.get(run["method"], run["method"]), {})[run["world"], run["seed"]] = 100 * run["success"]
    return found


def rows_of(runs: list[dict[str, Any]]) -> list[str]:
    found = by_method(runs)
    reference = found["grpo" + SHUFFLED]
    rows = []
    for method in (name for name in found if name + SHUFFLED in found and name != "grpo"):
        plain, shuffled = found[method], found[method + SHUFFLED]
        apart = [value - reference[place] for place, value in shuffled.items()]
        over = f"{signed(mean(apart))} ({signed(min(apart))} to {signed(max(apart))})"
        means = [f"{mean(values.values()):.1f}" for values in (found["grpo"], plain, reference, shuffled)]
        rows.append(f"| {method} | {' | '.join(means)} | {over} | {sum(x > 0 for x in apart)} of {len(apart)} |")
    return rows


def table(columns: list[list[dict[str, Any]]]) -> str:
    heads = ["method", "grpo", "the method", "grpo, shuffled", "the method, shuffled"]
    heads += ["over shuffled grpo (least to most)", "ahead in"]
    rows = [row for runs in columns for row in rows_of(runs)]
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+")
    files = [json.loads(path.read_text()) for path in parser.parse_args().tables]
    print(table([column["runs"] for file in files for column in file["columns"].values()]))
