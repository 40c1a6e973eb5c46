"""`gear compare`: every method on every seed, the same data order, equal rollouts, and what that shows."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gear_rl.cli.arguments import COUNT, add_set, add_task, read_settings
from gear_rl.errors import GearError

if TYPE_CHECKING:
    from gear_rl.compare.plan import Plan

EMBEDDED_RATES, OTHER_RATES = "1.5e-4,1.2e-3", "1.5e-5,6e-5"
"""Learning rates at which methods do best on the embedded task and on SmolLM2-135M (docs/evidence.md)."""
EPILOG = """examples:
  gear compare --credit grpo,gear,oracle --seeds 5 --out runs/first
  gear compare --resume runs/first             continue after an interruption
  gear compare --credit grpo,gear,shuffled_outcomes --seeds 8 \\
               --set task.hint_errors=0.3
  gear compare --credit grpo,gear,rlsd,oracle --seeds 12 --worlds 1,2,3 \\
               --tuning-worlds 4,5 --tuning-runs 24

Every method is tuned with the same number of runs, over learning rates and its
own strength (`gear methods NAME`), on seeds and, with --tuning-worlds, worlds
that the comparison does not use. The setting with the highest training reward
is taken. A control such as rlsd+wrong_hint runs with the setting of its method.
An option that is set, --set credit.gear.alpha=4, is not tuned."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--credit", metavar="A,B,…", help="methods to compare; grpo is the baseline where it is among them"
    )
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0, 1, … of each world (default 5)")
    parser.add_argument("--worlds", metavar="A,B,…", help="values of task.world to compare on")
    parser.add_argument(
        "--learning-rates",
        metavar="LOW,HIGH",
        help=f"ends of every grid; one rate: no tuning (default: {EMBEDDED_RATES}, or {OTHER_RATES} with a model of your own)",
    )
    parser.add_argument("--tuning-runs", type=COUNT, help="runs to tune each method with (default 12 per tuning world)")
    parser.add_argument("--tuning-worlds", metavar="A,B,…", help="values of task.world to tune on, apart from --worlds")
    parser.add_argument("--tuning-seeds", type=COUNT, default=1, help="seeds per setting and tuning world (default 1)")
    parser.add_argument("--minutes", type=float, help="start no run that would end later than this; --resume continues")
    add_task(parser)
    parser.add_argument("--model", help="a folder or hub name; default: the model that comes with the task")
    add_set(parser, "train.NAME, task.NAME, credit.METHOD.NAME")
    parser.add_argument("--config", help="a .toml or .json file of settings")
    parser.add_argument("--target", type=float, default=0.5, help="success for `steps to target` (default 0.5)")
    parser.add_argument(
        "--workers",
        type=COUNT,
        default=os.cpu_count() or 1,
        help="processes (default: one per core)",
    )
    parser.add_argument("--out", type=Path, help="folder; default: the next free runs/compare-TASK")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="continue an interrupted comparison")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    from gear_rl.compare.jobs import Job, Setting
    from gear_rl.compare.page import html
    from gear_rl.compare.plan import open_folder
    from gear_rl.compare.results import summarise
    from gear_rl.compare.runner import run_all
    from gear_rl.compare.table import markdown, text
    from gear_rl.compare.tuning import budget, choose, tried
    from gear_rl.files import write_json, write_text
    from gear_rl.training.run import prepare
    from gear_rl.training.run_folder import RunFolder

    if args.resume is not None:
        if any((args.credit, args.out, args.set, args.config, args.task, args.data, args.model)):
            raise GearError("--resume continues the comparison as it was planned; leave the other settings out.")
        folder, plan = args.resume, open_folder(args.resume, None)
    else:
        plan = _plan(args)
        for name in plan.methods:  # an error that a run would raise is raised before the first
            for world in [*plan.reported, *plan.tuning_worlds]:
                config = plan.config(Job(name, Setting(plan.learning_rates[0]), 0, world))
                prepare(config)[0].close()
        folder = args.out or RunFolder.free_name(Path("runs"), f"compare-{config.task}")
        plan = open_folder(folder, plan)
    began = time.time()
    until = math.inf if args.minutes is None else began + 60 * args.minutes

    def say(text: str) -> None:
        print(text, file=sys.stderr if args.json else sys.stdout, flush=True)

    def show_progress(done: int, of: int, job: object) -> None:
        say(f"{done}/{of} runs  {getattr(job, 'name', '')}  {time.time() - began:.0f} s")

    try:
        tuning, waiting = plan.tuning_jobs(), 0
        if tuning:
            say(f"tuning: {len(tuning)} runs → {folder}\n{budget(plan)}")
            waiting = run_all(plan, tuning, folder, args.workers, show_progress, until)
        if not waiting:
            found = tried(plan, folder)
            chosen = choose(plan, found)
            say("chosen: " + ", ".join(f"{m} {one}" for m, one in chosen.items()))
            waiting = run_all(plan, plan.comparison_jobs(chosen), folder, args.workers, show_progress, until)
    except KeyboardInterrupt:
        say(f"\ninterrupted; finished runs are kept. Continue with: gear compare --resume {folder}")
        return 130
    if waiting:
        say(f"the time is up; {waiting} runs wait. Continue with: gear compare --resume {folder}")
        return 0
    summary = summarise(plan, folder, chosen, found, args.target)
    write_json(folder / "summary.json", summary)
    write_text(folder / "summary.md", markdown(summary))
    write_text(folder / "summary.html", html(summary))
    print(json.dumps(summary) if args.json else "\n" + text(summary))
    say(f"\nsummary.html, summary.md, summary.json and every run are in {folder}")
    return 0


def _plan(args: argparse.Namespace) -> Plan:
    from gear_rl.cli.settings import load_config, merge, options_by_method
    from gear_rl.compare.plan import Plan

    if not args.credit:
        raise GearError("name the methods to compare: --credit grpo,gear,oracle.")
    methods = [name.strip() for name in args.credit.split(",") if name.strip()]
    settings = load_config(args.config) if args.config else {}
    settings = merge(settings, read_settings(args, ("train", "task", "credit"), keys=("model", "task"), config=settings))
    if args.task:
        settings = merge(settings, {"task": {"name": args.task}})
    if args.model:
        settings["model"] = args.model
    rates = _rates(args.learning_rates or (OTHER_RATES if settings.get("model") else EMBEDDED_RATES))
    if isinstance(settings.get("credit"), dict):
        options = options_by_method(settings["credit"], methods)
        settings["credit"] = {name: own for name, own in options.items() if own}
    worlds, tuning_worlds = _numbers(args.worlds, "--worlds"), _numbers(args.tuning_worlds, "--tuning-worlds")
    runs = args.tuning_runs or (12 * max(1, len(tuning_worlds)) * args.tuning_seeds if len(rates) > 1 else 0)
    return Plan(methods, args.seeds, rates, runs, args.tuning_seeds, worlds, tuning_worlds, settings)


def _rates(given: str) -> list[float]:
    try:
        return [float(rate) for rate in given.split(",")]
    except ValueError:
        raise GearError(f"--learning-rates {given}: numbers, separated by commas.") from None


def _numbers(given: str | None, flag: str) -> list[int]:
    try:
        return [int(number) for number in given.split(",")] if given else []
    except ValueError:
        raise GearError(f"{flag} {given}: whole numbers, separated by commas.") from None
