"""`gear warmstart`: teach a model a task's form by its reference answers; the result is a model for `gear train --model`."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gear_rl.cli.arguments import add_set, add_task, read_settings
from gear_rl.errors import GearError
from gear_rl.options import check_options

EPILOG = """examples:
  gear warmstart --task gsm8k --data DIR --model MODEL --out warm/gsm8k
  gear warmstart --task bfcl --set task.category=multi_turn_base \\
      --set task.train_share=0.5 --set warm.epochs=4 \\
      --model MODEL --out warm/bfcl
  gear train --task gsm8k --data DIR --model warm/gsm8k

warm.NAME: rows, epochs, batch, learning_rate, hinted, longest, pass_tokens.
Only rows of the training split are read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    add_task(parser, default=None, required=True)
    parser.add_argument("--model", required=True, help="a folder or hub name")
    parser.add_argument("--out", required=True, type=Path, help="folder for the model; must not exist or be empty")
    add_set(parser, "task.NAME, warm.NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")


def run(args: argparse.Namespace) -> int:
    from gear_rl.tasks import make_task
    from gear_rl.training.warm_start import WarmStartOptions

    settings = read_settings(args, ("task", "warm"))
    check_options(WarmStartOptions, settings.get("warm", {}), "warm")
    options = WarmStartOptions(**settings.get("warm", {}))
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise GearError(f"{args.out} exists. Give another --out.")
    task = make_task(args.task, **settings.get("task", {}))
    try:
        return _teach(args, task, options)
    finally:
        task.close()


def _teach(args: argparse.Namespace, task: Any, options: Any) -> int:
    rows = task.rows("train", options.rows, args.seed)

    import torch

    from gear_rl.files import replacing_folder, write_json
    from gear_rl.models import choose_device, context_of, find_model, load_model
    from gear_rl.training.failed_writes import is_failed_write
    from gear_rl.training.run import versions
    from gear_rl.training.warm_start import rollouts_of, warm_start

    torch.manual_seed(args.seed)
    model, tokenizer = load_model(find_model(args.model), choose_device(args.device))
    context = min(options.longest, context_of(model.config))
    rollouts = rollouts_of(tokenizer, task, rows, context)
    counts = {"used": rollouts.count, "rejected": rollouts.rejected, "too_long": rollouts.too_long}
    print(
        f"{counts['used']} reference rollouts of {len(rows)} "
        f"(rejected by the judge {counts['rejected']}, too long {counts['too_long']})"
    )
    with replacing_folder(args.out) as scratch:  # before the training: a place that cannot be written to costs no time
        curve = warm_start(model, tokenizer, rollouts, options, args.seed, lambda text: print(text, flush=True))
        try:
            model.save_pretrained(scratch)
            tokenizer.save_pretrained(scratch)
        except Exception as error:  # safetensors raises its own type
            if not is_failed_write(error):
                raise
            reason = str(error).splitlines()[0]
            raise GearError(f"{args.out} could not be written: {reason}. Free some space, then run it again.") from None
        setting = {"task": args.task, "model": args.model, "seed": args.seed, "warm": asdict(options)}
        write_json(scratch / "warm_start.json", {**setting, "counts": counts, "versions": versions(), "curve": curve})
    again = [word for pair in args.set if pair.startswith("task.") for word in ("--set", pair)]
    again += ["--data", str(args.data)] if args.data is not None else []
    command = shlex.join(["gear", "train", "--task", args.task, *again, "--model", str(args.out)])
    print(f"the model is in {args.out}: {command}")
    return 0
