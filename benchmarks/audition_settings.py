"""Settings in which methods were trained, from benchmarks/results: what `audition_predicts.py` compares an audition with.

A setting is a world, a kind of hint and a way of training. In each the methods' true success is compared with one another,
never across settings. Two settings of the same world and hint share one audition.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Arm:
    """A method with its options."""

    method: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        said = (value if isinstance(value, str) else f"{value:g}" for _, value in self.options)
        return self.method + "".join(f" {name}={value}" for (name, _), value in zip(self.options, said, strict=True))


FEWEST = 6
"""Methods of a setting: fewer have no order to speak of."""
WORDS = "words"
"""In the place of a world's number: the workshop in words, by the language model that was trained there."""


@dataclass
class Setting:
    name: str
    world: int | str
    hint: dict[str, Any]
    """Options of the task."""
    success: dict[Arm, list[float]] = field(default_factory=dict)
    """True success after training, one number for each run."""


def _read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _compared(name: str, hint: dict[str, Any], summary: dict[str, Any]) -> Setting:
    """From `gear compare`. Methods under a control are left out: their credit is made wrong on purpose."""
    rows = [row for row in summary["rows"] if "+" not in row["method"]]
    return Setting(name, 0, hint, {Arm(row["method"]): row["success"]["by_seed"] for row in rows})


def _single_runs(rows: Iterable[dict[str, Any]]) -> list[Setting]:
    """From lists of runs: the reported ones (seeds below 1000) by world; the tuning runs by world and learning rate, since a
    method was tuned with many settings there."""
    found: dict[tuple[int, float | None], dict[Arm, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        rate = row["learning_rate"] if row["seed"] >= 1000 else None
        arm = Arm(row["method"], tuple(sorted(row["options"].items())))
        found[row["world"], rate][arm].append(row["success"])
    named = [
        Setting(f"world {world}, " + ("tuned" if rate is None else f"rate {rate:g}"), world, {}, dict(success))
        for (world, rate), success in sorted(found.items(), key=str)
    ]
    return [one for one in named if len(one.success) >= FEWEST]


def _headline() -> list[dict[str, Any]]:
    """The reported runs of docs/evidence.md's headline, each method with the settings that tuning chose."""
    found = []
    for row in _read("headline")["columns"]["perfect"]["runs"]:
        rate, *options = row["setting"].split()
        pairs = (option.split("=") for option in options)
        found.append({**row, "learning_rate": float(rate), "options": {name: float(value) for name, value in pairs}})
    return found


def words() -> list[Setting]:
    """The language model's settings, one for each kind of hint. Arms without a hint stand in all of them."""
    from words_runs import ARMS, HINTS, WITHOUT_HINT

    success: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in _read("words_smollm2_third_h200")["runs"]:
        success[run["hint"]][run["arm"]].append(run["after"]["sampled"]["success"])
    arms = {name: Arm(method, tuple(sorted(options.items()))) for name, (method, options) in ARMS.items()}
    without = {name: runs for by_arm in success.values() for name, runs in by_arm.items() if name in WITHOUT_HINT}
    names = {"calls": "right hints", "bias30": "faulty key 0.3", "answer": "answer only"}
    return [
        Setting(f"language model, {said}", WORDS, HINTS[hint], {arms[name]: r for name, r in (without | success[hint]).items()})
        for hint, said in names.items()
    ]


def trained() -> list[Setting]:
    every = {Arm(row["method"]): [row["sampled"]] for row in _read("every_method_seed0")["rows"]}
    noise, bias = _read("compare_hint_errors")["shares"], _read("compare_hint_bias")
    faulty = {"hint_errors": 0.15, "hint_error_kind": "bias"}
    tuning = {  # a run that is in both files once
        (row["method"], row["learning_rate"], str(row["options"]), row["world"], row["seed"]): row
        for row in [*_read("headline_first_seed")["rows"], *_read("tuning_rates")["rows"]]
        if row["seed"] >= 1000
    }
    return [
        Setting("world 0, 400 steps", 0, {}, every),
        _compared("world 0, 200 steps", {}, _read("compare_methods")),
        _compared("world 0, 400 steps, five seeds", {}, _read("compare_kl")),
        *(_compared(f"noise {share}", {"hint_errors": float(share)}, one) for share, one in noise.items()),
        _compared("faulty key 0.15", faulty, bias["also"]["0.15, 200 steps"]),
        _compared("faulty key 0.3", {**faulty, "hint_errors": 0.3}, bias["summary"]),
        *_single_runs(_headline()),
        *_single_runs(tuning.values()),
        *(one for one in words() if len(one.success) >= FEWEST),
    ]
