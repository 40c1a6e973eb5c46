"""`gear train`: train an agent, or continue a run that was interrupted."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

from gear_rl.cli.arguments import add_set, add_task, option_lines, read_settings
from gear_rl.errors import GearError
from gear_rl.options import LARGEST_SEED, argument

EPILOG = """examples:
  gear train                              GEAR on the embedded model and task
  gear train --credit grpo --seed 1
  gear train --set credit.alpha=4 --set task.hint_errors=0.3
  gear train --set train.lora_rank=16 --set trl.epsilon_high=0.28
  gear train --task gsm8k --settings      every setting of such a run
  gear train --resume runs/workshop-gear-0

A run's config.json can be given back with --config."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", help="a folder or hub name; default: the model that comes with the task")
    add_task(parser)
    parser.add_argument("--credit", help="the credit method; default: gear")
    add_set(parser, "train.NAME, task.NAME, credit.NAME, trl.NAME (any other field of TRL's GRPOConfig)")
    parser.add_argument("--config", help="a .toml or .json file of settings; the command line overrides it")
    parser.add_argument("--seed", type=argument(int, at_least=0, at_most=LARGEST_SEED))
    parser.add_argument("--out", type=Path, help="run folder; default: the next free runs/TASK-CREDIT-SEED")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue an interrupted run, exactly")
    parser.add_argument("--settings", action="store_true", help="list every setting of such a run, and do not train")
    parser.add_argument("--json", action="store_true", help="print the list of --settings as JSON")


def run(args: argparse.Namespace) -> int:
    if args.settings:
        return _list_settings(args)
    if args.json:
        raise GearError("--json is for --settings. A run's results are in its folder: evaluation.json, metrics.jsonl.")

    from gear_rl.engines.ranks import check_agreement
    from gear_rl.training.config import TrainConfig
    from gear_rl.training.processes import in_first, join_processes
    from gear_rl.training.progress import NoProgress, Progress, TerminalProgress
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
            raise GearError(
                f"--resume continues the run as it was configured; leave out --{(given or ['set'])[0]}. For other settings "
                f"start another run: --config {args.resume / 'config.json'} --set NAME=VALUE."
            )
        folder, stored = RunFolder.open(args.resume)
        config = TrainConfig.from_dict(stored)
    else:
        config = TrainConfig.from_dict(_settings(args))
    ranks = join_processes(config.train.device)
    values = config.as_dict()
    flat = {f"{table}.{name}": value for table in ("task", "credit", "train", "trl") for name, value in values[table].items()}
    where = {"model": config.model, "seed": config.seed, "--out": args.out, "--resume": args.resume}
    check_agreement(ranks, "configurations", flat | where)
    task, model = prepare(config, ranks.size)
    try:
        if args.resume is None:
            stem = re.sub(r"[^\w.+-]+", "-", f"{Path(config.task).name}-{config.credit}-{config.seed}")

            def create() -> Path:
                return RunFolder.create(args.out or RunFolder.free_name(Path("runs"), stem), values).path

            folder = RunFolder(in_first(ranks, create))
        say: Progress = TerminalProgress() if ranks.index == 0 else NoProgress()
        among = f", {ranks.size} processes" if ranks.size > 1 else ""
        say.line(f"{config.credit} on {config.task}, seed {config.seed}{among} → {folder.path}")
        try:
            return train(config, folder, task, model, say, ranks)
        except (GearError, OSError):
            if args.resume is None and ranks.index == 0:
                folder.remove_if_nothing_happened()
            raise
    finally:
        task.close()


def _list_settings(args: argparse.Namespace) -> int:
    from gear_rl.training.config import TrainConfig, settings

    config = TrainConfig.from_dict(_settings(args))
    values = config.as_dict()
    given = {f"{table}.{name}": value for table in ("train", "credit", "task") for name, value in values[table].items()}
    given |= {name: values[name] for name in ("model", "seed")}
    listed = [
        entry | ({"value": given[entry["name"]]} if entry["name"] in given else {})
        for entry in settings(config.task, config.credit)
    ]
    if args.json:
        print(json.dumps({"task": config.task, "credit": config.credit, "settings": listed}, indent=2))
        return 0
    width = max(60, min(110, shutil.get_terminal_size().columns))
    print(f"task {config.task}, method {config.credit}. Change a setting with --set NAME=VALUE.\n")
    print("\n".join(option_lines(listed, width)))
    return 0


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """The file's settings, overridden by --set and --data, overridden by the other flags."""
    from gear_rl.cli.settings import load_config, merge, options_by_method

    settings = load_config(args.config) if args.config else {}
    settings.pop("format", None)  # a run's own config.json
    sections, keys = ("train", "task", "credit", "trl"), ("model", "seed", "task", "credit")
    given = read_settings(args, sections, keys=keys, config=settings)
    for source in (settings, given):
        for name in ("task", "credit"):
            if isinstance(source.get(name), str):
                source[name] = {"name": source[name]}
    settings = merge(settings, given)
    settings = merge(
        settings, {name: {"name": getattr(args, name)} for name in ("task", "credit") if getattr(args, name)}
    )
    credit = settings.get("credit")
    if isinstance(credit, dict) and any(isinstance(v, dict) for k, v in credit.items() if k != "name"):
        chosen = str(credit.pop("name", "gear"))  # credit.METHOD.NAME, as commands with several methods need it
        settings["credit"] = {"name": chosen, **options_by_method(credit, [chosen])[chosen]}
    return settings | {name: getattr(args, name) for name in ("model", "seed") if getattr(args, name) is not None}
