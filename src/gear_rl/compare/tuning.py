"""The setting that each method is reported with: chosen by one rule, from the same number of runs.

The rule: the setting with the highest mean *training reward* over the second half of training, averaged over its tuning
runs; of equal ones the weaker. Reward is what a user sees. True success is not used: it is known only on the embedded task.
Tuning runs have seeds, and with --tuning-worlds worlds, that the reported runs do not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from gear_rl.compare.jobs import Setting
from gear_rl.compare.plan import Plan
from gear_rl.errors import GearError
from gear_rl.files import json_lines

RULE = "highest mean training reward over the second half of training"
LONGEST_LINE = 2**20
"""Bytes of a step's logged values."""


@dataclass(frozen=True)
class Tried:
    setting: Setting
    reward: float
    """By `RULE`, mean over the tuning runs."""
    runs: int


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The logged values of a run's steps."""
    with open(path / "metrics.jsonl", "rb") as file:
        rows = list(json_lines(file, path / "metrics.jsonl", LONGEST_LINE))
    for where, row in rows:
        if not isinstance(row, dict) or not all(isinstance(value, (int, float)) for value in row.values()):
            raise GearError(f"{where}: damaged, no numbers by name.")
    return [row for _, row in rows]


def training_reward(path: Path) -> float:
    """Mean reward over the second half of a run's steps."""
    rows = read_metrics(path)
    rewards = [row["reward"] for row in rows if "reward" in row]
    if not rows or len(rewards) < len(rows):
        raise GearError(f"{path}: metrics.jsonl has steps without a reward, by which settings are chosen.")
    return mean(rewards[len(rewards) // 2 :])


def tried(plan: Plan, folder: Path) -> dict[str, list[Tried]]:
    """Every setting tried, by method; empty where nothing was tuned."""
    rewards: dict[str, dict[Setting, list[float]]] = {}
    for job in plan.tuning_jobs():
        found = training_reward(folder / "runs" / job.name)
        rewards.setdefault(job.method, {}).setdefault(job.setting, []).append(found)
    return {
        method: [Tried(setting, mean(values), len(values)) for setting, values in settings.items()]
        for method, settings in rewards.items()
    }


def choose(plan: Plan, all_tried: dict[str, list[Tried]]) -> dict[str, Setting]:
    """Each method's setting. A control has that of its method."""
    if not plan.tuning_runs:
        return dict.fromkeys(plan.methods, Setting(plan.learning_rates[0]))
    best = {method: max(found, key=lambda one: one.reward).setting for method, found in all_tried.items()}
    return {m: best[plan.tuned_as(m)] for m in plan.methods}


def budget(plan: Plan) -> str:
    """One sentence: what was spent on each method, and where."""
    if not plan.tuning_runs:
        return f"nothing was tuned: every method runs at learning rate {plan.learning_rates[0]:g} with its own options"
    where = f"worlds {', '.join(map(str, plan.tuning_worlds))}" if plan.tuning_worlds else "the reported task"
    seeds = f"{plan.tuning_seeds} seed{'s' if plan.tuning_seeds > 1 else ''} of their own"
    return (
        f"every method was tuned with {plan.tuning_runs} runs ({plan.tuning_runs // plan.runs_per_setting} settings: learning "
        f"rate × its own strength, or a finer grid of learning rates; {where}, {seeds}); chosen: {RULE}"
    )
