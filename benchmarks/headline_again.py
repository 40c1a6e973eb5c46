"""The headline with settings from more tuning, on more test problems.

    python benchmarks/evidence.py headline --tune-only --tuning-worlds 5 --out runs/w5
    python benchmarks/evidence.py headline --tune-only --tuning-worlds 6 --out runs/w6
    python benchmarks/headline_again.py runs/w5/headline_tuning.json runs/w6/headline_tuning.json --workers 2 --out runs/again

In benchmarks/results/headline.json each setting was chosen by one run on world 4, and all runs of a world are tested on 500
problems. Here each method has the setting with the highest mean reward over world 4 and the files' worlds, and is tested on
2,500 problems, of which those 500 are the first. Training is on the same worlds and seeds as the headline's first runs. Rerun
the command to continue. DIR/headline_again.json has every run.

Without files settings stay the headline's own, so nothing but the test problems differs (DIR/headline_problems.json). Runs that
both need are made once in the same DIR.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from gear_rl.compare.jobs import Job, Setting, candidates
from gear_rl.compare.plan import Plan, open_folder
from gear_rl.compare.runner import run_all
from gear_rl.compare.statistics import difference_ends, plus_two_interval
from gear_rl.errors import GearError
from gear_rl.files import read_json, write_text

HEADLINE = Path(__file__).parent / "results" / "headline.json"
PROBLEMS = 2500
Rewards = dict[str, dict[str, dict[str, float]]]
"""Tuning world → method → setting → training reward."""


def tuned_column(file: Path) -> dict[str, Any]:
    column = read_json(file).get("columns", {}).get("perfect", {})
    if "tried" not in column:
        raise GearError(f"{file} has no finished tuning: evidence.py headline --tune-only writes it as headline_tuning.json.")
    return dict(column)


def rewards_of(headline: dict[str, Any], tuned: list[dict[str, Any]]) -> Rewards:
    first = {method: {one["setting"]: one["reward"] for one in each} for method, each in headline["summary"]["tried"].items()}
    found = {_worlds(headline["plan"]): first}
    for column in tuned:
        worlds, same = _worlds(column["plan"]), ("settings", "learning_rates", "tuning_runs", "tuning_seeds", "tuning_steps")
        if worlds in found:
            raise GearError(f"World {worlds} was given twice; world {_worlds(headline['plan'])} is the headline's own.")
        tried = {method: set(each) for method, each in column["tried"].items()}
        if tried != {m: set(each) for m, each in first.items()} or any(column["plan"][k] != headline["plan"][k] for k in same):
            raise GearError(f"World {worlds} was tuned with other methods or settings than the headline.")
        found[worlds] = column["tried"]
    return found


def _worlds(plan: dict[str, Any]) -> str:
    return ", ".join(map(str, plan["tuning_worlds"]))


def best(rewards: Rewards) -> dict[str, str]:
    """Method → the setting with the highest mean over the worlds."""
    methods = next(iter(rewards.values()))
    return {
        method: max(settings, key=lambda one: mean(world[method][one] for world in rewards.values()))
        for method, settings in methods.items()
    }


def tuning_table(rewards: Rewards) -> str:
    lines = ["| method | " + " | ".join(f"world {world}" for world in rewards) + " | all |", "|---" * (len(rewards) + 2) + "|"]
    by_world, chosen = [best({world: each}) for world, each in rewards.items()], best(rewards)
    lines += [f"| {m} | " + " | ".join(one[m] for one in (*by_world, chosen)) + " |" for m in chosen]
    return "\n".join(lines)


def plan_of(headline: dict[str, Any], chosen: dict[str, str], seeds: int) -> tuple[Plan, dict[str, Setting]]:
    """The headline's own plan with fewer seeds and more test problems, and each method's setting."""
    settings = headline["plan"]["settings"]
    settings = {**settings, "train": {**settings["train"], "eval_rows": PROBLEMS}}
    plan = Plan(**{**headline["plan"], "seeds": seeds, "settings": settings})
    tried = {m: candidates(plan.learning_rates, plan.strengths(m), plan.tuning_runs) for m in chosen}
    return plan, {m: next(one for one in tried[m] if str(one) == name) for m, name in chosen.items()}


def result(job: Job, run: Path, headline: dict[str, Any]) -> dict[str, Any]:
    told = {"method": job.method, "world": job.world, "seed": job.seed}
    before = next(one for one in headline["runs"] if told.items() <= one.items())
    after = json.loads((run / "evaluation.json").read_text())["after"]
    success = {how: after[how]["success"] for how in ("sampled", "greedy")}
    return told | {"setting": str(job.setting)} | success | {"headline": before["success"]}


def table(runs: list[dict[str, Any]]) -> str:
    """Means in %, and differences from GRPO with the same world and seed; the headline's own figures are of the same worlds
    and seeds."""
    lines = ["| method | setting | headline | again | greedy | headline over grpo | again over grpo (95 %) |", "|---" * 7 + "|"]
    worlds = list(dict.fromkeys(run["world"] for run in runs))

    def values(method: str, which: str) -> list[list[float]]:
        return [[100 * run[which] for run in runs if (run["method"], run["world"]) == (method, world)] for world in worlds]

    for method, setting in dict.fromkeys((run["method"], run["setting"]) for run in runs):
        means = [mean(map(mean, values(method, which))) for which in ("headline", "sampled", "greedy")]
        cells = [method, setting, *(f"{value:.1f}" for value in means), "", ""]
        if method != "grpo":
            ours, theirs = values(method, "sampled"), values("grpo", "sampled")
            over = [[a - b for a, b in zip(*pair, strict=True)] for pair in zip(ours, theirs, strict=True)]
            low, high = plus_two_interval(over, difference_ends(ours, theirs, 100.0))
            cells[5] = f"{means[0] - mean(map(mean, values('grpo', 'headline'))):+.1f}"
            cells[6] = f"{mean(map(mean, over)):+.1f} ({low:+.1f} to {high:+.1f})"
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuned", nargs="*", type=Path, help="as evidence.py headline --tune-only wrote them")
    parser.add_argument("--seeds", type=int, default=4, help="per world, from 0 on")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    headline = json.loads(HEADLINE.read_text())["columns"]["perfect"]
    if given.seeds > headline["plan"]["seeds"]:
        raise GearError(f"--seeds {given.seeds}: the headline has {headline['plan']['seeds']} a world.")
    rewards = rewards_of(headline, [tuned_column(file) for file in given.tuned])
    print(tuning_table(rewards), flush=True)
    plan, settings = plan_of(headline, best(rewards), given.seeds)
    plan = open_folder(given.out, plan)
    jobs = plan.comparison_jobs(settings)
    run_all(plan, jobs, given.out, given.workers, lambda done, of, job: print(f"{done}/{of} {job.name}", flush=True))
    runs = [result(job, given.out / "runs" / job.name, headline) for job in jobs]
    command = "python benchmarks/headline_again.py " + shlex.join(sys.argv[1:])
    made = {"command": command, "plan": asdict(plan), "tuning": rewards, "runs": runs}
    name = "headline_again" if given.tuned else "headline_problems"
    write_text(given.out / f"{name}.json", json.dumps(made, separators=(",", ":")) + "\n")
    print(table(runs))


if __name__ == "__main__":
    try:
        main()
    except GearError as error:
        sys.exit(f"gear: {error}")
