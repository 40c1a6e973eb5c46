"""From a run's metrics to curves that fit a page, and to the steps at which a guard rang."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gear_rl.records.record import RecordedRollout
from gear_rl.scoring.guards import ALARMS, FIRST_STEPS, ringing

MOST_POINTS = 500
"""Per curve: more than a small plot has pixels."""


class Outcomes:
    """Reward and true success of each recorded step: what a record alone tells about training."""

    def __init__(self) -> None:
        self.found: dict[int, dict[str, list[float]]] = defaultdict(lambda: {"reward": [], "success": []})

    def add(self, rollout: RecordedRollout) -> None:
        for name, value in (("reward", rollout.reward), ("success", rollout.success)):
            if value is not None:
                self.found[rollout.step][name].append(float(value))

    def metrics(self) -> list[dict[str, float]]:
        """As a run would have logged them: rollouts of step s are sampled when s steps are done, and logged in line s + 1."""
        means = {step: {k: sum(v) / len(v) for k, v in values.items() if v} for step, values in self.found.items()}
        return [{"step": step + 1, **means[step]} for step in sorted(means)]


def curves(metrics: list[dict[str, float]]) -> dict[str, Any]:
    """{"steps": [...], "every": k, "values": {metric: [number | None, ...]}}; a point is the mean of k logged steps."""
    every = max(1, -(-len(metrics) // MOST_POINTS))
    buckets = [metrics[i : i + every] for i in range(0, len(metrics), every)]
    names = dict.fromkeys(name for row in metrics for name in row if name not in ("step", "epoch"))
    return {
        "steps": [int(bucket[-1]["step"]) for bucket in buckets],
        "every": every,
        "values": {name: [_mean(bucket, name) for bucket in buckets] for name in names},
    }


def _mean(rows: list[dict[str, float]], name: str) -> float | None:
    found = [row[name] for row in rows if name in row]
    return float(f"{sum(found) / len(found):.6g}") if found else None


def alarms(metrics: list[dict[str, float]]) -> dict[str, Any]:
    """{"steps": [step, ...], "kinds": [{"guard", "meaning", "steps"}], "start": {guard: its mean over the first steps}}.

    The log says how many guards rang at a step; which ones is found by holding the logged values against the same
    rules again (`gear_rl.scoring.guards`).
    """
    start: dict[str, float] = {}
    for guard in ALARMS:
        first = [row[f"guards/{guard}"] for row in metrics[:FIRST_STEPS] if f"guards/{guard}" in row]
        if first:
            start[guard] = sum(first) / len(first)
    steps: dict[str, list[int]] = {guard: [] for guard in ALARMS}
    rang = [(i, row) for i, row in enumerate(metrics) if row.get("guards/alarm", 0) > 0]
    for i, row in rang:
        values = {guard: row[f"guards/{guard}"] for guard in ALARMS if f"guards/{guard}" in row}
        for guard in ringing(values, start, i):
            steps[guard].append(int(row["step"]))
    kinds = [{"guard": guard, "meaning": ALARMS[guard][0], "steps": found} for guard, found in steps.items() if found]
    return {"steps": [int(row["step"]) for _, row in rang], "kinds": kinds, "start": start}
