"""How long tuning runs are, and what it changes: `python benchmarks/tuning_length.py SHORT.json LONG.json ...`.

SHORT: runs of the table `hint_forms`, tuned with runs of 200 steps. LONG: runs of kinds of hint that were tuned again, with 400
steps, as long as the reported runs; a reported run counts in place of SHORT's of the same method, kind, world and seed. Only
kinds that were tuned again are shown, on SHORT's worlds and seeds. Both files are written by `regret.py --out`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean
from typing import Any

import regret
from evidence_tables import READERS, TITLES

from gear_rl.compare.jobs import Setting
from gear_rl.compare.plan import FIRST_TUNING_SEED

Run = dict[str, Any]

def again(long: list[Run]) -> list[str]:
    """The kinds of hint whose strengths were tuned with runs as long as the reported ones."""
    tuned = {run["column"] for run in long if run["seed"] >= FIRST_TUNING_SEED}
    return [kind for kind in TITLES if kind in tuned]


def success(short: list[Run], long: list[Run]) -> str:
    """Markdown: means in %, in parentheses with short tuning runs; and how far `checked_hints` is behind the best."""
    heads = ["hint", "grpo", *READERS, "checked_hints behind the best"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    before = regret.cells_of(short)
    places = {(run["world"], run["seed"]) for run in short}
    after = regret.cells_of(short + [run for run in long if (run["world"], run["seed"]) in places])
    for kind in again(long):
        old, new = ({name: regret.mean_of(cells) for name, cells in each[kind].items()} for each in (before, after))
        behind = [f"{max(of.values()) - of['checked_hints']:.1f}" for of in (new, old)]
        best = max(new, key=lambda name: new[name])
        shown = [(f"**{new[m]:.1f}**" if m == best else f"{new[m]:.1f}") + f" ({old[m]:.1f})" for m in heads[1:-1]]
        lines.append(f"| {TITLES[kind]} | {' | '.join(shown)} | {behind[0]} ({behind[1]}) |")
    return "\n".join(lines)


def settings(short: list[Run], long: list[Run]) -> str:
    """Markdown: the strength that tuning chooses; of short and long runs, short → long, where they differ."""
    lines = [f"| hint | {' | '.join(READERS)} |", "|---" * (1 + len(READERS)) + "|"]
    for kind in again(long):
        cells = []
        for method in READERS:
            old, new = (chosen(runs, kind, method) for runs in (short, long))
            cells.append(new if old == new else f"{old} → {new}")
        lines.append(f"| {TITLES[kind]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def setting_of(run: Run) -> Setting:
    return Setting(run["rate"], tuple(sorted(run["strength"].items())))


def best(runs: list[Run]) -> dict[str, dict[str, Setting]]:
    """Kind of hint → method → of its tuning runs, the setting with the highest mean training reward."""
    rewards: dict[tuple[str, str], dict[Setting, list[float]]] = {}
    for run in runs:
        if run["seed"] >= FIRST_TUNING_SEED:
            of = rewards.setdefault((run["column"], run["method"]), {})
            of.setdefault(setting_of(run), []).append(run["training_reward"])
    found: dict[str, dict[str, Setting]] = {}
    for (kind, method), of in rewards.items():
        found.setdefault(kind, {})[method] = max(of, key=lambda one: mean(of[one]))
    return found


def chosen(runs: list[Run], kind: str, method: str) -> str:
    setting = best(runs)[kind][method]
    return next(in_words(run["strength"]) for run in runs if run["method"] == method and setting_of(run) == setting)


def in_words(strength: dict[str, float]) -> str:
    if "coefficient" in strength and "full_trust" not in strength:
        return f"{'first' if 'entry_clip' in strength else 'later'} form, {strength['coefficient']:g}"
    return ", ".join(f"{value:g}" for value in strength.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("short", type=Path)
    parser.add_argument("long", type=Path, nargs="+")
    given = parser.parse_args()
    of_short, of_long = regret.read_runs(given.short), [run for file in given.long for run in regret.read_runs(file)]
    print(success(of_short, of_long), settings(of_short, of_long), sep="\n\n")
