"""Parts measured: plain data, the same for the table and for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gear_rl.errors import GearError
from gear_rl.evaluation.intervals import LEVEL, RESAMPLES
from gear_rl.localize.blame import depends_on_teacher, lacks
from gear_rl.localize.labelled import Part
from gear_rl.localize.measures import measure
from gear_rl.methods import Method


def summarise(
    source: dict[str, Any],
    unit: str,
    parts: Iterable[Part],
    signals: Sequence[str],
    methods: Sequence[Method],
    *,
    required: Sequence[str],
    seed: int,
) -> dict[str, Any]:
    """What cannot be measured is left out, and that is said; of the names in `required` it is an error."""
    summary: dict[str, Any] = {
        "source": source,
        "unit": unit,
        "interval": {
            "level": LEVEL,
            "resamples": RESAMPLES,
            "kind": "percentile bootstrap over problems",
            "seed": seed,
        },
        "parts": [],
        "left_out": {},
    }
    for part in parts:
        rows = []
        asked: list[str | Method] = [*signals, *methods]
        for what in asked:
            name = what if isinstance(what, str) else what.name
            missing = lacks(what, part.labelled)
            if missing and name in required:
                raise GearError(f"{name} cannot be measured here: {', '.join(missing)} missing.")
            if missing:
                summary["left_out"][name] = ", ".join(missing)
            elif depends_on_teacher(what) or not part.teacher_only:
                rows.append(_row(name, what, part, seed))
        labelled = part.labelled
        with_mistake = labelled.has_mistake
        tokens = labelled.rollouts.action_mask.sum(1)[with_mistake].float()
        summary["parts"].append(
            {
                "name": part.name,
                "teacher": part.teacher,
                "rollouts": len(with_mistake),
                "with_mistake": int(with_mistake.sum()),
                "action_tokens": float(tokens.mean()) if len(tokens) else None,
                **part.facts,
                "rows": rows,
            }
        )
    return summary


def _row(name: str, what: str | Method, part: Part, seed: int) -> dict[str, Any]:
    found = measure(what, part.labelled, seed)
    row: dict[str, Any] = {
        "name": name,
        "kind": "signal" if isinstance(what, str) else "method",
        "rollouts": found.rollouts,
        "problems": found.problems,
    }
    for measured, numbers in found.values.items():
        mean, low, high = (None if math.isnan(x) else round(x, 5) for x in numbers)
        row[measured] = {"mean": mean, "low": low, "high": high}
    return row
