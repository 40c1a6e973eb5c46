"""A public task on a language model: which credit method learns most on reasoning-gym's puzzles.

    python benchmarks/public_task.py families --model WARM --out families.json
    python benchmarks/public_task.py rates --model WARM --families families.json --folder runs/rates --out rates.json
    python benchmarks/public_task.py train --model WARM --families families.json --rates rates.json --folder runs/public \
        --out public.json
    python benchmarks/public_task.py table public.json

`families` keeps those in which the model succeeds in 10 to 75 % of samples, on problems used for nothing else. `rates` trains
GRPO at each rate on a seed of its own; `train` gives every method the rate with the highest training reward over the second
half of these runs. So the rate is the baseline's best, which is no favour to the others. Both may be called again with the same
folder: finished runs are kept. docs/evidence.md has the warm start.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import mean, variance
from typing import Any

import words_runs
from words_runs import ARMS, Run

from gear_rl.evaluation.evaluate import evaluate_model
from gear_rl.files import write_json
from gear_rl.models import choose_device, load_model
from gear_rl.sampling.sampler import Sampler
from gear_rl.tasks import make_task

TAUGHT = (
    "word_sequence_reversal", "word_sorting", "number_filtering", "palindrome_generation", "spell_backward", "chain_sum",
    "time_intervals", "letter_counting", "prime_factorization", "knights_knaves", "sentence_reordering", "family_relationships",
)  # fmt: skip
"""Families of the warm start."""
KEPT = (0.10, 0.75)
"""Success of the families that are used."""
CHOOSING_SEED, RATE_SEED = 77, 1000
"""Of the problems that choose families, and of the runs that choose the rate."""
TASK = {"instruction": "Give only the answer, between <answer> and </answer>.", "max_turn_tokens": 64}
TRAIN = {**words_runs.TRAIN, "steps": 150, "rollouts_per_pass": 32, "eval_rows": 512}
METHODS = ("grpo", "gear_alpha4", "token_alpha4", "random_segments_alpha4", "rlsd", "checked_hints", "opsd")


def options(families: list[str]) -> dict[str, Any]:
    return {**TASK, "dataset": ",".join(families)}


def families(args: argparse.Namespace) -> int:
    device = choose_device(args.device)
    model, tokenizer = load_model(args.model, device)
    model = Sampler("bfloat16" if device.startswith("cuda") else "float32")(model)
    shares = {}
    for name in args.taught:
        with_task = make_task("reasoning_gym", **options([name]))
        found = evaluate_model(model, tokenizer, with_task, with_task.rows("test", args.rows, CHOOSING_SEED))
        shares[name] = found["sampled"]["success"]
        with_task.close()
    used = [name for name, share in shares.items() if KEPT[0] <= share <= KEPT[1]]
    before = {}
    if used:
        task = make_task("reasoning_gym", **options(used))
        rows = task.rows("test", args.eval_rows)
        before = {who: evaluate_model(model, tokenizer, task, rows, hinted=who == "hinted") for who in ("student", "hinted")}
        task.close()
    write_json(args.out, {"rows_each": args.rows, "choice": shares, "families": used, "before": before})
    print("\n".join(f"{name:24} {100 * share:5.1f} %{'  used' if name in used else ''}" for name, share in shares.items()))
    return int(not used)


def plan(args: argparse.Namespace, arms: list[str], rates: list[float], seeds: list[int]) -> list[Run]:
    """Seed by seed, so that all arms have as many when time is over."""
    task = {"name": "reasoning_gym", **options(json.loads(args.families.read_text())["families"]), "judges": 1}
    return [
        Run(arm, "answer", rate, seed, {
            "task": task, "model": args.model, "credit": {"name": ARMS[arm][0], **ARMS[arm][1]}, "seed": seed,
            "train": {**TRAIN, "device": args.device, "steps": args.steps, "eval_rows": args.eval_rows, "learning_rate": rate},
        })
        for seed in seeds for rate in rates for arm in arms
    ]  # fmt: skip


def late_reward(run: dict[str, Any]) -> float:
    rewards = run["curves"]["reward"]
    return mean(rewards[len(rewards) // 2 :])


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
        lines.append(f"\n{pairs} pairs spread by {spread:.1f}: a difference of {detectable(spread, pairs):.1f} would show.")
    return "\n".join(lines)


def detectable(spread: float, pairs: int, power: float = 0.8, level: float = 0.05) -> float:
    """The difference that a paired t-test shows with this power."""
    from scipy import optimize, stats

    least = stats.t.ppf(1 - level / 2, pairs - 1)
    missed = optimize.brentq(lambda shift: stats.nct.cdf(least, pairs - 1, shift) - (1 - power), 0.0, 100.0)
    return float(missed) * spread / math.sqrt(pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for run in (families, rates, train):
        one = commands.add_parser(run.__name__)
        one.set_defaults(run=run)
        one.add_argument("--model", required=True)
        one.add_argument("--device", default="auto")
        one.add_argument("--eval-rows", type=int, default=TRAIN["eval_rows"])
        one.add_argument("--out", type=Path, required=True)
        if run is families:
            one.add_argument("--rows", type=int, default=64, help="of each family")
            one.add_argument("--taught", nargs="+", default=list(TAUGHT))
            continue
        one.add_argument("--families", type=Path, required=True)
        one.add_argument("--steps", type=int, default=TRAIN["steps"])
        one.add_argument("--processes", type=int, default=3, help="that share the device")
        one.add_argument("--minutes", type=float, default=9.0, help="no run starts that would not end in time")
        one.add_argument("--folder", type=Path, required=True, help="a file per finished run")
        if run is rates:
            one.add_argument("--learning-rates", nargs="+", type=float, default=[3e-5, 1e-4, 3e-4])
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
