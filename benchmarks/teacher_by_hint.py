"""GEAR with a teacher that keeps the starting weights, beside its default teacher, by kind of hint:

    cd benchmarks/results
    python ../teacher_by_hint.py hint_forms.json hint_forms_base_teacher.json \\
        --long hint_forms{_faulty_key_400,_sibling_400,_400}.json

The first file is `regret.py`'s, of the table `hint_forms`; the second is `evidence.py`'s, of `hint_forms_base_teacher`. Both
have the same worlds and seeds, and each strength is tuned for its own teacher and hint. A run has collapsed if it ends below
half of its start. Files of `--long` have runs of the default teacher with strengths tuned in longer runs: where there are any
they are compared too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from differences import signed
from evidence_tables import TITLES

from gear_rl.compare.plan import FIRST_TUNING_SEED

Place = tuple[int, int]
"""World and seed."""


def percent(runs: dict[Place, float]) -> float:
    return 100 * mean(runs.values())


def live_runs(found: dict[str, Any], column: str) -> tuple[dict[Place, float], dict[str, float]]:
    """True success by place, and the strength."""
    of = [run for run in found["runs"] if run["column"] == column and run["method"] == "gear"]
    reported = [run for run in of if run["seed"] < FIRST_TUNING_SEED]
    return {(run["world"], run["seed"]): run["success"] for run in reported}, reported[0]["strength"] if reported else {}


def base_runs(found: dict[str, Any], column: str, method: str) -> list[dict[str, Any]]:
    return [run for run in found["columns"][column]["runs"] if run["method"].removesuffix("+sibling_hint") == method]


def collapsed(runs: dict[Place, float], before: dict[int, float]) -> str:
    """`before`: by world."""
    return f"{sum(success < before[world] / 2 for (world, _), success in runs.items())} of {len(runs)}"


def table(live: dict[str, Any], base: dict[str, Any], long: Sequence[dict[str, Any]] = ()) -> str:
    heads = ["hint", "grpo", "live", "base", "base over live (least to most)", "collapsed, live", "collapsed, base"]
    heads += ["base over long live, ahead in"] if long else []
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for column in (name for name in TITLES if name in base["columns"]):
        own = base_runs(base, column, "gear")
        mine = {(run["world"], run["seed"]): run["success"] for run in own}
        before = {run["world"]: run["before"] for run in own}
        grpo = {(run["world"], run["seed"]): run["success"] for run in base_runs(base, column, "grpo")}
        theirs, strength = live_runs(live, column)
        apart = [100 * (mine[place] - theirs[place]) for place in sorted(mine.keys() & theirs.keys())]
        alpha = own[0]["setting"].partition("alpha=")[2]
        over = f"{signed(mean(apart))} ({signed(min(apart))} to {signed(max(apart))})"
        cells = [TITLES[column], f"{percent(grpo):.1f}", f"{percent(theirs):.1f} (α {strength['alpha']:g})"]
        cells += [f"{percent(mine):.1f} (α {alpha})", over, collapsed(theirs, before), collapsed(mine, before)]
        if long:
            again = {place: success for found in long for place, success in live_runs(found, column)[0].items()}
            apart = [100 * (mine[place] - (theirs | again)[place]) for place in sorted(mine.keys() & theirs.keys())]
            cells.append(f"{signed(mean(apart))}, {sum(x > 0 for x in apart)} of {len(apart)}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("live", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("--long", type=Path, nargs="*", default=[])
    args = parser.parse_args()
    live, base, *long = (json.loads(path.read_text()) for path in (args.live, args.base, *args.long))
    print(table(live, base, long))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
