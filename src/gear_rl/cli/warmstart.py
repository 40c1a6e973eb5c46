"""`gear warmstart`: teach a model a task's form by its gold answers; the result is a model for `gear train --model`."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError, unknown_name

EPILOG = """examples:
  gear warmstart --task gsm8k --data DIR --model MODEL --out warm/gsm8k
  gear warmstart --task bfcl --set task.category=multi_turn_base --set task.train_share=0.5 --model MODEL \\
      --set warm.epochs=4 --out warm/bfcl
  gear train --task gsm8k --data DIR --model warm/gsm8k

settings are task.NAME and warm.NAME (rows, epochs, batch, learning_rate, hinted, longest, pass_tokens).
Only rows of the training split are read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("--task", required=True, help="a task's name, a .jsonl file or package.module:Class")
    parser.add_argument("--model", required=True, help="a folder or hub name")
    parser.add_argument("--out", required=True, type=Path, help="folder for the model; must not exist or be empty")
    parser.add_argument("--data", help="folder with the task's data in its upstream layout (task.data)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, repeatable")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")


def run(args: argparse.Namespace) -> int:
    from gear_rl.settings import parse_assignments
    from gear_rl.tasks import make_task
    from gear_rl.training.warm_start import WarmStartOptions

    settings = parse_assignments(args.set)
    for key, value in settings.items():
        if key not in ("task", "warm"):
            raise unknown_name("setting", key, ("task", "warm"))
        if not isinstance(value, dict):
            raise GearError(f"{key}={value!r}: settings are {key}.NAME=VALUE.")
    known = [field.name for field in fields(WarmStartOptions)]
    for name in settings.get("warm", {}):
        if name not in known:
            raise unknown_name("warm option", name, known)
    options = WarmStartOptions(**settings.get("warm", {}))
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise GearError(f"{args.out} exists. Give another --out.")
    task = make_task(args.task, **settings.get("task", {}), **({"data": args.data} if args.data else {}))
    try:
        return _teach(args, task, options)
    finally:
        task.close()


def _teach(args: argparse.Namespace, task: Any, options: Any) -> int:
    rows = task.rows("train", options.rows, args.seed)

    import torch

    from gear_rl.files import write_json
    from gear_rl.models import choose_device, load_model, room_of
    from gear_rl.training.run import versions
    from gear_rl.training.warm_start import GoldRollouts, warm_start

    torch.manual_seed(args.seed)
    model, tokenizer = load_model(args.model, choose_device(args.device))
    room = min(options.longest, room_of(model.config))
    rollouts = GoldRollouts(tokenizer, task, rows, room)
    counts = {"used": len(rollouts.found), "refused": rollouts.refused, "too_long": rollouts.too_long}
    print(
        f"{counts['used']} gold rollouts of {len(rows)} "
        f"(refused by the judge {counts['refused']}, too long {counts['too_long']})"
    )
    curve = warm_start(model, rollouts, options, args.seed, lambda text: print(text, flush=True))
    args.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    setting = {"task": args.task, "model": args.model, "seed": args.seed, "warm": asdict(options)}
    write_json(args.out / "warm_start.json", {**setting, "counts": counts, "versions": versions(), "curve": curve})
    print(f"the model is in {args.out}: gear train --task {args.task} --model {args.out}")
    return 0
