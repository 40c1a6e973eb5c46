"""What each method loses where hints are not what they seem: `python benchmarks/regret.py DIR/hint_forms --out runs.json`.

Reads the finished runs of the table `hint_forms` of `evidence.py`, also of columns that are not complete: a column's mean
is over the worlds and seeds that all of its methods have. Regret is the distance to the best method of a column; GRPO and
the columns' methods count, the oracle does not. A cell has few runs: read differences below ten points as nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

from gear_rl.compare.plan import FIRST_TUNING_SEED
from gear_rl.compare.runner import is_finished
from gear_rl.compare.tuning import training_reward

NO_HINT = "no_hint"


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """Of every column, tuning runs too, in a line each."""
    runs = []
    for path in sorted(folder.glob("*/runs/*/config.json")):
        if not is_finished(path.parent):
            continue
        config = json.loads(path.read_text())
        after = json.loads((path.parent / "evaluation.json").read_text())["after"]
        credit = dict(config["credit"])
        runs.append({
            "column": path.parents[2].name, "method": credit.pop("name").removesuffix("+sibling_hint"),
            "rate": config["train"]["learning_rate"], "strength": credit, "world": config["task"]["world"],
            "seed": config["seed"], "steps": config["train"]["steps"], "success": after["sampled"]["success"],
            "greedy": after["greedy"]["success"], "training_reward": round(training_reward(path.parent), 4),
        })  # fmt: skip
    return runs


def means(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Column → method → mean true success in %, over what all methods of the column have."""
    found: dict[str, dict[str, dict[tuple[int, int], float]]] = {}
    for run in runs:
        if run["seed"] < FIRST_TUNING_SEED:
            place = run["world"], run["seed"]
            found.setdefault(run["column"], {}).setdefault(run["method"], {})[place] = 100 * run["success"]
    without = found.pop(NO_HINT, {})
    result = {}
    for column, methods in found.items():
        methods |= {name: cells for name, cells in without.items() if name == "grpo"}
        common = set.intersection(*(set(cells) for cells in methods.values()))
        result[column] = {name: mean(cells[place] for place in common) for name, cells in methods.items()} if common else {}
    return result


def table(columns: dict[str, dict[str, float]]) -> str:
    """Markdown: success of each method in each column, and its worst regret."""
    methods = list(dict.fromkeys(name for cells in columns.values() for name in cells))
    lines = [f"| method | {' | '.join(columns)} | worst regret |", "|---" * (len(columns) + 2) + "|"]
    for name in methods:
        regrets = {c: max(cells.values()) - cells[name] for c, cells in columns.items() if name in cells}
        worst = max(regrets, key=lambda c: regrets[c])
        cells = [f"{columns[c][name]:.1f}" if name in columns[c] else "–" for c in columns]
        lines.append(f"| {name} | {' | '.join(cells)} | {regrets[worst]:.1f} ({worst}) |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    runs = read_runs(given.folder)
    if given.out:
        lines = ",\n".join(json.dumps(run) for run in runs)
        given.out.write_text(f'{{"runs": [\n{lines}\n]}}\n')
    print(table(means(runs)))
