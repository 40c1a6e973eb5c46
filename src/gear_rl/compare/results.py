"""From finished runs to a result: per method and seed, paired with the baseline, and the share of the headroom recovered."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from gear_rl.compare.plan import Job, Plan
from gear_rl.compare.statistics import holm, mean_interval, seeds_needed, sign_flip_p, smallest_p
from gear_rl.methods import find_method

METRICS = {
    "success": "true success, sampled, on unseen problems",
    "greedy": "true success, greedy, on unseen problems",
    "reward": "reward, sampled, on unseen problems",
    "area": "mean true success while training (area under the learning curve)",
}
WINDOW = 25  # steps averaged when looking for the step at which a target is reached
COLLAPSED = 0.02
NEARLY_BEST = 0.15  # the share of the best area that a smaller learning rate may lack and still be chosen


@dataclass(frozen=True)
class Outcome:
    """One finished run."""

    success: float
    greedy: float
    reward: float
    area: float
    steps_to_target: int | None
    rollouts: int
    seconds: float


def read_outcome(path: Path, target: float) -> Outcome:
    after = json.loads((path / "evaluation.json").read_text())["after"]
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    curve = [line.get("success", line.get("reward", math.nan)) for line in lines]
    reached = None
    for end in range(WINDOW, len(curve) + 1):
        if mean(curve[end - WINDOW : end]) >= target:
            reached = end
            break
    config = json.loads((path / "config.json").read_text())["train"]
    seconds = path / "seconds.json"
    return Outcome(
        success=after["sampled"]["success"],
        greedy=after["greedy"]["success"],
        reward=after["sampled"]["reward"],
        area=mean(curve),
        steps_to_target=reached,
        rollouts=len(curve) * config["prompts"] * config["generations"],
        seconds=json.loads(seconds.read_text()) if seconds.is_file() else math.nan,
    )


def _within(interval: tuple[float, float], values: list[float]) -> tuple[float, float]:
    """Clips the interval of a mean of shares to 0 and 1, which Student's may leave."""
    if all(0 <= v <= 1 for v in values):
        return max(0.0, interval[0]), min(1.0, interval[1])
    return interval


def best_rates(plan: Plan, folder: Path, target: float) -> dict[str, float]:
    """Each method's learning rate: the smallest whose area under the *training* curve, over the tuning seeds, is nearly the
    best one's. Too large a rate fails by collapse, in some seeds and not in others, so few tuning seeds may not see it; one
    that is a little small costs a little. (The idea of the one-standard-error rule, where one seed has no standard error.)"""
    if len(plan.learning_rates) == 1:
        return dict.fromkeys(plan.methods, plan.learning_rates[0])
    areas: dict[str, dict[float, list[float]]] = {}
    for job in plan.tuning_jobs():
        outcome = read_outcome(folder / "runs" / job.name, target)
        areas.setdefault(job.method, {}).setdefault(job.learning_rate, []).append(outcome.area)
    chosen = {}
    for method, by_rate in areas.items():
        enough = (1 - NEARLY_BEST) * max(mean(found) for found in by_rate.values())
        chosen[method] = min(rate for rate, found in by_rate.items() if mean(found) >= enough)
    return {m: chosen[plan.tuned_as(m)] for m in plan.methods}


def summarise(plan: Plan, folder: Path, rates: dict[str, float], target: float) -> dict[str, Any]:
    """Everything the table, the JSON and the report show."""
    outcomes = {
        m: [read_outcome(folder / "runs" / Job(m, rates[m], s).name, target) for s in range(plan.seeds)]
        for m in plan.methods
    }
    base = outcomes[plan.baseline]
    rows = []
    for method, runs in outcomes.items():
        reached = [o.steps_to_target for o in runs]
        row: dict[str, Any] = {
            "method": method,
            "control_of": plan.control_of(method),
            "learning_rate": rates[method],
            "collapsed": sum(o.success < COLLAPSED for o in runs),
            "steps_to_target": sorted(reached, key=lambda s: math.inf if s is None else s)[len(reached) // 2],
            "reached_target": sum(s is not None for s in reached),
            "rollouts": runs[0].rollouts,
            "seconds": mean(o.seconds for o in runs),
            "extra_forwards": find_method(method).cost.forwards,
            "extra_backwards": find_method(method).cost.backwards,
        }
        for metric in METRICS:
            values = [getattr(o, metric) for o in runs]
            differences = [v - getattr(b, metric) for v, b in zip(values, base, strict=True)]
            row[metric] = {
                "mean": mean(values),
                "interval": _within(mean_interval(values), values),
                "by_seed": values,
                "difference": mean(differences),
                "difference_interval": mean_interval(differences),
                "p": None if method == plan.baseline else sign_flip_p(differences),
                "seeds_for_5_points": seeds_needed(differences, 0.05),
            }
        rows.append(row)
    for metric in METRICS:
        others = [row for row in rows if row["method"] != plan.baseline]
        for row, p in zip(others, holm([row[metric]["p"] for row in others]), strict=True):
            row[metric]["p_holm"] = p
    headroom = None
    if "oracle" in outcomes and plan.baseline != "oracle":
        oracle = next(row for row in rows if row["method"] == "oracle")
        headroom = {metric: oracle[metric]["difference"] for metric in METRICS}
        for row in rows:
            for metric in METRICS:
                gap = headroom[metric]
                row[metric]["share_of_headroom"] = row[metric]["difference"] / gap if gap > 0.02 else None
    return {
        "plan": {
            "methods": plan.methods,
            "seeds": plan.seeds,
            "learning_rates": plan.learning_rates,
            "settings": plan.settings,
        },
        "baseline": plan.baseline,
        "target": target,
        "headroom": headroom,
        "smallest_p": smallest_p(plan.seeds),
        "metrics": METRICS,
        "rows": rows,
    }
