"""Does a frozen teacher keep GEAR from collapsing on the workshop in words? `python benchmarks/words_teacher.py FILE`.

The file is what `words.py teacher --out` wrote: GEAR (α 4, 3e-5, at which six of ten earlier runs with the answer alone
collapsed) with the answer alone and with right hints, once with the policy's own weights as its teacher and once with those of
the start, the same seeds for each. Every run is shown and none is chosen. The starting point's success comes from `words.py
gate --out`: a run has collapsed if it ends below half of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
from pathlib import Path
from statistics import mean

from differences import signed
from words_drift import late
from words_pooled import HINTS
from words_rates import success
from words_runs import Run as Planned
from words_runs import make_run
from words_settings import Run

ARM, RATE = "gear_alpha4", 3e-5
TEACHERS = ("base", "live")
"""`train.teacher`: the starting weights, and the policy's own (the default)."""


def plan(args: argparse.Namespace, train: Run, task: Run) -> list[Planned]:
    """Seed by seed; the answer alone first. The frozen teacher's runs are known by a suffix of the arm."""
    return [
        dataclasses.replace(
            make_run(args, {**train, "teacher": teacher}, task, ARM, hint, RATE, seed), arm=named(teacher)
        )
        for seed, hint, teacher in itertools.product(args.seeds, ("answer", "calls"), TEACHERS)
    ]


def named(teacher: str) -> str:
    return ARM if teacher == "live" else f"{ARM}_{teacher}"


def table(runs: list[Run], start: float | None = None) -> str:
    """A row per kind of hint and teacher. `start`: true success before training, in %."""
    found: dict[tuple[str, str], dict[int, Run]] = {}
    for run in sorted(runs, key=lambda run: run["seed"]):
        found.setdefault((run["hint"], run["arm"]), {})[run["seed"]] = run
    heads = ["hint", "teacher", "sampled, by seed", "mean", "greedy", "over live, each pair", "late divergence", "collapsed"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for hint, teacher in itertools.product(("answer", "calls"), reversed(TEACHERS)):
        mine, live = found.get((hint, named(teacher)), {}), found.get((hint, named("live")), {})
        if not mine:
            continue
        values = [100 * success(run) for run in mine.values()]
        pairs = [100 * (success(run) - success(live[seed])) for seed, run in mine.items() if seed in live]
        cells = [
            HINTS[hint],
            teacher,
            ", ".join(f"{value:.1f}" for value in values),
            f"{mean(values):.1f}",
            f"{mean(100 * success(run, 'greedy') for run in mine.values()):.1f}",
            "" if teacher == "live" else ", ".join(map(signed, pairs)),
            f"{mean(map(late, mine.values())):.3f}",
            "" if start is None else f"{sum(value < start / 2 for value in values)} of {len(values)}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--start", type=float, help="true success before training, in %%")
    args = parser.parse_args()
    print(table(json.loads(args.file.read_text())["runs"], args.start))
