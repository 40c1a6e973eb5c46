"""`gear eval`: score a model on a task, or check a task's judge on answers known to be right and wrong."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gear_rl.cli.arguments import COUNT, POSITIVE, add_set, add_task, read_settings
from gear_rl.errors import GearError, unknown_name
from gear_rl.options import argument

if TYPE_CHECKING:
    from gear_rl.sampling.players import Player
    from gear_rl.tasks import Task

EPILOG = """examples:
  gear eval                                 embedded model and task
  gear eval --model runs/workshop-gear-0    what training made of it
  gear eval --task gsm8k --data gsm8k --model Qwen/Qwen3-4B --samples 4
  gear eval --task aime24 --endpoint http://localhost:8000 \\
            --model Qwen/Qwen3-4B --samples 32 --temperature 0.6 \\
            --top-p 0.95 --mode sampled
  gear eval --check gsm8k --data gsm8k      references 100 %, empty answers 0 %

After an interruption, the same command continues where it stopped."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--model", help="a model folder, a hub name or a run folder; default: the task's own model")
    add_task(parser)
    add("--check", metavar="TASK", help="no model: judge the task's reference answers and empty ones")
    add_set(parser, "task.NAME, chat.NAME (of the chat template)")
    add("--split", help="default: test (--check: all)")
    add("--rows", type=COUNT, help="problems to score on; default: all of them")
    add("--mode", choices=("both", "sampled", "greedy"), default="both")
    add("--samples", type=COUNT, default=1, metavar="K", help="samples of each problem (default 1)")
    add(
        "--temperature",
        type=argument(float, above=0, note="--mode greedy is temperature 0"),
        default=1.0,
        help="of the samples (default 1)",
    )
    add("--top-p", type=argument(float, above=0, at_most=1), default=1.0, help="of the samples (default 1)")
    add("--seed", type=int, default=0, help="of the sampling")
    add("--hinted", action="store_true", help="show the model the hint: how good the teacher is")
    add("--endpoint", metavar="URL", help="ask an OpenAI-compatible server instead of loading the model")
    add("--api-key-env", metavar="NAME", help="environment variable with the endpoint's key")
    add("--concurrency", type=COUNT, default=16, help="requests to the endpoint at once (default 16)")
    add("--timeout", type=POSITIVE, default=300.0, help="seconds for one request (default 300)")
    add("--device", default="auto")
    add("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    add("--batch-tokens", type=COUNT, default=2**17, metavar="N", help="tokens in one batch (default 131072)")
    add("--out", type=Path, help="folder of the results; default: evals/TASK-MODEL-SETTINGS")
    add("--json", action="store_true", help="print the results as JSON")


def run(args: argparse.Namespace) -> int:
    from gear_rl.tasks import make_task

    _check_arguments(args)
    settings = read_settings(args, ("task", "chat"))
    options, chat = settings.get("task", {}), settings.get("chat", {})
    name = args.check or args.task or "workshop"
    task = make_task(name, **options)
    try:
        return _check(args, name, task) if args.check else _score(args, name, options, chat, task)
    finally:
        task.close()


def _check_arguments(args: argparse.Namespace) -> None:
    """Arguments that exclude each other, before anything is loaded."""
    if args.check and (args.model or args.task or args.endpoint):
        raise GearError("--check TASK judges a task's own answers: leave out --model, --task and --endpoint.")
    if args.endpoint and not args.model:
        raise GearError("--endpoint: name the model that it serves with --model.")
    if args.mode == "greedy" and args.samples > 1:
        raise GearError("--mode greedy: more samples of a problem would all be the same; leave out --samples.")


def _check(args: argparse.Namespace, name: str, task: Task) -> int:
    from gear_rl.cli.eval_report import show_check
    from gear_rl.evaluation.task_check import check_split

    if args.split and args.split not in task.splits:
        raise unknown_name(f"split of task {name}", args.split, task.splits)
    checks, refused = [], []
    for split in (args.split,) if args.split else task.splits:
        try:
            check = check_split(task, split, args.rows)
        except GearError as error:
            refused.append((split, error))
            continue
        checks.append(check)
        if not args.json:
            show_check(name, check)
    if not checks:
        raise refused[-1][1]
    for split, reason in refused:
        print(f"gear: {name} {split}: not checked. {reason}", file=sys.stderr)
    if args.json:
        print(json.dumps({"task": name, "checks": [check.as_dict() for check in checks]}))
    return 0 if all(check.passed for check in checks) else 1


def _score(args: argparse.Namespace, name: str, options: dict, chat: dict, task: Task) -> int:
    split = args.split or "test"
    if split not in task.splits:
        raise unknown_name(f"split of task {name}", split, task.splits)
    from gear_rl.cli.eval_report import show
    from gear_rl.evaluation.evaluate import evaluate, plan, with_ids
    from gear_rl.evaluation.result_folder import ResultFolder, digest
    from gear_rl.models import model_for

    model = model_for(name, args.model, task.default_model())
    rows = with_ids(task.rows(split, args.rows), split)
    greedy, samples = args.mode != "sampled", args.samples if args.mode != "greedy" else 0
    jobs = plan(
        task, rows, samples=samples, greedy=greedy, temperature=args.temperature, top_p=args.top_p, seed=args.seed,
        hinted=args.hinted,
    )  # fmt: skip
    player, identity = _player(args, model, chat)
    settings = {
        "task": {"name": name, **options},
        "split": split,
        "problems": {"count": len(rows), "digest": digest([[r["id"], r["prompt"], r.get("hint")] for r in rows])},
        "max_turns": task.max_turns,
        "max_turn_tokens": task.max_turn_tokens,
        **identity,
        "chat": chat,
        "hinted": args.hinted,
        "sampled": {"samples": samples, "temperature": args.temperature, "top_p": args.top_p} if samples else None,
        "greedy": greedy,
        "seed": args.seed,
    }
    stem = f"{Path(name).name.split(':')[-1].removesuffix('.jsonl')}-{Path(model).name}"
    folder = ResultFolder(args.out or Path("evals") / f"{stem}-{digest(settings)[:8]}", settings)
    try:
        summary = evaluate(player, task, jobs, folder, say=None if args.json else _say)
    finally:
        folder.close()
    if args.json:
        shown = {
            "model": model,
            "task": settings["task"],
            "split": split,
            "hinted": args.hinted,
            "out": str(folder.path),
        }
        print(json.dumps({**shown, **summary}))
    else:
        show(name, split, model, summary, folder.path, task)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _player(args: argparse.Namespace, model: str, chat: dict[str, Any]) -> tuple[Player, dict[str, Any]]:
    """Who plays, and what of it belongs to the settings that a result folder must not mix."""
    if args.endpoint:
        from gear_rl.chat.endpoint import Endpoint
        from gear_rl.sampling.endpoint_player import EndpointPlayer

        key = None
        if args.api_key_env:
            key = os.environ.get(args.api_key_env)
            if not key:
                raise GearError(f"--api-key-env {args.api_key_env}: that environment variable is not set.")
        endpoint = Endpoint(args.endpoint, model, key, timeout=args.timeout)
        endpoint.greet()
        return EndpointPlayer(endpoint, chat, args.concurrency), {"endpoint": endpoint.base, "model": model}

    from gear_rl.evaluation.result_folder import fingerprint_of_model
    from gear_rl.models import choose_device, load_model
    from gear_rl.sampling.players import LocalPlayer

    loaded, tokenizer = load_model(model, choose_device(args.device), args.dtype)
    loaded.eval()
    local = Path(model).is_dir()
    weights = fingerprint_of_model(Path(model)) if local else getattr(loaded.config, "_commit_hash", None)
    player = LocalPlayer(loaded, tokenizer, chat, args.batch_tokens)
    return player, {"model": model, "weights": weights, "dtype": args.dtype}
