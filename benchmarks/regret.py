"""What each method loses where hints are not what they seem: `python benchmarks/regret.py DIR/hint_forms --out runs.json`.

Reads the finished runs of the table `hint_forms` of `evidence.py`, or the file that this wrote; of several, such as
`hint_forms_peers` beside it, all runs together. Of two reported runs of the same method, column, world and seed the one in the
later file counts: put repeated tuning last. Columns need not be complete: a column's mean is over the worlds and seeds that all
of its methods have. Regret is the distance to the best method of a column; GRPO and the methods that read hints count, the
oracle does not. The interval of the worst regret is a bootstrap's, over the seeds of each column and world; which method is
best, and in which column a method is worst, are decided in each sample again. With few runs such an interval is too narrow, and
it says nothing of other worlds. `--by-world COLUMN` shows one column's worlds instead, `--by-kind` a row per column (without
`evidence_tables.PEERS`) and the worst regrets.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from statistics import mean, quantiles, stdev
from typing import Any

from differences import detectable, signed
from evidence_tables import PEERS, READERS, TITLES

from gear_rl.compare.plan import FIRST_TUNING_SEED
from gear_rl.compare.runner import is_finished
from gear_rl.compare.tuning import training_reward

NO_HINT = "no_hint"
Place = tuple[int, int]
"""World and seed."""


def read_runs(source: Path) -> list[dict[str, Any]]:
    """Of every column, tuning runs too, in a line each."""
    if source.is_file():
        return list(json.loads(source.read_text())["runs"])
    runs = []
    for path in sorted(source.glob("*/runs/*/config.json")):
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
        } | ({"teacher": config["train"]["teacher"]} if config["train"]["teacher"] else {}))  # fmt: skip
    return runs


Cells = dict[str, dict[str, dict[Place, float]]]
"""Column → method → (world, seed) → true success in %, of the places that all methods of the column have."""


def cells_of(runs: list[dict[str, Any]]) -> Cells:
    found: Cells = {}
    for run in runs:
        if run["seed"] < FIRST_TUNING_SEED and (run["method"] in READERS + PEERS or run["column"] == NO_HINT):
            place = run["world"], run["seed"]
            found.setdefault(run["column"], {}).setdefault(run["method"], {})[place] = 100 * run["success"]
    grpo = found.pop(NO_HINT, {}).get("grpo", {})
    result: Cells = {}
    for column, methods in found.items():
        methods |= {"grpo": grpo} if grpo else {}
        common = set.intersection(*(set(cells) for cells in methods.values()))
        if common:
            result[column] = {name: {p: cells[p] for p in sorted(common)} for name, cells in methods.items()}
    return result


def regrets(cells: Cells) -> dict[str, dict[str, float]]:
    """Method → column → distance to the best method's mean."""
    result: dict[str, dict[str, float]] = {}
    for column, methods in cells.items():
        of = {name: mean_of(values) for name, values in methods.items()}
        for name, value in of.items():
            result.setdefault(name, {})[column] = max(of.values()) - value
    return result


def mean_of(values: dict[Place, float], world: int | None = None) -> float:
    """Of one world, or of all."""
    chosen = [value for place, value in values.items() if world in (None, place[0])]
    return sum(chosen) / len(chosen)


def resampled(methods: dict[str, dict[Place, float]], draw: random.Random) -> dict[str, dict[Place, float]]:
    """Seeds drawn anew in each world, the same for all methods, whose runs are paired."""
    places = sorted(next(iter(methods.values())))
    worlds = [[place for place in places if place[0] == world] for world in sorted({world for world, _ in places})]
    drawn = [place for each in worlds for place in draw.choices(each, k=len(each))]
    return {name: {(place[0], i): values[place] for i, place in enumerate(drawn)} for name, values in methods.items()}


def worst_intervals(cells: Cells, resamples: int = 2000) -> dict[str, tuple[float, float]]:
    """Method → 95 % of the bootstrap's worst regrets."""
    draw = random.Random(0)
    found: dict[str, list[float]] = {}
    for _ in range(resamples):
        for name, by_column in regrets({column: resampled(methods, draw) for column, methods in cells.items()}).items():
            found.setdefault(name, []).append(max(by_column.values()))
    return {name: (quantiles(x, n=40)[0], quantiles(x, n=40)[-1]) for name, x in found.items()}


