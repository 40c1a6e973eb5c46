"""`gear train`: train an agent, or go on with a run that was interrupted."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError

EPILOG = """examples:
  gear train                                   GEAR on the embedded model and task
  gear train --credit grpo --seed 1
  gear train --set credit.alpha=4 --set task.hint_errors=0.3 --set train.steps=600
  gear train --resume runs/workshop-gear-0

settings are task.NAME, credit.NAME (`gear methods METHOD` lists them) and train.NAME;
a run's config.json can be given back with --config."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", help="a folder or hub name; default: the model that comes with the task")
    parser.add_argument("--task", help="a task's name, a .jsonl file or package.module:Class; default: workshop")
    parser.add_argument("--data", help="folder with the task's data in its upstream layout (task.data)")
    parser.add_argument("--credit", help="the credit method; default: gear")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, repeatable")
    parser.add_argument("--config", help="a .toml or .json file of settings; the command line goes before it")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--out", type=Path, help="run folder; default: the next free runs/TASK-CREDIT-SEED")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with an interrupted run, exactly")


def run(args: argparse.Namespace) -> int:
    from gear_rl.training.config import TrainConfig
    from gear_rl.training.progress import TerminalProgress
    from gear_rl.training.run import prepare
    from gear_rl.training.run import run as train
    from gear_rl.training.run_folder import RunFolder

    if args.resume is not None:
        given = [
            name
            for name in ("model", "task", "credit", "config", "seed", "data", "out")
            if getattr(args, name) is not None
        ]
        if given or args.set:
            raise GearError(f"--resume goes on with the run as it was configured; leave out --{(given or ['set'])[0]}.")
        folder, stored = RunFolder.open(args.resume)
        config = TrainConfig.from_dict(stored)
        task, model = prepare(config)
    else:
        config = TrainConfig.from_dict(_settings(args))
        task, model = prepare(config)
        stem = re.sub(r"[^\w.+-]+", "-", f"{Path(config.task).name}-{config.credit}-{config.seed}")
        out = args.out or RunFolder.free_name(Path("runs"), stem)
        folder = RunFolder.create(out, config.as_dict())
    say = TerminalProgress()
    say.line(f"{config.credit} on {config.task}, seed {config.seed} → {folder.path}")
    try:
        return train(config, folder, task, model, say)
    finally:
        task.close()


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """File under --set under the named flags."""
    from gear_rl.settings import load_config, merge, parse_assignments

    settings = load_config(args.config) if args.config else {}
    settings.pop("format", None)  # a run's own config.json
    for name in ("task", "credit"):
        if isinstance(settings.get(name), str):
            settings[name] = {"name": settings[name]}
    settings = merge(settings, parse_assignments(args.set))
    flags: dict[str, Any] = {name: {"name": getattr(args, name)} for name in ("task", "credit") if getattr(args, name)}
    if args.data is not None:
        flags["task"] = {**flags.get("task", {}), "data": args.data}
    flags |= {name: getattr(args, name) for name in ("model", "seed") if getattr(args, name) is not None}
    return merge(settings, flags)
