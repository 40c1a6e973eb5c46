"""Runs from several warm starts together, paired within each: `python benchmarks/words_pooled.py FILE…`.

Each file is what `words.py train --out` wrote, of one warm start. A method with and without its tuned strength
(`gear`, `gear_alpha4`) is one row: what differs between warm starts cancels in a pair, what differs in strength does not.
Seeds of one warm start are alike, so with several files the mean and its interval (Student's) are over the warm starts' own
means; with one file, over its seeds. "Could be seen": the smallest mean that these warm starts, or seeds, would have shown.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import mean, stdev

from differences import detectable, signed
from scipy import stats
from words_runs import WITHOUT_HINT

from gear_rl.compare.plan import FIRST_TUNING_SEED

RATE = 3e-5
Key = tuple[int, str, str, int]
HINTS = {"calls": "right", "bias30": "faulty key", "answer": "answer only"}
"""As `words_runs` names them → as a page does."""
PEERS = ("gear", "token", "random_segments", "rlsd", "checked_hints", "opsd")
CUTS = ("token", "random_segments", "fixed_segments", "turn_segments")
COMPARED: dict[str, list[tuple[str, str]]] = {
    "calls": [
        *((arm, "grpo") for arm in (*PEERS, "oracle", "gear_outcome", "gear_teacher", "fixed_segments", "turn_segments")),
        *((arm, "gear") for arm in (*CUTS, "rlsd", "oracle")),
        ("checked_hints", "opsd"),
    ],
    "bias30": [
        *((arm, "grpo") for arm in ("gear", "rlsd", "checked_hints", "opsd")),
        ("gear", "opsd"), ("rlsd", "opsd"), ("checked_hints", "rlsd"), ("token", "gear"), ("random_segments", "gear"),
    ],
    "answer": [*((arm, "grpo") for arm in PEERS), ("token", "gear"), ("random_segments", "gear")],
}  # fmt: skip
"""Hint → the rows of the table: a method, and what it is compared with."""


def read(files: list[Path]) -> dict[Key, float]:
    """(warm start, arm, hint, seed) → true success in %, sampled. Runs for tuning (words_rates.py) are left out."""
    found = {}
    for start, file in enumerate(files):
        for run in json.loads(file.read_text())["runs"]:
            if abs(run["learning_rate"] / RATE - 1) < 1e-6 and run["seed"] < FIRST_TUNING_SEED:
                arm = run["arm"].removesuffix("_alpha4")
                found[start, arm, run["hint"], run["seed"]] = 100 * run["after"]["sampled"]["success"]
    return found


def differences(runs: dict[Key, float], hint: str, arm: str, other: str) -> dict[int, list[float]]:
    """Warm start → of its pairs with the same seed. GRPO reads no hint: its runs stand under right hints."""
    its_hint = "calls" if other in WITHOUT_HINT else hint
    found: dict[int, list[float]] = {}
    for key in sorted(runs):
        beside = key[0], other, its_hint, key[3]
        if key[1:3] == (arm, hint) and beside in runs:
            found.setdefault(key[0], []).append(runs[key] - runs[beside])
    return found


def interval(values: list[float]) -> str:
    """Mean and Student's 95 %; the mean alone for two values, of which an interval says nothing."""
    middle = mean(values)
    if len(values) < 3:
        return signed(middle)
    reach = float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return f"{signed(middle)} ({signed(middle - reach)} to {signed(middle + reach)})"


def table(runs: dict[Key, float]) -> str:
    heads = ["hint", "", "pairs, warm starts", "mean (95 %)", "least to most of pairs", "could be seen"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for hint, rows in COMPARED.items():
        for arm, other in rows:
            by_start = differences(runs, hint, arm, other)
            pairs = [apart for each in by_start.values() for apart in each]
            if len(pairs) > 1:
                units = pairs if len(by_start) == 1 else [mean(each) for each in by_start.values()]
                seen = f"{detectable(stdev(units), len(units)):.1f}" if len(units) > 2 else ""
                counts, span = f"{len(pairs)}, {len(by_start)}", f"{signed(min(pairs))} to {signed(max(pairs))}"
                shown = "none" if {arm, other} <= set(WITHOUT_HINT) else HINTS[hint]
                lines.append(f"| {shown} | {arm} over {other} | {counts} | {interval(units)} | {span} | {seen} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    print(table(read(parser.parse_args().files)))