def beside_the_best(cells: Cells, method: str) -> str:
    """Markdown: the method less the best of the others in each column that has it, over pairs of the same world and seed."""
    heads = ["hint", "best other", f"{method} over it, mean (least to most)", "ahead in", "by world", "could be seen"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for column, methods in cells.items():
        if method not in methods or len(methods) < 2:
            continue
        best = max((name for name in methods if name != method), key=lambda name: mean_of(methods[name]))
        apart = {place: value - methods[best][place] for place, value in methods[method].items()}
        pairs = list(apart.values())
        worlds = {world: mean(x for place, x in apart.items() if place[0] == world) for world, _ in sorted(apart)}
        seen = f"{detectable(stdev(pairs), len(pairs)):.1f}" if len(pairs) > 2 else ""
        lines.append(
            f"| {column} | {best} | {signed(mean(pairs))} ({signed(min(pairs))} to {signed(max(pairs))}) "
            f"| {sum(x > 0 for x in pairs)} of {len(pairs)} "
            f"| {', '.join(f'{world}: {signed(x)}' for world, x in worlds.items())} | {seen} |"
        )
    return "\n".join(lines)


def by_world(methods: dict[str, dict[Place, float]], method: str) -> str:
    """Markdown, of one column: success of each method in each world, and how far `method` is behind the best there."""
    methods = {name: methods[name] for name in ("grpo", *READERS, *PEERS) if name in methods}
    lines = [f"| world | {' | '.join(methods)} | {method} behind the best |", "|---" * (len(methods) + 2) + "|"]
    for world in [*sorted({world for world, _ in next(iter(methods.values()))}), None]:
        of = {name: mean_of(values, world) for name, values in methods.items()}
        shown = [f"{value:.1f}" for value in of.values()]
        behind = max(of.values()) - of[method]
        lines.append(f"| {'all' if world is None else world} | {' | '.join(shown)} | {behind:.1f} |")
    return "\n".join(lines)


def by_kind(cells: Cells, method: str) -> str:
    """Markdown: a row per column of the table, with `method`'s distance to the best, over all runs and in each world."""
    heads = ["hint", "runs", "grpo", *READERS, f"{method} behind the best", "by world"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for column in (kind for kind in TITLES if kind in cells):
        methods = cells[column]
        of = {name: mean_of(methods[name]) for name in heads[2:-2]}
        best = max(of, key=lambda name: of[name])
        shown = [f"**{value:.1f}**" if name == best else f"{value:.1f}" for name, value in of.items()]
        worlds = {}
        for world in sorted({world for world, _ in methods[method]}):
            here = {name: mean_of(methods[name], world) for name in of}
            worlds[world] = f"{world}: {max(here.values()) - here[method]:.1f}"
        row = [TITLES[column], str(len(methods[method])), *shown, f"{max(of.values()) - of[method]:.1f}"]
        lines.append("| " + " | ".join([*row, ", ".join(worlds.values())]) + " |")
    return "\n".join(lines)


def in_words(cells: Cells) -> str:
    """Worst regrets, best method first."""
    worst = {name: max(by_column.values()) for name, by_column in regrets(cells).items()}
    ends = worst_intervals(cells)
    order = sorted(worst, key=lambda name: worst[name])
    return ", ".join(f"{name} {worst[name]:.1f} ({ends[name][0]:.1f} to {ends[name][1]:.1f})" for name in order)


def table(cells: Cells) -> str:
    """Markdown: success of each method in each column, and its worst regret."""
    lines = [f"| method | {' | '.join(cells)} | worst regret (95 %) |", "|---" * (len(cells) + 2) + "|"]
    intervals = worst_intervals(cells)
    for name, by_column in regrets(cells).items():
        worst = max(by_column, key=lambda column: by_column[column])
        shown = [f"{mean_of(cells[c][name]):.1f}" if name in cells[c] else "–" for c in cells]
        low, high = intervals[name]
        lines.append(f"| {name} | {' | '.join(shown)} | {by_column[worst]:.1f} ({low:.1f} to {high:.1f}), {worst} |")
    runs = {column: len(next(iter(methods.values()))) for column, methods in cells.items()}
    return "\n".join([*lines, "", "runs a cell: " + ", ".join(f"{column} {count}" for column, count in runs.items())])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sources", type=Path, nargs="+", help="the folder of the runs, or a file that --out wrote")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--beside", default="checked_hints", help="the method of the second table")
    parser.add_argument("--by-world", metavar="COLUMN", help="success in each world of one column, nothing else")
    parser.add_argument("--by-kind", action="store_true", help="a row per kind of hint, and worst regrets, nothing else")
    given = parser.parse_args()
    runs = [run for source in given.sources for run in read_runs(source)]
    if given.out:
        lines = ",\n".join(json.dumps(run) for run in runs)
        given.out.write_text(f'{{"runs": [\n{lines}\n]}}\n')
    cells = cells_of(runs)
    if given.by_world and given.by_world not in cells:
        parser.error(f"--by-world {given.by_world}: these runs have the columns {', '.join(cells)}.")
    if given.by_world:
        print(by_world(cells[given.by_world], given.beside))
    elif given.by_kind:
        print(f"{by_kind(cells, given.beside)}\n\n{in_words(cells)}")
    else:
        print(f"{table(cells)}\n\n{beside_the_best(cells, given.beside)}")
