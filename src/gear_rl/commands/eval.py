"""`gear eval`: score a model on a task, sampled and greedy, true success and reward apart."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gear_rl.errors import GearError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a model folder, a hub name or a run folder; default: the task's own model")
    parser.add_argument("--task", default="workshop")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="task options: task.NAME=VALUE")
    parser.add_argument("--rows", type=int, default=1000, help="unseen problems to score on (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the sampling")
    parser.add_argument("--hinted", action="store_true", help="show the model the hint: how good the teacher is")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    from gear_rl.settings import parse_assignments
    from gear_rl.tasks import make_task

    settings = parse_assignments(args.set)
    options = settings.pop("task", {})
    if settings or not isinstance(options, dict):
        raise GearError("gear eval takes task options only: --set task.NAME=VALUE.")
    if args.rows < 1:
        raise GearError(f"--rows {args.rows}: score at least one problem.")
    task = make_task(args.task, **options)
    path = args.model or task.default_model()
    if path is None:
        raise GearError(f"task {args.task!r} brings no model of its own: give one with --model.")
    if (Path(path) / "evaluation.json").is_file() and (Path(path) / "model").is_dir():
        path = str(Path(path) / "model")  # a finished run

    from gear_rl.evaluate import evaluate
    from gear_rl.training import choose_device, load_model

    model, tokenizer = load_model(path, choose_device(args.device))
    result = evaluate(model, tokenizer, task, task.rows("test", args.rows), seed=args.seed, hinted=args.hinted)
    if args.json:
        print(json.dumps({"model": path, "task": {"name": args.task, **options}, "hinted": args.hinted, **result}))
        return 0
    print(f"{path} on {args.rows} unseen problems of {args.task}")
    for how, scores in result.items():
        low, high = (100 * x for x in scores["success_interval"])
        success, reward = 100 * scores["success"], 100 * scores["reward"]
        print(f"  {how:8s} true success {success:5.1f} % ({low:.1f}–{high:.1f})   reward {reward:5.1f} %")
    return 0
