"""Does success go where the hinted self moves away? Of the language model's runs with the answer alone: `words_drift.py FILE…`.

Each file is what `words.py train --out` wrote, of one warm start. Counted are the methods whose credit follows a teacher with
the policy's own weights. Shown: the mean divergence of a token between policy and hinted self over the second half of a run,
beside the true success at the end, and Spearman's correlation of the two. Over all runs, and within the warm starts, where each
run's figures are ranks among those of its start.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from scipy import stats

from gear_rl.compare.plan import FIRST_TUNING_SEED

LIVE = ("gear", "gear_alpha4", "token_alpha4", "random_segments_alpha4")
Point = tuple[float, float]
"""Divergence in nats, true success in %."""


def read(files: list[Path]) -> dict[str, list[Point]]:
    """Warm start's file → its runs."""
    found: dict[str, list[Point]] = defaultdict(list)
    for file in files:
        for run in json.loads(file.read_text())["runs"]:
            if run["hint"] == "answer" and run["arm"] in LIVE and run["seed"] < FIRST_TUNING_SEED:
                found[file.stem].append((late(run), 100 * run["after"]["sampled"]["success"]))
    return dict(found)


def late(run: dict[str, Any]) -> float:
    curve = run["curves"]["divergence"]
    return mean(curve[len(curve) // 2 :])


def correlation(points: list[Point]) -> tuple[float, float]:
    """Spearman's, and its p."""
    found = stats.spearmanr(*zip(*points, strict=True))
    return float(found.statistic), float(found.pvalue)


def within(found: dict[str, list[Point]]) -> list[Point]:
    """Shares of the ranks among the runs of the same start, of starts with three runs or more."""
    points: list[Point] = []
    for runs in found.values():
        if len(runs) >= 3:
            ranks = (stats.rankdata(values) / len(runs) for values in zip(*runs, strict=True))
            points += [(float(one), float(other)) for one, other in zip(*ranks, strict=True)]
    return points


def summary(found: dict[str, list[Point]]) -> str:
    every = sorted((point for runs in found.values() for point in runs), key=lambda point: point[1])
    lines = ["divergence (nats)   true success (%)"]
    lines += [f"{divergence:17.5f}   {success:16.1f}" for divergence, success in every]
    for name, points in (("all runs", every), ("within starts", within(found))):
        size, p = correlation(points)
        lines.append(f"{name}: {len(points)}, Spearman {size:+.2f}, p {p:.1g}")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    print(summary(read(parser.parse_args().files)))
