"""Learning rates tuned for each method on the workshop in words: `python benchmarks/words_rates.py FILE [FILE…]`.

Each file is what `words.py tune --out` wrote, of one warm start. Every method has one run at each rate, with a seed of its own
(from 1000 on) and right hints. The rate with the highest training reward over the second half of the steps is the method's;
without all runs there is no choice. True success is shown in parentheses and chooses nothing. Beside it are the reported runs
(seeds under 1000) at these rates, and their distance from GRPO at GRPO's own rate with the same warm start and seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

from differences import signed
from words_runs import Run as Planned
from words_runs import late_reward, make_run

from gear_rl.compare.plan import FIRST_TUNING_SEED

HINT, RATES = "calls", (1.5e-5, 3e-5, 6e-5)
"""Of every method's tuning runs."""
ARMS = ("grpo", "gear_alpha4", "rlsd", "opsd", "checked_hints", "token_alpha4", "random_segments_alpha4")
Run = dict[str, Any]
Tuning = dict[str, dict[float, list[Run]]]


def tuned(runs: list[Run]) -> Tuning:
    """Method → rate → its tuning runs."""
    found: Tuning = {}
    for run in runs:
        if run["seed"] >= FIRST_TUNING_SEED and run["hint"] == HINT:
            found.setdefault(run["arm"], {}).setdefault(run["learning_rate"], []).append(run)
    return found


def choose(found: Tuning) -> dict[str, float]:
    """Method → its rate, of the methods that have had the whole budget: every planned rate, with the same seeds."""
    seeds = {run["seed"] for by_rate in found.values() for runs in by_rate.values() for run in runs}
    budget = {(rate, seed) for rate in RATES for seed in seeds}
    whole = {
        arm: by_rate
        for arm, by_rate in found.items()
        if budget == {(rate, run["seed"]) for rate, runs in by_rate.items() for run in runs}
    }
    return {arm: max(by_rate, key=lambda rate: mean(map(late_reward, by_rate[rate]))) for arm, by_rate in whole.items()}


def plan(args: argparse.Namespace, train: Run, task: Run) -> tuple[list[Planned], Callable[[list[Run]], list[Planned]]]:
    """The tuning runs, method by method; and from finished runs to the reported ones, seed by seed, of methods with a rate."""

    def one(arm: str, rate: float, seed: int) -> Planned:
        return make_run(args, train, task, arm, HINT, rate, seed)

    def reported(finished: list[Run]) -> list[Planned]:
        rates = choose(tuned(finished))
        return [one(arm, rates[arm], seed) for seed in args.seeds for arm in args.arms if arm in rates]

    return [one(arm, rate, FIRST_TUNING_SEED) for arm in args.arms for rate in RATES], reported


def table(runs: list[Run]) -> str:
    """For each rate training reward and, in parentheses, true success in %. No choice where runs are missing. Then the reported
    runs with the chosen rate, and their distance from GRPO's with the same seed."""
    found = tuned(runs)
    chosen, reported = choose(found), dict[str, dict[int, Run]]()
    for run in runs:
        if run["seed"] < FIRST_TUNING_SEED and run["hint"] == HINT and run["learning_rate"] == chosen.get(run["arm"]):
            reported.setdefault(run["arm"], {})[run["seed"]] = run
    heads = ["method", *(f"{rate:g}" for rate in RATES), "chosen", "sampled, by seed", "over grpo, each pair", "greedy, mean"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for arm in sorted(found, key=lambda arm: ARMS.index(arm) if arm in ARMS else len(ARMS)):
        cells = [arm]
        for rate in RATES:
            tries = found[arm].get(rate)
            cells.append(f"{mean(map(late_reward, tries)):.3f} ({100 * mean(map(success, tries)):.1f})" if tries else "")
        mine, grpo = dict(sorted(reported.get(arm, {}).items())), reported.get("grpo", {}) if arm != "grpo" else {}
        cells.append(f"{chosen[arm]:g}" if arm in chosen else "")
        cells.append(", ".join(f"{100 * success(run):.1f}" for run in mine.values()))
        over = [100 * (success(run) - success(grpo[seed])) for seed, run in mine.items() if seed in grpo]
        cells.append(", ".join(map(signed, over)))
        cells.append(f"{100 * mean(success(run, 'greedy') for run in mine.values()):.1f}" if mine else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def success(run: Run, how: str = "sampled") -> float:
    return float(run["after"][how]["success"])


def show(runs: list[Run]) -> None:
    missing = f"No run has a tuning seed ({FIRST_TUNING_SEED} or more) and the hint `{HINT}`."
    print(table(runs) if tuned(runs) else missing)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    for file in parser.parse_args().files:
        print(file)
        show(json.loads(file.read_text())["runs"])
