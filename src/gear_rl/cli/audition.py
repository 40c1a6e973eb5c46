"""`gear audition`: what a task, a model and a hint offer to each method, before anything is trained."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from gear_rl.cli.arguments import COUNT, POSITIVE, add_set, add_task, check_out, read_settings
from gear_rl.cli.recorded_rollouts import add_step, groups_of, of_step, task_of
from gear_rl.errors import GearError
from gear_rl.files import write_text

if TYPE_CHECKING:
    from gear_rl.audition.groups import Groups

EPILOG = """examples:
  gear audition                                 embedded model and task
  gear audition --model runs/workshop-gear-0    the same with a trained model
  gear audition --set task.hint_errors=0.3      with hints that may be wrong
  gear audition --task my_tasks:MyTask --model PATH --prompts 64
  gear audition runs/workshop-gear-0            a run's first recorded step"""
SELECTION = "gear,token,rlsd,sdar,gigpo,mt_grpo,high_entropy,low_probability,oracle"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "record", metavar="RECORD", type=Path, nargs="?", help="a run's folder or its record: use its rollouts, play none"
    )
    parser.add_argument("--model", help="folder, hub name or run folder; default: the task's own")
    add_task(parser)
    add_set(parser, "task.NAME")
    parser.add_argument("--credit", metavar="A,B,…", default=SELECTION, help=f"methods, or all (default: {SELECTION})")
    parser.add_argument("--prompts", type=COUNT, help="default 96")
    parser.add_argument("--group", type=COUNT, help="rollouts of each prompt (default 8)")
    parser.add_argument("--measured", type=COUNT, default=32, help="rollouts measured turn by turn (default 32)")
    parser.add_argument("--continuations", type=COUNT, default=8, help="of each point at most (default 8)")
    parser.add_argument(
        "--points", choices=("turns", "tokens"), default="turns",
        help="measure turn by turn, or token by token: finer, and as many times dearer as a turn has tokens",
    )  # fmt: skip
    parser.add_argument("--temperature", type=POSITIVE, help="of sampling and scoring (default 1, or the run's)")
    parser.add_argument("--seed", type=int, help="of problems and sampling (default 0, or the run's)")
    add_step(parser)
    parser.add_argument("--device", default="auto")
    parser.add_argument("-o", "--out", metavar="PAGE.html", type=Path, help="also draw it as a self-contained HTML page")
    parser.add_argument("--force", action="store_true", help="replace PAGE.html if it exists")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from gear_rl.methods import METHODS, method

    if args.group == 1:
        raise GearError("--group 1: rollouts are compared within a group; give 2 or more.")
    for name in ("prompts", "group") if args.record else ("step",):
        if getattr(args, name) is not None:
            raise GearError(f"--{name}: {'a record has its own' if args.record else 'only with a record'}.")
    names = list(METHODS) if args.credit == "all" else [n.strip() for n in args.credit.split(",") if n.strip()]
    for name in names:
        method(name)
    if args.out is not None:
        check_out(args.out, args.force)
    options = read_settings(args, ("task",)).get("task", {})

    from gear_rl.audition.findings import audition
    from gear_rl.audition.hint_forms import other_forms
    from gear_rl.audition.page import html
    from gear_rl.audition.text import text

    groups = _recorded(args, options) if args.record else _played(args, options)
    try:
        forms = other_forms(groups.task, groups.rows[:: groups.size], groups.seed)
        found = audition(groups, names, args.measured, args.continuations, _say, forms)
        found["step"] = _training_step(groups, [row["method"] for row in found["methods"]])
    finally:
        groups.task.close()
    if args.out is not None:
        write_text(args.out, html(found))
        _say(f"written to {args.out}")
    print(json.dumps(found, indent=1) if args.json else text(found))
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _training_step(groups: Groups, names: list[str]) -> dict[str, Any] | None:
    """Memory and seconds of a training step by each method, as `gear plan` has them for rollouts as long as these; None: it
    does not know this kind of model."""
    from gear_rl.planning.hardware import MEASURED_ON, this_gpu
    from gear_rl.planning.memory import GIB
    from gear_rl.planning.model_shapes import shape_of
    from gear_rl.planning.plan import plan
    from gear_rl.planning.setup import Setup
    from gear_rl.sampling.rewind import turns_of

    prompt, completion, turns, whole = (
        max(1, round(mean(map(count, groups.played))))
        for count in (
            lambda p: len(p.prompt_ids), lambda p: sum(p.action_mask), lambda p: len(turns_of(p.action_mask)),
            lambda p: len(p.completion_ids),
        )
    )  # fmt: skip
    try:
        setup = Setup(
            shape_of(groups.model.config.to_dict(), "model", "the model"), this_gpu() or MEASURED_ON, prompt=prompt,
            completion=completion, turns=min(turns, completion), reply=max(0, whole - completion) // max(1, turns - 1),
            group=groups.size, rollouts=8 * groups.size,
        )  # fmt: skip
        plans = plan(setup, names)
    except GearError:
        return None
    costs = {p.name: {"gib": p.memory.peak / GIB, "seconds": p.time.total + p.sampling, "fits": p.fits} for p in plans}
    return {"gpu": setup.gpu.name, "rollouts": setup.rollouts, "methods": costs}


def _recorded(args: argparse.Namespace, options: dict[str, Any]) -> Groups:
    from gear_rl.records.record import is_record, open_record

    source = args.record / "rollouts.jsonl" if args.record.is_dir() else args.record
    if source.exists() and not is_record(source):
        raise GearError(
            f"{source} is no record. Transcripts and traces cannot be rewound: `gear credit` shows what a method makes of them."
        )
    _, rollouts = open_record(source)
    task, config = task_of(source, args.task, options)
    lines = of_step(rollouts, args.step, source)
    groups = replace(groups_of(args, source, config, task, lines), points=args.points)
    _say(f"{len(lines)} recorded rollouts of {len(lines) // groups.size} prompts …")
    return groups


def _played(args: argparse.Namespace, options: dict[str, Any]) -> Groups:
    import torch

    from gear_rl.audition.groups import play_groups
    from gear_rl.models import choose_device, load_model, model_for
    from gear_rl.tasks import make_task

    task = make_task(args.task or "workshop", **options)
    device, seed, size = choose_device(args.device), args.seed or 0, args.group or 8
    model, tokenizer = load_model(model_for(task.name, args.model, task.default_model()), device)
    if device == "cpu" and model.num_parameters() < 5_000_000:
        torch.set_num_threads(1)  # twice as fast as two threads at this size
    rows = task.rows("train", args.prompts or 96, seed)
    _say(f"{len(rows)} prompts, {size} rollouts each …")
    temperature = 1.0 if args.temperature is None else args.temperature
    return play_groups(task, model, tokenizer, rows, size, seed=seed, temperature=temperature, points=args.points)
