"""`gear audition`: what a task, a model and a hint offer to each method, before anything is trained."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gear_rl.cli.arguments import COUNT, POSITIVE, add_set, add_task, check_out, read_settings
from gear_rl.errors import GearError
from gear_rl.files import write_text

EPILOG = """examples:
  gear audition                                  the embedded model on the embedded task
  gear audition --model runs/workshop-gear-0     the same with a trained model
  gear audition --set task.hint_errors=0.3       with hints that are wrong now and then
  gear audition --task my_tasks:MyTask --model PATH --prompts 64"""
SELECTION = "gear,token,rlsd,sdar,gigpo,mt_grpo,high_entropy,low_probability,oracle"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", help="folder, hub name or run folder; default: the task's own")
    add_task(parser)
    add_set(parser, "task.NAME")
    parser.add_argument("--credit", metavar="A,B,…", default=SELECTION, help=f"methods, or all (default: {SELECTION})")
    parser.add_argument("--prompts", type=COUNT, default=96, help="default 96")
    parser.add_argument("--group", type=COUNT, default=8, help="rollouts of each prompt (default 8)")
    parser.add_argument("--measured", type=COUNT, default=32, help="rollouts measured turn by turn (default 32)")
    parser.add_argument("--continuations", type=COUNT, default=8, help="of each point at most (default 8)")
    parser.add_argument(
        "--points", choices=("turns", "tokens"), default="turns",
        help="measure turn by turn, or token by token: finer, and as many times dearer as a turn has tokens",
    )  # fmt: skip
    parser.add_argument("--temperature", type=POSITIVE, default=1.0, help="of sampling and scoring (default 1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("-o", "--out", metavar="PAGE.html", type=Path, help="also draw it as a self-contained HTML page")
    parser.add_argument("--force", action="store_true", help="replace PAGE.html if it exists")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from gear_rl.methods import METHODS, method
    from gear_rl.tasks import make_task

    if args.group < 2:
        raise GearError("--group 1: rollouts are compared within a group; give 2 or more.")
    names = list(METHODS) if args.credit == "all" else [n.strip() for n in args.credit.split(",") if n.strip()]
    for name in names:
        method(name)
    if args.out is not None:
        check_out(args.out, args.force)
    settings = read_settings(args, ("task",))
    task = make_task(args.task or "workshop", **settings.get("task", {}))

    import torch

    from gear_rl.audition.findings import audition
    from gear_rl.audition.groups import play_groups
    from gear_rl.audition.hint_forms import other_forms
    from gear_rl.audition.page import html
    from gear_rl.audition.text import text
    from gear_rl.models import choose_device, load_model, model_for

    default = task.default_model()
    device = choose_device(args.device)
    model, tokenizer = load_model(model_for(task.name, args.model, default), device)
    if device == "cpu" and model.num_parameters() < 5_000_000:
        torch.set_num_threads(1)  # twice as fast as two threads at this size

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    rows = task.rows("train", args.prompts, args.seed)
    say(f"{len(rows)} prompts, {args.group} rollouts each …")
    groups = play_groups(
        task, model, tokenizer, rows, args.group, seed=args.seed, temperature=args.temperature, points=args.points
    )
    found = audition(groups, names, args.measured, args.continuations, say, other_forms(task, rows, args.seed))
    if args.out is not None:
        write_text(args.out, html(found))
        say(f"written to {args.out}")
    print(json.dumps(found, indent=1) if args.json else text(found))
    return 0
