"""From samples to scores: avg@k, pass@k, pass^k with 95 % intervals, over all problems and by category.

n samples of a problem, c of them right:
    avg@n = c / n                                    how often one sample is right
    pass@k = 1 − C(n−c, k) / C(n, k)                 the chance that one of k is right; unbiased (2107.03374)
    pass^k = C(c, k) / C(n, k)                       the chance that all of k are right; unbiased (2406.12045)
Each is averaged over problems. Intervals are over problems, because another test set would have other problems: Wilson's
where every problem's value is 0 or 1, else percentiles of a bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gear_rl.evaluation.intervals import bootstrap_interval, mean_interval


def pass_at(n: int, right: int, k: int) -> float:
    """The chance that at least one of `k` drawn from the `n` samples is right."""
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def pass_all(n: int, right: int, k: int) -> float:
    """The chance that all of `k` drawn from the `n` samples are right."""
    return math.comb(right, k) / math.comb(n, k)


def figure(values: Sequence[float]) -> dict[str, Any]:
    return {"value": sum(values) / len(values), "interval": mean_interval(values)}


def summarise(samples: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """All scores of one way of sampling (sampled or greedy). Every problem must have the same number of samples."""
    problems: dict[str, list[dict[str, Any]]] = {}
    for sample in samples:
        problems.setdefault(sample["id"], []).append(sample)
    grouped = list(problems.values())
    each = len(grouped[0])
    if any(len(group) != each for group in grouped):
        raise ValueError("problems differ in their number of samples")
    everything = [sample for group in grouped for sample in group]
    summary = _figures(grouped, each)
    categories = {group[0]["category"] for group in grouped}
    if len(categories) > 1:
        summary["categories"] = {
            category: _figures([group for group in grouped if group[0]["category"] == category], each)
            for category in sorted(categories)
        }
    names = sorted({name for sample in everything for name in sample["channels"]})
    summary["channels"] = {
        name: sum(sample["channels"].get(name, 0.0) for sample in everything) / len(everything) for name in names
    }
    summary |= {
        "samples": len(everything),
        "malformed_calls": sum(sample["malformed"] for sample in everything),
        "cut_off": sum(sample["cut_off"] for sample in everything),
        "tokens": sum(sample["tokens"] for sample in everything),
    }
    kinds = sorted({name for sample in everything for name in sample.get("parts", {})})
    if kinds:
        summary["parts"] = {name: _part(name, grouped) for name in kinds}
    trivial = [group for group in grouped if any(sample["trivially_passable"] for sample in group)]
    summary["trivially_passable"] = len(trivial)
    if trivial and len(trivial) < len(grouped):
        rest = [group for group in grouped if not any(sample["trivially_passable"] for sample in group)]
        summary["without_trivially_passable"] = _figures(rest, each)
    return summary


def _part(name: str, groups: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Decisions of one kind that were right, of all: a share of all decisions, drawn by problem for its interval."""
    counts = [[sample["parts"].get(name, (0, 0)) for sample in group] for group in groups]
    lots = [(str(i), float(k < right)) for i, group in enumerate(counts) for right, all_ in group for k in range(all_)]
    if not lots:
        return {"share": math.nan, "interval": (0.0, 1.0), "decisions": 0}
    problems, values = zip(*lots, strict=True)
    return {
        "share": sum(values) / len(values),
        "interval": bootstrap_interval(values, problems),
        "decisions": len(values),
    }


def _figures(groups: list[list[dict[str, Any]]], each: int) -> dict[str, Any]:
    right = [sum(sample["success"] for sample in group) for group in groups]
    ks = [2**i for i in range(1, each.bit_length()) if 2**i < each] + [each] if each > 1 else []
    average = figure([c / each for c in right])
    rewards = figure([sum(sample["reward"] for sample in group) / each for group in groups])
    return {
        "n": len(groups),
        "k": each,
        "success": average["value"],
        "success_interval": average["interval"],
        "reward": rewards["value"],
        "reward_interval": rewards["interval"],
        "pass@": {str(k): figure([pass_at(each, c, k) for c in right]) for k in ks},
        "pass^": {str(k): figure([pass_all(each, c, k) for c in right]) for k in ks},
    }
