"""From finished runs to a result: per method, world and seed, paired with what it is compared with, and the share of the
headroom recovered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import StatisticsError, mean
from typing import Any

from gear_rl.compare.jobs import Job, Setting
from gear_rl.compare.plan import Plan
from gear_rl.compare.statistics import (
    difference_ends,
    holm,
    plus_two_interval,
    seeds_needed,
    share_interval,
    sign_flip_p,
    smallest_p,
)
from gear_rl.compare.tuning import Tried, budget, read_metrics
from gear_rl.errors import GearError
from gear_rl.files import read_json
from gear_rl.methods import find_method

METRICS = {
    "success": "true success, sampled, on unseen problems",
    "greedy": "true success, greedy, on unseen problems",
    "reward": "reward, sampled, on unseen problems",
    "area": "mean true success while training (area under the learning curve)",
}
WINDOW = 25  # steps averaged when looking for the step at which a target is reached
COLLAPSED = 0.5
"""A run that ends below this share of the success before training has collapsed."""
LEAST_HEADROOM = 0.02


@dataclass(frozen=True)
class Outcome:
    """One finished run."""

    before: float
    """True success before training, sampled."""
    success: float
    greedy: float
    reward: float
    area: float
    steps_to_target: int | None
    rollouts: int
    seconds: float


Runs = dict[tuple[str, Setting], list[list[Outcome]]]
"""Method and setting → its runs by world, then by seed."""


def read_outcome(path: Path, target: float) -> Outcome:
    try:
        return _read_outcome(path, target)
    except (KeyError, TypeError, StatisticsError) as error:
        raise GearError(f"{path} is damaged: it lacks what a run writes ({error}).") from None


def _read_outcome(path: Path, target: float) -> Outcome:
    evaluation = read_json(path / "evaluation.json", strict=False)
    before, after = evaluation["before"], evaluation["after"]
    lines = read_metrics(path)
    curve = [line.get("success", line.get("reward", math.nan)) for line in lines]
    reached = None
    for end in range(WINDOW, len(curve) + 1):
        if mean(curve[end - WINDOW : end]) >= target:
            reached = end
            break
    config = read_json(path / "config.json")["train"]
    seconds = path / "seconds.json"
    return Outcome(
        before=before["sampled"]["success"],
        success=after["sampled"]["success"],
        greedy=after["greedy"]["success"],
        reward=after["sampled"]["reward"],
        area=mean(curve),
        steps_to_target=reached,
        rollouts=len(curve) * config["prompts"] * config["generations"],
        seconds=read_json(seconds, (int, float)) if seconds.is_file() else math.nan,
    )


def summarise(
    plan: Plan, folder: Path, chosen: dict[str, Setting], tried: dict[str, list[Tried]], target: float
) -> dict[str, Any]:
    """Everything the table, the JSON and the report show."""

    def outcomes_of(method: str, setting: Setting) -> list[list[Outcome]]:
        """By world, then by seed."""
        return [
            [read_outcome(folder / "runs" / Job(method, setting, s, w).name, target) for s in range(plan.seeds)]
            for w in plan.reported
        ]

    versus = {m: plan.compared_with(m, chosen) for m in plan.methods}
    runs = {(m, one): outcomes_of(m, one) for m, one in {*chosen.items(), *versus.values()}}
    tops = {metric: max(getattr(o, metric) for each in runs.values() for w in each for o in w) for metric in METRICS}
    compared = len(plan.methods) - 1
    rows = []
    for method in plan.methods:
        own, other = runs[method, chosen[method]], runs[versus[method]]
        row = _facts(method, [o for w in own for o in w]) | {
            "control_of": plan.control_of(method),
            "learning_rate": chosen[method].learning_rate,
            "options": dict(chosen[method].options),
            "versus": versus[method][0],
        }
        for metric in METRICS:
            values, against = ([[getattr(o, metric) for o in w] for w in each] for each in (own, other))
            row[metric] = _cell(values, against, tops[metric], compared)
            row[metric]["p"] = None if method == plan.baseline else sign_flip_p(_flat(_differences(values, against)))
        rows.append(row)
    others = [row for row in rows if row["method"] != plan.baseline]
    for metric in METRICS:
        for row, p in zip(others, holm([row[metric]["p"] for row in others]), strict=True):
            row[metric]["p_holm"] = p
    headroom = _headroom(plan, rows, runs, chosen, tops) if "oracle" in chosen and plan.baseline != "oracle" else None
    return {
        "plan": {
            "methods": plan.methods,
            "seeds": plan.seeds,
            "worlds": plan.worlds,
            "learning_rates": plan.learning_rates,
            "tuning_runs": plan.tuning_runs,
            "tuning_worlds": plan.tuning_worlds,
            "settings": plan.settings,
        },
        "budget": budget(plan),
        "tried": {m: [{"setting": str(t.setting), "reward": t.reward, "runs": t.runs} for t in found]
                  for m, found in tried.items()},
        "baseline": plan.baseline,
        "target": target,
        "before": mean(o.before for w in runs[plan.baseline, chosen[plan.baseline]] for o in w),
        "headroom": headroom,
        "pairs": plan.seeds * max(1, len(plan.worlds)),
        "smallest_p": smallest_p(plan.seeds * max(1, len(plan.worlds))),
        "metrics": METRICS,
        "rows": rows,
    }  # fmt: skip


def _facts(method: str, runs: list[Outcome]) -> dict[str, Any]:
    reached = [o.steps_to_target for o in runs]
    return {
        "method": method,
        "collapsed": sum(o.success < COLLAPSED * o.before for o in runs),
        "steps_to_target": sorted(reached, key=lambda s: math.inf if s is None else s)[len(reached) // 2],
        "reached_target": sum(s is not None for s in reached),
        "rollouts": runs[0].rollouts,
        "seconds": mean(o.seconds for o in runs),
        "extra_forwards": find_method(method).cost.forwards,
        "extra_backwards": find_method(method).cost.backwards,
    }


def _differences(values: list[list[float]], against: list[list[float]]) -> list[list[float]]:
    return [[v - b for v, b in zip(*world, strict=True)] for world in zip(values, against, strict=True)]


def _flat(values: list[list[float]]) -> list[float]:
    return [value for world in values for value in world]


def _cell(values: list[list[float]], against: list[list[float]], top: float, compared: int) -> dict[str, Any]:
    differences = _differences(values, against)
    return {
        "mean": mean(_flat(values)),
        "interval": plus_two_interval(values, (min(0.0, min(_flat(values))), max(top, 0.0))),
        "by_seed": _flat(values),
        "by_world": [mean(world) for world in values],
        "difference": mean(_flat(differences)),
        "difference_interval": plus_two_interval(differences, difference_ends(values, against, top)),
        "seeds_for_5_points": seeds_needed(differences, 0.05, compared),
    }


def _headroom(
    plan: Plan, rows: list[dict[str, Any]], runs: Runs, chosen: dict[str, Setting], tops: dict[str, float]
) -> dict[str, float]:
    """The oracle's gain over the baseline by metric; and into each row the share that a method has of it."""
    gaps = {}
    for metric in METRICS:
        base, best = ([[getattr(o, metric) for o in w] for w in runs[m, chosen[m]]] for m in (plan.baseline, "oracle"))
        gain = _differences(best, base)
        gaps[metric] = mean(_flat(gain))
        for row in rows:
            values = [[getattr(o, metric) for o in w] for w in runs[row["method"], chosen[row["method"]]]]
            own = _differences(values, base)
            enough = gaps[metric] > LEAST_HEADROOM and row["method"] != plan.baseline
            ends = (difference_ends(values, base, tops[metric]), difference_ends(best, base, tops[metric]))
            row[metric]["share_of_headroom"] = mean(_flat(own)) / gaps[metric] if enough else None
            row[metric]["share_interval"] = share_interval(own, gain, *ends) if enough else None
    return gaps
