"""The headline on more test problems: `python benchmarks/other_problems.py --workers 2 --out DIR`.

All runs of a world in benchmarks/results/headline.json are tested on the same 500 problems, so a method could be ahead on just
these. Here the first seeds are trained again with the same settings and tested on 2,500 problems, of which those 500 are the
first. Rerun the command to continue. DIR/other_problems.json has every run, and the table is printed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

from gear_rl.compare.jobs import Job, Setting
from gear_rl.compare.plan import Plan, open_folder
from gear_rl.compare.runner import run_all
from gear_rl.files import write_json

HEADLINE = Path(__file__).parent / "results" / "headline.json"
PROBLEMS = 2500


def plan_of(headline: dict[str, Any], seeds: int) -> tuple[Plan, dict[str, Setting]]:
    """The headline's own plan with fewer seeds and more test problems, and the settings that its tuning chose."""
    settings = headline["plan"]["settings"]
    settings = {**settings, "train": {**settings["train"], "eval_rows": PROBLEMS}}
    rows = headline["summary"]["rows"]
    chosen = {row["method"]: Setting(row["learning_rate"], tuple(row["options"].items())) for row in rows}
    return Plan(**{**headline["plan"], "seeds": seeds, "settings": settings}), chosen


def result(job: Job, run: Path, headline: dict[str, Any]) -> dict[str, Any]:
    told = {"method": job.method, "world": job.world, "seed": job.seed}
    before = next(one for one in headline["runs"] if told.items() <= one.items())
    after = json.loads((run / "evaluation.json").read_text())["after"]
    return told | {how: after[how]["success"] for how in ("sampled", "greedy")} | {"headline": before["success"]}


def table(runs: list[dict[str, Any]]) -> str:
    """Means in %; the difference from GRPO on both sets, of the same runs."""

    def means(method: str, which: str) -> float:
        return 100 * mean(run[which] for run in runs if run["method"] == method)

    lines = [f"| method | 500 problems | {PROBLEMS:,} | over grpo, 500 | {PROBLEMS:,} |", "|---" * 5 + "|"]
    for method in dict.fromkeys(run["method"] for run in runs):
        few, many = means(method, "headline"), means(method, "sampled")
        over = [few - means("grpo", "headline"), many - means("grpo", "sampled")]
        shown = ["" if method == "grpo" else f"{value:+.1f}".replace("-", "−") for value in over]
        lines.append(f"| {method} | {few:.1f} | {many:.1f} | {shown[0]} | {shown[1]} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="per world, from 0 on")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    headline = json.loads(HEADLINE.read_text())["columns"]["perfect"]
    plan, chosen = plan_of(headline, given.seeds)
    plan = open_folder(given.out, plan)
    jobs = plan.comparison_jobs(chosen)
    run_all(plan, jobs, given.out, given.workers, lambda done, of, job: print(f"{done}/{of} {job.name}", flush=True))
    runs = [result(job, given.out / "runs" / job.name, headline) for job in jobs]
    write_json(given.out / "other_problems.json", {"problems": PROBLEMS, "runs": runs})
    print(table(runs))


if __name__ == "__main__":
    main()
