"""`gear compare`: every method on every seed, the same data order, equal rollouts, and what that shows."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gear_rl.errors import GearError

if TYPE_CHECKING:
    from gear_rl.compare.plan import Plan

EPILOG = """examples:
  gear compare --credit grpo,gear,oracle --seeds 5 --out runs/first
  gear compare --resume runs/first             go on after an interruption
  gear compare --credit grpo,gear,shuffled_outcomes --seeds 8 --set task.hint_errors=0.3

Each method gets its learning rate from one common grid: the smallest that comes near the best true success while
training, on seeds that the comparison does not use. A control such as rlsd+wrong_hint runs at the rate of its
method. Options of a method: --set credit.gear.alpha=4."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--credit", metavar="A,B,…", help="methods to compare; grpo is the baseline where it is among them"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learning-rates", default="1.5e-4,3e-4,6e-4,1.2e-3", metavar="A,B,…", help="the common grid")
    parser.add_argument("--tuning-seeds", type=int, default=1, help="seeds per cell of the grid (default 1)")
    parser.add_argument("--task")
    parser.add_argument("--model")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="task.NAME, train.NAME, credit.METHOD.NAME"
    )
    parser.add_argument("--config", help="a .toml or .json file of settings")
    parser.add_argument("--target", type=float, default=0.5, help="success for `steps to target` (default 0.5)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--out", type=Path, help="folder; default: the next free runs/compare-TASK")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with an interrupted comparison")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    from gear_rl.compare.page import html
    from gear_rl.compare.plan import open_folder
    from gear_rl.compare.results import best_rates, summarise
    from gear_rl.compare.runner import run_all
    from gear_rl.compare.table import markdown, text
    from gear_rl.files import write_json, write_text
    from gear_rl.training.run import prepare
    from gear_rl.training.run_folder import RunFolder

    if args.workers < 1:
        raise GearError(f"--workers {args.workers}: at least 1.")
    if args.resume is not None:
        if args.credit or args.out or args.set or args.config:
            raise GearError("--resume goes on with the comparison as it was planned; leave the other settings out.")
        folder, plan = args.resume, open_folder(args.resume, None)
    else:
        plan = _plan(args)
        for name in plan.methods:  # what a run would refuse is refused before the first
            prepare(plan.config(name, plan.learning_rates[0], 0))[0].close()
        folder = args.out or RunFolder.free_name(Path("runs"), f"compare-{plan.config(plan.methods[0], 1e-4, 0).task}")
        plan = open_folder(folder, plan)
    began = time.time()

    def told(done: int, of: int, job: object) -> None:
        print(f"{done}/{of} runs  {getattr(job, 'name', '')}  {time.time() - began:.0f} s", flush=True)

    try:
        tuning = plan.tuning_jobs()
        if tuning:
            print(f"learning rates: {len(tuning)} runs → {folder}", flush=True)
            run_all(plan, tuning, folder, args.workers, told)
        rates = best_rates(plan, folder, args.target)
        print("chosen: " + ", ".join(f"{m} {r:g}" for m, r in rates.items()), flush=True)
        run_all(plan, plan.comparison_jobs(rates), folder, args.workers, told)
    except KeyboardInterrupt:
        print(f"\ninterrupted; finished runs are kept. Go on with: gear compare --resume {folder}")
        return 130
    summary = summarise(plan, folder, rates, args.target)
    write_json(folder / "summary.json", summary)
    write_text(folder / "summary.md", markdown(summary))
    write_text(folder / "summary.html", html(summary))
    print(json.dumps(summary) if args.json else "\n" + text(summary))
    print(f"\nsummary.html, summary.md, summary.json and every run are in {folder}")
    return 0


def _plan(args: argparse.Namespace) -> Plan:
    from gear_rl.compare.plan import Plan
    from gear_rl.settings import load_config, merge, parse_assignments

    if not args.credit:
        raise GearError("name the methods to compare: --credit grpo,gear,oracle.")
    try:
        rates = [float(rate) for rate in args.learning_rates.split(",")]
    except ValueError:
        raise GearError(f"--learning-rates {args.learning_rates}: numbers, separated by commas.") from None
    settings = merge(load_config(args.config) if args.config else {}, parse_assignments(args.set))
    if args.task:
        settings = merge(settings, {"task": {"name": args.task}})
    if args.model:
        settings["model"] = args.model
    methods = [name.strip() for name in args.credit.split(",") if name.strip()]
    return Plan(methods, args.seeds, rates, max(1, args.tuning_seeds), settings)
