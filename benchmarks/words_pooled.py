"""Runs from several warm starts together, paired within each: `python benchmarks/words_pooled.py FILE…`.

Each file is what `words.py train --out` wrote, of one warm start. A method with and without its tuned strength
(`gear`, `gear_alpha4`) is one row: what differs between warm starts cancels in a pair, what differs in strength does not.
The interval is Student's, over all pairs; it fits as long as no run collapses, and none has.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from statistics import mean, stdev

from scipy import stats

from gear_rl.compare.statistics import sign_flip_p

RATE = 3e-5
Key = tuple[int, str, str, int]
COMPARED = [(arm, "calls", "grpo", "calls") for arm in ("gear", "token", "random_segments", "rlsd", "checked_hints", "opsd")]
COMPARED += [("oracle", "calls", "grpo", "calls")]
COMPARED += [(arm, "calls", "gear", "calls") for arm in ("token", "random_segments", "rlsd")]
COMPARED += [(arm, "calls", "gear", "calls") for arm in ("fixed_segments", "turn_segments")]
COMPARED += [("checked_hints", "calls", "opsd", "calls")]
COMPARED += [(arm, "bias30", "grpo", "calls") for arm in ("gear", "rlsd", "checked_hints", "opsd")]
COMPARED += [("checked_hints", "bias30", "rlsd", "bias30"), ("gear", "answer", "grpo", "calls")]


def read(files: list[Path]) -> dict[Key, float]:
    """(warm start, arm, hint, seed) → true success in %, sampled."""
    found = {}
    for start, file in enumerate(files):
        for run in json.loads(file.read_text())["runs"]:
            if abs(run["learning_rate"] / RATE - 1) < 1e-6:
                arm = run["arm"].removesuffix("_alpha4")
                found[start, arm, run["hint"], run["seed"]] = 100 * run["after"]["sampled"]["success"]
    return found


def differences(runs: dict[Key, float], arm: str, hint: str, other: str, its_hint: str) -> list[float]:
    """Of all pairs with the same warm start and seed."""
    keys = [key for key in sorted(runs) if key[1:3] == (arm, hint) and (key[0], other, its_hint, key[3]) in runs]
    return [runs[key] - runs[key[0], other, its_hint, key[3]] for key in keys]


def table(runs: dict[Key, float]) -> str:
    lines = ["| | pairs | mean difference (95 %) | least to most | p |", "|---|---|---|---|---|"]
    for arm, hint, other, its_hint in COMPARED:
        apart = differences(runs, arm, hint, other, its_hint)
        if len(apart) > 1:
            name = f"{arm}, {hint}, over {other}" + (f", {its_hint}" if its_hint != "calls" else "")
            reach = float(stats.t.ppf(0.975, len(apart) - 1)) * stdev(apart) / math.sqrt(len(apart))
            middle = f"{mean(apart):+.1f} ({mean(apart) - reach:+.1f} to {mean(apart) + reach:+.1f})"
            span = f"{min(apart):+.1f} to {max(apart):+.1f}"
            lines.append(f"| {name} | {len(apart)} | {middle} | {span} | {sign_flip_p(apart):.4f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(read([Path(name) for name in sys.argv[1:]])))
