"""A public task on a language model: which credit method learns most on reasoning-gym's puzzles.

    python benchmarks/public_task.py families --starts SHORT MIDDLE LONG --out families.json
    python benchmarks/public_task.py rates --families families.json --folder runs/rates --out rates.json
    python benchmarks/public_task.py train --families families.json --rates rates.json --folder runs/public --out public.json
    python benchmarks/public_task.py table public.json

A task on which nobody can learn tells no methods apart. So `families` takes several warm starts of one model, from the one with
the fewest examples to the one with the most, and keeps the families in which the model succeeds now and then and a longer
warm start succeeds more often: there is something to learn, and this model can learn it. It takes the shortest start with
enough of them, and of that the families with the largest rise. Problems are used for nothing else, and no reinforcement
learning is looked at. `--apart` samples each family's problems in batches of their own: up to rounding the same samples.

`rates` trains GRPO at each rate on a seed of its own; `train` gives every method the rate with the highest training reward over
the second half of these runs. So the rate is the baseline's best, which is no favour to the others. Both may be called again
with the same folder: finished runs are kept. docs/evidence.md has the warm starts.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import mean, variance
from typing import Any

import words_runs
from differences import detectable
from words_runs import ARMS, Run, late_reward

from gear_rl.evaluation.evaluate import evaluate_model
from gear_rl.files import write_json
from gear_rl.models import choose_device, load_model
from gear_rl.sampling.sampler import Sampler
from gear_rl.tasks import make_task

TAUGHT = (
    "advanced_geometry", "bitwise_arithmetic", "caesar_cipher", "coin_flip", "complex_arithmetic", "cryptarithm",
    "decimal_arithmetic", "decimal_chain_sum", "dice", "fraction_simplification", "kakurasu", "knights_knaves",
    "letter_jumble", "mini_sudoku", "number_filtering", "number_format", "power_function", "prime_factorization",
    "products", "sentence_reordering", "simple_integration", "string_insertion", "time_intervals", "word_ladder",
    "word_sequence_reversal", "word_sorting",
)  # fmt: skip
"""Families of the warm starts: those whose answers have five tokens or more (median of twenty problems), at most fifty and
never none (`ab`), whose questions have at most 260, and that take less than 20 ms to make a problem. An answer of one token has
no credit to assign."""
KEPT = (0.15, 0.65)
"""Success of the families that are used."""
RISE = 0.05
"""By which the longest warm start must be ahead there. With 256 problems success is known to ± 5 points and a rise to ± 8, so
one of 5 may still be chance."""
ENOUGH = 4
"""Families. The shortest start that has as many is used, if none has, the one with the most; and as many are taken of it."""
CHOOSING_SEED, RATE_SEED = 77, 900
"""Of the problems that choose families, and of the runs that choose the rate."""
TASK = {"instruction": "Give only the answer, between <answer> and </answer>.", "max_turn_tokens": 64}
TRAIN = {**words_runs.TRAIN, "steps": 120, "rollouts_per_pass": 32, "eval_rows": 512}
METHODS = ("grpo", "gear_alpha4", "token_alpha4", "random_segments_alpha4", "rlsd", "checked_hints", "opsd")


def options(families: list[str]) -> dict[str, Any]:
    return {**TASK, "dataset": ",".join(families)}


def families(args: argparse.Namespace) -> int:
    if len(set(args.starts)) < 2:
        raise SystemExit("--starts: give two warm starts or more; families are chosen by what a longer one gains.")
    device = choose_device(args.device)
    shares = {}
    for start in args.starts:
        found = score(start, device, options(args.taught), args.rows * len(args.taught), CHOOSING_SEED, apart=args.apart)
        shares[start] = {name: found["sampled"]["categories"][name]["success"] for name in args.taught}
    model, used = chosen(shares)
    before = {}
    if used:
        for who in ("student", "hinted"):
            before[who] = score(model, device, options(used), args.eval_rows, hinted=who == "hinted")
    write_json(args.out, {"rows_each": args.rows, "choice": shares, "model": model, "families": used, "before": before})
    for name in args.taught:
        line = "  ".join(f"{100 * shares[start][name]:5.1f}" for start in args.starts)
        print(f"{name:24} {line}{'  used' if name in used else ''}")
    print(f"start: {model}")
    return int(not used)


def score(
    path: str, device: str, task_options: dict[str, Any], rows: int, seed: int = 0, hinted: bool = False, apart: bool = False
) -> dict[str, Any]:
    """As `evaluate_model`; with `apart` only what is known of each family."""
    model, tokenizer = load_model(path, device)
    model = Sampler("bfloat16" if device.startswith("cuda") else "float32")(model)
    task = make_task("reasoning_gym", **task_options)
    problems = task.rows("test", rows, seed)
    kinds = sorted({row["category"] for row in problems})
    batches = [[row for row in problems if row["category"] == kind] for kind in kinds] if apart else [problems]
    try:
        found = [evaluate_model(model, tokenizer, task, batch, hinted=hinted) for batch in batches]
        if not apart:
            return found[0]
        return {how: {"categories": {kind: one[how] for kind, one in zip(kinds, found, strict=True)}} for how in found[0]}
    finally:
        task.close()


def chosen(shares: dict[str, dict[str, float]]) -> tuple[str, list[str]]:
    """The start and its families. `shares`: success of each start, the one with the fewest examples first, by family."""
    *shorter, longest = shares
    usable = {
        start: [
            name for name, share in shares[start].items()
            if KEPT[0] <= share <= KEPT[1] and shares[longest][name] >= share + RISE
        ]
        for start in shorter
    }  # fmt: skip
    enough = [start for start in shorter if len(usable[start]) >= ENOUGH]
    best = enough[0] if enough else max(shorter, key=lambda start: len(usable[start]))
    steepest = sorted(usable[best], key=lambda name: shares[best][name] - shares[longest][name])[:ENOUGH]
    return best, sorted(steepest)


def plan(args: argparse.Namespace, arms: list[str], rates: list[float], seeds: list[int]) -> list[Run]:
    """Seed by seed, so that all arms have as many when time is over."""
    choice = json.loads(args.families.read_text())
    task = {"name": "reasoning_gym", **options(choice["families"]), "judges": 1}
    return [
        Run(arm, "answer", rate, seed, {
            "task": task, "model": choice["model"], "credit": {"name": ARMS[arm][0], **ARMS[arm][1]}, "seed": seed,
            "train": {**TRAIN, "device": args.device, "steps": args.steps, "eval_rows": args.eval_rows, "learning_rate": rate},
        })
        for seed in seeds for rate in rates for arm in arms
    ]  # fmt: skip


def rates(args: argparse.Namespace) -> int:
    words_runs.run(plan(args, ["grpo"], args.learning_rates, [RATE_SEED]), args.folder, args.minutes, args.processes)
    found = words_runs.collect(args.folder)
    reward = {f"{run['learning_rate']:g}": late_reward(run) for run in found["runs"]}
    best = max(reward, key=lambda rate: reward[rate]) if len(reward) == len(args.learning_rates) else None
    write_json(args.out, {"reward": reward, "chosen": best and float(best), **found})
    print(reward, "chosen:", best or "none yet: some runs are missing")
    return int(best is None)


def train(args: argparse.Namespace) -> int:
    rate = json.loads(args.rates.read_text())["chosen"]
    words_runs.run(plan(args, args.arms, [rate], args.seeds), args.folder, args.minutes, args.processes)
    write_json(args.out, words_runs.collect(args.folder))
    print(table_of(json.loads(args.out.read_text())))
    return 0


def table_of(results: dict[str, Any]) -> str:
    """Success on unseen problems in %, and what that is over GRPO; the smallest difference that could have been seen."""
    sampled, greedy = dict[str, dict[int, float]](), dict[str, dict[int, float]]()
    for run in results["runs"]:
        for how, cells in (("sampled", sampled), ("greedy", greedy)):
            cells.setdefault(run["arm"], {})[run["seed"]] = 100 * run["after"][how]["success"]
    grpo, differences = sampled.get("grpo", {}), []
    lines = ["| method | sampled | mean | over grpo | greedy, mean |", "|---|---|---|---|---|"]
    for arm, runs in sampled.items():
        over = [success - grpo[seed] for seed, success in runs.items() if seed in grpo and arm != "grpo"]
        differences += [over] if len(over) > 1 else []
        values = ", ".join(f"{runs[seed]:.1f}" for seed in sorted(runs))
        apart = f"{mean(over):+.1f}" if over else ""
        lines.append(f"| {arm} | {values} | {mean(runs.values()):.1f} | {apart} | {mean(greedy[arm].values()):.1f} |")
    if differences:
        spread, pairs = math.sqrt(mean(variance(over) for over in differences)), min(map(len, differences))
        lines.append(
            f"\n{pairs} pairs spread by {spread:.1f}: a difference of {detectable(spread, pairs):.1f} would show."
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for run in (families, rates, train):
        one = commands.add_parser(run.__name__)
        one.set_defaults(run=run)
        one.add_argument("--device", default="auto")
        one.add_argument("--eval-rows", type=int, default=TRAIN["eval_rows"])
        one.add_argument("--out", type=Path, required=True)
        if run is families:
            one.add_argument(
                "--starts", nargs="+", required=True, help="warm starts, the one with the fewest examples first"
            )
            one.add_argument("--rows", type=int, default=256, help="of each family")
            one.add_argument("--taught", nargs="+", default=list(TAUGHT), help="families to choose from")
            one.add_argument("--apart", action="store_true", help="a batch holds problems of one family only")
            continue
        one.add_argument("--families", type=Path, required=True)
        one.add_argument("--steps", type=int, default=TRAIN["steps"])
        one.add_argument("--processes", type=int, default=3, help="that share the device")
        one.add_argument("--minutes", type=float, default=9.0, help="no run starts that would not end in time")
        one.add_argument("--folder", type=Path, required=True, help="a file per finished run")
        if run is rates:
            one.add_argument("--learning-rates", nargs="+", type=float, default=[1.5e-5, 3e-5, 6e-5])
        else:
            one.add_argument("--rates", type=Path, required=True)
            one.add_argument("--arms", nargs="+", default=list(METHODS), choices=ARMS)
            one.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    one = commands.add_parser("table")
    one.add_argument("results", type=Path)
    one.set_defaults(run=lambda args: print(table_of(json.loads(args.results.read_text()))) or 0)
    args = parser.parse_args()
    return args.run(args)


if __name__ == "__main__":
    raise SystemExit(main())
