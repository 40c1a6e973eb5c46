"""Kinds of hint on other worlds, with the settings that published tuning runs chose:

    python benchmarks/hint_forms_elsewhere.py benchmarks/results/hint_forms_400.json --worlds 3,5 --seeds 2 --workers 2 \\
        --known benchmarks/results/hint_forms_again.json benchmarks/results/hint_forms_other_worlds.json --out runs/elsewhere

Of every kind of hint and method with tuning runs in the first file, the setting with the highest mean training reward is
reported on the worlds and seeds given. Runs with that setting that stand in the files of `--known` are not run again. Rerun the
command to continue. DIR/hint_forms_elsewhere.json has the new runs, for `regret.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from evidence import numbers
from evidence_tables import HINT_STEPS, REPORTED, Budget, hint_forms
from regret import read_runs
from tuning_length import Run, best, setting_of

from gear_rl.compare.jobs import Job
from gear_rl.compare.plan import FIRST_TUNING_SEED, Plan, open_folder
from gear_rl.compare.runner import run_all
from gear_rl.errors import GearError

Wanted = dict[str, tuple[Plan, list[Job]]]
"""Kind of hint → its plan, and the runs still to be made."""


def plan(tuned: list[Run], known: list[Run], worlds: tuple[int, ...], seeds: int) -> Wanted:
    tuning = [run for run in tuned if run["seed"] >= FIRST_TUNING_SEED]
    tuning_worlds = {run["world"] for run in tuning}
    if {run["steps"] for run in tuning} != {HINT_STEPS}:
        raise GearError(f"the tuning runs are not all of {HINT_STEPS} steps, as the reported ones are.")
    if tuning_worlds & set(worlds):
        raise GearError(f"--worlds: settings were chosen on {sorted(tuning_worlds)}; report on others.")
    columns = hint_forms(Budget(seeds=seeds, worlds=worlds, tuning_worlds=tuple(tuning_worlds), train=REPORTED))
    there = {
        (r["column"], r["method"], setting_of(r), r["world"], r["seed"])
        for r in known
        if r["steps"] == HINT_STEPS and "teacher" not in r
    }
    wanted: Wanted = {}
    for kind, chosen in best(tuned).items():
        of = {name: name.removesuffix("+sibling_hint") for name in columns[kind].methods}  # as regret.py names them
        jobs = [
            Job(name, chosen[of[name]], seed, world)
            for seed in range(columns[kind].seeds)
            for world in columns[kind].worlds
            for name in columns[kind].methods
            if of[name] in chosen and (kind, of[name], chosen[of[name]], world, seed) not in there
        ]
        wanted[kind] = columns[kind], jobs
    return wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuned", type=Path, help="runs of hint_forms with their tuning, as regret.py --out writes them")
    parser.add_argument("--known", type=Path, nargs="*", default=[], help="files of the same form")
    parser.add_argument("--worlds", type=numbers, required=True)
    parser.add_argument("--only", help="kinds of hint, separated by commas")
    parser.add_argument("--seeds", type=int, default=2, help="per world, from 0 on")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    known = [run for file in given.known for run in read_runs(file)]
    wanted = plan(read_runs(given.tuned), known, given.worlds, given.seeds)
    for kind in given.only.split(",") if given.only else []:
        if kind not in wanted:
            raise GearError(f"--only {kind}: {given.tuned} has tuning runs of {', '.join(wanted)}.")
    if given.only:
        wanted = {kind: wanted[kind] for kind in given.only.split(",")}
    print(f"{sum(len(jobs) for _, jobs in wanted.values())} runs", flush=True)
    for kind, (column, jobs) in wanted.items():
        folder = given.out / "hint_forms" / kind
        column = open_folder(folder, column)
        run_all(column, jobs, folder, given.workers, lambda done, of, job: print(f"{done}/{of} {job.name}", flush=True))
    runs = ",\n".join(json.dumps(run) for run in read_runs(given.out / "hint_forms"))
    (given.out / "hint_forms_elsewhere.json").write_text(f'{{"runs": [\n{runs}\n]}}\n')


if __name__ == "__main__":
    try:
        main()
    except GearError as error:
        sys.exit(f"gear: {error}")
