"""The workshop in words on a language model: is the warm start as designed, what does divergence look like where a rollout
goes wrong, and which credit method learns most.

    python benchmarks/words.py gate   --model WARM                                     exit code 1 where it is not as designed
    python benchmarks/words.py curves --model WARM --out curves.json --svg curves.svg
    python benchmarks/words.py train  --model WARM --folder runs/words --minutes 9 --processes 3 --out words.json
    python benchmarks/words.py tune   --model WARM --folder runs/rates --minutes 30 --processes 8 --out rates.json
    python benchmarks/words.py settings --model WARM2 --set task.world=2 --folder runs/two --minutes 20 --out tuned.json
    python benchmarks/words.py settings --model WARM3 --set task.world=3 --folder runs/three --minutes 20 --out reported.json \\
        --tuned tuned.json
    python benchmarks/words.py teacher --model WARM --folder runs/teacher --minutes 30 --processes 4 --out teacher.json
    python benchmarks/words.py table  words.json --svg words.svg

`tune` gives every method three learning rates, then trains it with the best of them (words_rates.py). `settings` gives it four
pairs of learning rate and strength and, called with their results, trains it with the best from another warm start
(words_settings.py). `teacher` trains
GEAR with a live and with a frozen teacher (words_teacher.py). All four of `train`, `tune`, `settings` and `teacher` may be
called again with the same folder: finished runs are kept, the others start over.
docs/workshop_words.md has the whole recipe.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import words_curves
import words_picture
import words_rates
import words_runs
import words_settings
import words_teacher

from gear_rl.cli.arguments import add_set
from gear_rl.cli.settings import parse_settings
from gear_rl.evaluation.evaluate import evaluate_model
from gear_rl.files import write_json
from gear_rl.models import choose_device, load_model
from gear_rl.sampling.sampler import Sampler
from gear_rl.tasks import make_task

GATE = {"student": (0.10, 0.30), "student_greedy": (0.0, 0.60), "hinted": (0.90, 1.0), "hinted_greedy": (0.90, 1.0)}
"""True success: where it must lie."""


def _given(args: argparse.Namespace, *more: str) -> dict[str, Any]:
    return parse_settings("words.py", args.set, ("task", *more))


def gate(args: argparse.Namespace) -> int:
    device = choose_device(args.device)
    model, tokenizer = load_model(args.model, device)
    model = Sampler("bfloat16" if device.startswith("cuda") else "float32")(model)
    task = make_task("workshop_words", **_given(args).get("task", {}))
    rows, scores, before = task.rows("test", args.rows), dict[str, float](), {}
    for who, hinted in (("student", False), ("hinted", True)):
        before[who] = evaluate_model(model, tokenizer, task, rows, hinted=hinted)
        scores[who], scores[f"{who}_greedy"] = (before[who][how]["success"] for how in ("sampled", "greedy"))
    outside = [name for name, (low, high) in GATE.items() if not low <= scores[name] <= high]
    result = {"model": args.model, "rows": args.rows, "scores": scores, "outside": outside, "evaluation": before}
    print(json.dumps(scores))
    print("\n".join(f"{name} {scores[name]:.3f} is outside {GATE[name]}" for name in outside) or "as designed")
    if args.out:
        write_json(args.out, result)
    return int(bool(outside))


def curves(args: argparse.Namespace) -> int:
    device = choose_device(args.device)
    model, tokenizer = load_model(args.model, device)
    task = make_task("workshop_words", **_given(args).get("task", {}))
    result = words_curves.measure(
        model.eval(), tokenizer, task, task.rows("train", args.rows, seed=args.seed), args.seed
    )
    write_json(args.out, result)
    if args.svg:
        args.svg.write_text(words_picture.picture(result))
    print(words_curves.in_words(result))
    return 0


def _results(args: argparse.Namespace, planned: list[Any], then: Any = None) -> dict[str, Any]:
    """Of the runs that have ended in time, in `args.out` too. `then`: the runs that follow from finished ones."""
    words_runs.run(planned, args.folder, args.minutes, args.processes, then)
    results = words_runs.collect(args.folder)
    write_json(args.out, results)
    return results


def train(args: argparse.Namespace) -> int:
    given = _given(args, "train")
    print(words_runs.table(_results(args, words_runs.plan(args, given.get("train", {}), given.get("task", {})))))
    return 0


def tune(args: argparse.Namespace) -> int:
    given = _given(args, "train")
    words_rates.show(_results(args, *words_rates.plan(args, given.get("train", {}), given.get("task", {})))["runs"])
    return 0


def settings(args: argparse.Namespace) -> int:
    given = _given(args, "train")
    made = _results(args, words_settings.plan(args, given.get("train", {}), given.get("task", {})))["runs"]
    words_settings.show([*words_settings.read(args.tuned), *made])
    return 0


def teacher(args: argparse.Namespace) -> int:
    given = _given(args, "train")
    planned = words_teacher.plan(args, given.get("train", {}), given.get("task", {}))
    print(words_teacher.table(_results(args, planned)["runs"]))
    return 0


def table(args: argparse.Namespace) -> int:
    results = json.loads(args.results.read_text())
    print(words_runs.table(results))
    if args.svg:
        args.svg.write_text(words_picture.training(results, args.hint, args.learning_rate))
    return 0


def schedule(command: argparse.ArgumentParser) -> None:
    command.add_argument("--processes", type=int, default=3, help="that share the device")
    command.add_argument("--minutes", type=float, default=9.0, help="no run starts that would not end in time")
    command.add_argument("--folder", type=Path, required=True, help="a file per finished run")
    command.add_argument("--out", type=Path, required=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)

    def command(run: Any, takes: str | None) -> argparse.ArgumentParser:
        made = commands.add_parser(run.__name__)
        made.set_defaults(run=run)
        if takes:
            made.add_argument("--model", required=True)
            made.add_argument("--device", default="auto")
            add_set(made, takes)
        return made

    one = command(gate, "task.NAME")
    one.add_argument("--rows", type=int, default=256)
    one.add_argument("--out", type=Path)
    one = command(curves, "task.NAME")
    one.add_argument("--rows", type=int, default=512)
    one.add_argument("--seed", type=int, default=7)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--svg", type=Path)
    one = command(train, "task.NAME, train.NAME")
    one.add_argument("--arms", nargs="+", default=list(words_runs.ARMS), choices=words_runs.ARMS)
    one.add_argument("--hints", nargs="+", default=["calls"], choices=words_runs.HINTS)
    one.add_argument("--cells", nargs="+", type=words_runs.cell, help="ARM:HINT, in place of --arms and --hints")
    one.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    one.add_argument("--learning-rates", nargs="+", type=float, default=[3e-5])
    schedule(one)
    one = command(tune, "task.NAME, train.NAME")
    one.add_argument("--arms", nargs="+", default=list(words_rates.ARMS), choices=words_runs.ARMS)
    one.add_argument("--seeds", nargs="+", type=int, default=[0, 1], help="of the runs with the chosen rates")
    schedule(one)
    one = command(settings, "task.NAME, train.NAME")
    methods = list(words_settings.GRID)
    one.add_argument("--methods", nargs="+", default=methods, choices=methods)
    one.add_argument("--seeds", nargs="+", type=int, default=[0, 1], help="of the runs with the chosen settings")
    one.add_argument("--tuned", type=Path, nargs="+", default=[], help="results of the tuning runs: now the reported ones")
    one.add_argument("--hints", nargs="+", default=[words_rates.HINT], choices=words_runs.HINTS, help="each tuned by itself")
    schedule(one)
    one = command(teacher, "task.NAME, train.NAME")
    one.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    schedule(one)
    one = command(table, None)
    one.add_argument("results", type=Path)
    one.add_argument("--svg", type=Path, help="true success over training")
    one.add_argument("--hint", default="calls", choices=words_runs.HINTS)
    one.add_argument("--learning-rate", type=float, default=3e-5)
    args = parser.parse_args()
    return args.run(args)


if __name__ == "__main__":
    raise SystemExit(main())
