"""The tables of docs/evidence.md, one command each: `python benchmarks/evidence.py TABLE --workers 16 --out DIR`.

A table has columns; a column is a comparison as `gear compare` makes it (tuning on worlds and seeds of its own, then the
reported runs), in DIR/TABLE/COLUMN. Rerun the command to continue; `--minutes 9` starts no run that would end later. When
all runs are there, DIR/TABLE.json has every run's results in one file, DIR/TABLE.md the tables for a page.

Runs that would be the same in two columns are made once: GRPO reads no hint, so hints of any kind leave it as it is.
On one core a run of 200 steps takes about a minute.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import shutil
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from evidence_tables import REPORTED, TABLES, Budget, smoke

from gear_rl.compare.jobs import Job, Setting
from gear_rl.compare.plan import Plan, open_folder
from gear_rl.compare.results import read_outcome, summarise
from gear_rl.compare.runner import is_finished, run_all, typical_run
from gear_rl.compare.table import markdown
from gear_rl.compare.tuning import choose, tried
from gear_rl.errors import GearError
from gear_rl.files import write_json, write_text
from gear_rl.methods import find_method
from gear_rl.training.config import TrainConfig
from gear_rl.training.run import prepare

HINT_OPTIONS = ("hint_form", "hint_errors", "hint_error_kind")
KEPT = ("config.json", "evaluation.json", "metrics.jsonl", "seconds.json")
FIGURES = ("before", "success", "greedy", "reward", "area")


def key(config: dict[str, Any]) -> str:
    """Equal for runs that are the same whatever column they stand in."""
    kind = find_method(config["credit"]["name"])
    ignored = set() if kind.hint is not None else set(HINT_OPTIONS)
    task = {name: value for name, value in config["task"].items() if name not in ignored}
    mix_steps = config["train"]["mix_steps"]
    mix_steps = (kind.schedule.mix_steps or 0) if mix_steps is None else mix_steps
    train = {**config["train"], "mix_steps": mix_steps if hasattr(kind.Options, "mix") else 0}
    same = {name: config[name] for name in ("model", "credit", "seed")}
    return json.dumps({**same, "task": task, "train": train}, sort_keys=True)


def reuse(plan: Plan, jobs: list[Job], runs: Path, out: Path) -> None:
    """Copies what other columns and tables under `out` have already."""
    wanted = {key(plan.config(job).as_dict()): runs / job.name for job in jobs if not (runs / job.name).exists()}
    for file in out.glob("*/*/runs/*/config.json"):
        made = {name: value for name, value in json.loads(file.read_text()).items() if name != "format"}
        made = TrainConfig.from_dict(made).as_dict()  # a setting that has been added since is at its default
        found = wanted.get(key(made)) if is_finished(file.parent) else None
        if found is not None and not found.exists():
            found.mkdir(parents=True)
            for name in KEPT:
                if (file.parent / name).exists():
                    shutil.copy(file.parent / name, found / name)


def run_column(
    plan: Plan, folder: Path, out: Path, workers: int, until: float, tune_only: bool = False, only: tuple[str, ...] = ()
) -> dict[str, Any] | None:
    """The column's results, or None where runs are left for another time. `tune_only`: the settings tried and chosen.
    `only`: the methods whose reported runs are made now, if not all."""
    for world in [*plan.reported, *plan.tuning_worlds]:  # a model that is missing is an error before the first run
        prepare(plan.config(Job(plan.methods[0], Setting(plan.learning_rates[0]), 0, world)))[0].close()
    plan = open_folder(folder, plan)

    def say(done: int, of: int, job: Job) -> None:
        print(f"{folder.name} {done}/{of} {job.name}", flush=True)

    def all_of(jobs: list[Job]) -> int:
        reuse(plan, jobs, folder / "runs", out)
        typical = max((typical_run(runs) for runs in out.glob("*/*/runs")), default=0.0)
        return run_all(plan, jobs, folder, workers, say, until, typical)

    if all_of(plan.tuning_jobs()):
        return None
    found = tried(plan, folder)
    chosen = choose(plan, found)
    if tune_only:
        rewards = {method: {str(one.setting): round(one.reward, 4) for one in each} for method, each in found.items()}
        return {"plan": asdict(plan), "tried": rewards, "chosen": {method: str(one) for method, one in chosen.items()}}
    jobs = plan.comparison_jobs(chosen)
    if all_of([job for job in jobs if not only or job.method in only]) or any(
        not is_finished(folder / "runs" / job.name) for job in jobs
    ):
        return None
    summary = summarise(plan, folder, chosen, found, target=0.5)
    write_json(folder / "summary.json", summary)
    return {"plan": asdict(plan), "summary": summary, "runs": [raw(folder / "runs" / job.name, job) for job in jobs]}


def raw(path: Path, job: Job) -> dict[str, Any]:
    """One run in a line."""
    outcome = asdict(read_outcome(path, target=0.5))
    after = json.loads((path / "evaluation.json").read_text())["after"]["sampled"]
    run = {"method": job.method, "setting": str(job.setting), "world": job.world, "seed": job.seed}
    parts = {"parts": {name: part["share"] for name, part in after["parts"].items()}} if "parts" in after else {}
    return run | {name: round(outcome[name], 4) for name in FIGURES} | parts


def chosen_settings(found: dict[str, Any]) -> str:
    """Of a column that was only tuned: each method's choice and its reward."""
    lines = ["| method | chosen | training reward |", "|---|---|---|"]
    lines += [f"| {m} | {found['chosen'][m]} | {max(rewards.values()):.3f} |" for m, rewards in found["tried"].items()]
    return "\n".join(lines) + "\n"


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--only", help="columns, separated by commas")
    parser.add_argument("--seeds", type=int, default=Budget.seeds)
    parser.add_argument("--worlds", type=numbers, default=Budget.worlds, help="as 1,2,3; some tables use fewer")
    parser.add_argument("--tuning-runs", type=int, default=Budget.tuning_runs)
    parser.add_argument("--tuning-worlds", type=numbers, default=Budget.tuning_worlds)
    parser.add_argument("--tuning-seeds", type=int, default=Budget.tuning_seeds, help="of each setting in each tuning world")
    parser.add_argument("--tuning-steps", type=int, help="of a tuning run, if not what the table has; 0: as a reported one")
    parser.add_argument("--report", default="", help="methods, separated by commas: only their reported runs for now")
    parser.add_argument("--tune-only", action="store_true", help="the settings tried and chosen, and no reported run")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--smoke", action="store_true", help="two steps of a part of the table")
    given = parser.parse_args()
    until = time.time() + 60 * given.minutes
    train = (("steps", given.steps), *REPORTED)
    budget = Budget(
        given.seeds, given.worlds, given.tuning_worlds, given.tuning_seeds, given.tuning_runs, train=train
    )
    columns = smoke(given.table, budget) if given.smoke else TABLES[given.table](budget)
    if given.tuning_steps is not None:
        columns = {name: replace(plan, tuning_steps=given.tuning_steps) for name, plan in columns.items()}
    chosen = given.only.split(",") if given.only else list(columns)
    results = {}
    for name in chosen:
        if name not in columns:
            raise GearError(f"--only {name}: {given.table} has the columns {', '.join(columns)}.")
        only = tuple(given.report.split(",")) if given.report else ()
        for method in only:
            if method not in columns[name].methods:
                raise GearError(f"--report {method}: {name} has {', '.join(columns[name].methods)}.")
        folder = given.out / given.table / name
        found = run_column(columns[name], folder, given.out, given.workers, until, given.tune_only, only)
        if found is not None:
            results[name] = found
    left = [name for name in chosen if name not in results]
    command = "python benchmarks/evidence.py " + shlex.join(sys.argv[1:])
    made = json.dumps({"command": command, "columns": results}, separators=(",", ":"), ensure_ascii=False)
    made_of = f"{given.table}_tuning" if given.tune_only else given.table
    write_text(given.out / f"{made_of}.json", made + "\n")
    page = chosen_settings if given.tune_only else lambda found: markdown(found["summary"])
    pages = [f"## {name}\n\n{page(found)}" for name, found in results.items()]
    write_text(given.out / f"{made_of}.md", f"{TABLES[given.table].__doc__}\n\n" + "\n".join(pages))
    print(
        f"{len(results)} of {len(chosen)} columns are complete" + (f"; to continue, rerun: {command}" if left else "")
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GearError as error:
        sys.exit(f"gear: {error}")
