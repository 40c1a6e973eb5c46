"""`gear localize`: does credit find the mistake? Any signal and any method, where the first wrong step is known."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gear_rl.cli.arguments import COUNT, POSITIVE, add_set, add_task, read_settings
from gear_rl.errors import GearError

if TYPE_CHECKING:
    from gear_rl.localize.labelled import Part
    from gear_rl.methods import Method

EPILOG = """examples:
  gear localize                              embedded model and task
  gear localize --model embedded --model runs/workshop-gear-0 \\
                --teacher-model embedded
  gear localize runs/workshop-gear-0         a run's record, in thirds
  gear localize steps.jsonl --model PATH     labels as ProcessBench or PRM800K
  gear localize --arithmetic --model PATH    sums with one planted mistake

--model may be repeated: each model plays, or scores, and is measured by itself."""
DEFAULT_ROLLOUTS = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "source", metavar="SOURCE", nargs="?", type=Path, help="a run folder or record, or a file with step labels"
    )
    parser.add_argument("--arithmetic", action="store_true", help="generated sums instead of a SOURCE")
    parser.add_argument("--model", action="append", default=[], help="folder, hub name, run folder, or embedded")
    parser.add_argument("--teacher-model", metavar="MODEL", help="measure a frozen teacher with these weights, too")
    parser.add_argument("--signals", metavar="A,B,…", help="default: all; reverse_kl, gap, entropy, …")
    parser.add_argument("--credit", metavar="A,B,…", help="methods, their blame in lost rollouts (default: gear)")
    add_task(parser)
    add_set(parser, "task.NAME, credit.METHOD.NAME, chat.NAME (of the chat template)")
    parser.add_argument("--rollouts", type=COUNT, metavar="N", help=f"play, make or read N ({DEFAULT_ROLLOUTS})")
    parser.add_argument(
        "--hint", choices=("solution", "answer"), help="ground truth of step files (solution, else answer)"
    )
    parser.add_argument("--hint-template", metavar="TEXT", help="how {prompt} and {hint} become the teacher's prompt")
    parser.add_argument("--chat-template", metavar="FILE", type=Path, help="a chat template instead of the model's own")
    parser.add_argument("--temperature", type=POSITIVE, default=1.0, help="of sampling and scoring (default 1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from gear_rl.cli.settings import options_by_method
    from gear_rl.localize.blame import SIGNALS, check_signals
    from gear_rl.localize.results import summarise
    from gear_rl.localize.table import text
    from gear_rl.methods import method

    settings = read_settings(args, ("task", "credit", "chat"))
    _check(args, settings)
    signals = _names(args.signals) if args.signals is not None else list(SIGNALS)
    check_signals(signals)
    names = _names(args.credit) if args.credit is not None else ["gear"]
    methods = [method(name, **own) for name, own in options_by_method(settings.get("credit", {}), names).items()]
    source, unit, parts = _parts(args, settings, signals, methods)
    required = _names(args.signals or "") + _names(args.credit or "")
    summary = summarise(source, unit, parts, signals, methods, required=required, seed=args.seed)
    if not any(part["with_mistake"] for part in summary["parts"]):
        raise GearError("no rollout has a mistake, so there is nothing to find. Take more rollouts, or a weaker model.")
    print(json.dumps(summary, indent=1) if args.json else text(summary))
    return 0


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _check(args: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Arguments that exclude each other, before anything is loaded."""
    if args.source is not None and args.arithmetic:
        raise GearError("--arithmetic makes its own problems: leave out SOURCE, or --arithmetic.")
    steps = args.arithmetic or (args.source is not None and not _is_record(args.source))
    task = args.source is None and not args.arithmetic
    for given, name, fits in (
        (args.task or settings.get("task"), "--task, --data or task.NAME", task),
        (args.model, "--model", task or steps),
        (args.teacher_model, "--teacher-model", task or steps),
        (args.rollouts, "--rollouts", task or steps),
        (args.hint, "--hint", steps),
        (args.hint_template, "--hint-template", steps),
        (args.chat_template, "--chat-template", steps),
        (settings.get("chat"), "--set chat.NAME", steps),
    ):
        if given and not fits:
            what = "a played task" if task else "step labels" if steps else "a record, which holds what it needs"
            raise GearError(f"{name} does not apply to {what}.")
    if steps and not args.model:
        raise GearError("name the chat model whose signals are to find the mistakes with --model.")


def _parts(
    args: argparse.Namespace, settings: dict[str, Any], signals: list[str], methods: list[Method]
) -> tuple[dict[str, Any], str, Iterator[Part] | list[Part]]:
    """What the parts come from, what is to be found in them, and the parts."""
    if args.source is not None and _is_record(args.source):
        from gear_rl.localize.records import from_record

        header, parts = from_record(args.source)
        return {"record": str(args.source), "task": header.get("task"), "method": header.get("method")}, "token", parts
    from gear_rl.localize.sources import Request, played, solved
    from gear_rl.models import choose_device

    request = Request(
        signals=signals,
        methods=methods,
        models=args.model,
        teacher_model=args.teacher_model,
        rollouts=args.rollouts or DEFAULT_ROLLOUTS,
        seed=args.seed,
        temperature=args.temperature,
        device=choose_device(args.device),
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if args.source is None and not args.arithmetic:
        from gear_rl.tasks import make_task

        return played(request, make_task(args.task or "workshop", **settings.get("task", {})))
    from gear_rl.chat.hints import DEFAULT_TEMPLATE
    from gear_rl.chat.templates import read_template

    return solved(
        request,
        args.source,
        truths=(args.hint,) if args.hint else ("solution", "answer"),
        hint_template=args.hint_template or DEFAULT_TEMPLATE,
        chat_template=args.chat_template and read_template(args.chat_template),
        chat=settings.get("chat", {}),
    )


def _is_record(path: Path) -> bool:
    from gear_rl.records.record import is_record

    return path.is_dir() or is_record(path)
