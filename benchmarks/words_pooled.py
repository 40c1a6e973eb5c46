"""Runs from several warm starts together, paired within each: `python benchmarks/words_pooled.py FILE…`.

Each file is what `words.py train --out` wrote, of one warm start. A method with and without its tuned strength
(`gear`, `gear_alpha4`) is one row: what differs between warm starts cancels in a pair, what differs in strength does not.
Seeds of one warm start are alike, so with several files the mean and its interval (Student's) are over the warm starts' own
means; with one file, over its seeds.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import mean, stdev

from scipy import stats

from gear_rl.compare.plan import FIRST_TUNING_SEED

RATE = 3e-5
Key = tuple[int, str, str, int]
COMPARED = [(arm, "calls", "grpo", "calls") for arm in ("gear", "token", "random_segments", "rlsd", "checked_hints", "opsd")]
COMPARED += [(arm, "calls", "grpo", "calls") for arm in ("oracle", "gear_outcome", "gear_teacher")]
COMPARED += [(f"{cut}_segments", "calls", "grpo", "calls") for cut in ("fixed", "turn")]
COMPARED += [(arm, "calls", "gear", "calls") for arm in ("token", "random_segments", "fixed_segments", "turn_segments", "rlsd")]
COMPARED += [("oracle", "calls", "gear", "calls"), ("checked_hints", "calls", "opsd", "calls")]
COMPARED += [(arm, "bias30", "grpo", "calls") for arm in ("gear", "rlsd", "checked_hints", "opsd")]
COMPARED += [(arm, "bias30", "opsd", "bias30") for arm in ("gear", "rlsd")] + [("checked_hints", "bias30", "rlsd", "bias30")]
COMPARED += [(arm, "bias30", "gear", "bias30") for arm in ("token", "random_segments")]
COMPARED += [(arm, "answer", "gear", "answer") for arm in ("token", "random_segments")]
COMPARED += [
    (arm, "answer", "grpo", "calls") for arm in ("gear", "token", "random_segments", "rlsd", "checked_hints", "opsd")
]


def read(files: list[Path]) -> dict[Key, float]:
    """(warm start, arm, hint, seed) → true success in %, sampled. Runs for tuning (words_rates.py) are left out."""
    found = {}
    for start, file in enumerate(files):
        for run in json.loads(file.read_text())["runs"]:
            if abs(run["learning_rate"] / RATE - 1) < 1e-6 and run["seed"] < FIRST_TUNING_SEED:
                arm = run["arm"].removesuffix("_alpha4")
                found[start, arm, run["hint"], run["seed"]] = 100 * run["after"]["sampled"]["success"]
    return found


def differences(runs: dict[Key, float], arm: str, hint: str, other: str, its_hint: str) -> dict[int, list[float]]:
    """Warm start → of its pairs with the same seed."""
    found: dict[int, list[float]] = {}
    for key in sorted(runs):
        beside = key[0], other, its_hint, key[3]
        if key[1:3] == (arm, hint) and beside in runs:
            found.setdefault(key[0], []).append(runs[key] - runs[beside])
    return found


def interval(values: list[float]) -> str:
    """Mean and Student's 95 %; the mean alone for two values, of which an interval says nothing."""
    if len(values) < 3:
        return f"{mean(values):+.1f}"
    reach = float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return f"{mean(values):+.1f} ({mean(values) - reach:+.1f} to {mean(values) + reach:+.1f})"


def table(runs: dict[Key, float]) -> str:
    lines = ["| | pairs | warm starts | mean difference (95 %) | least to most of pairs |", "|---|---|---|---|---|"]
    for arm, hint, other, its_hint in COMPARED:
        by_start = differences(runs, arm, hint, other, its_hint)
        pairs = [apart for each in by_start.values() for apart in each]
        if len(pairs) > 1:
            name = f"{arm}, {hint}, over {other}" + (f", {its_hint}" if its_hint != "calls" else "")
            middle = interval(pairs if len(by_start) == 1 else [mean(each) for each in by_start.values()])
            span = f"{min(pairs):+.1f} to {max(pairs):+.1f}"
            lines.append(f"| {name} | {len(pairs)} | {len(by_start)} | {middle} | {span} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    print(table(read(parser.parse_args().files)))
