"""A comparison's runs and folders. A folder never mixes two comparisons."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.files import write_json
from gear_rl.methods import method
from gear_rl.methods.controls import CONTROLS
from gear_rl.tasks import make_task
from gear_rl.training.config import TrainConfig

FORMAT = 1
FIRST_TUNING_SEED = 1000
"""Learning rates are chosen on seeds from here on, which the comparison itself never uses."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides the result. Stored in the folder; a folder with another plan raises an error."""

    methods: list[str]
    seeds: int
    learning_rates: list[float]
    tuning_seeds: int
    settings: dict[str, Any] = field(default_factory=dict)
    """Task, model and train options common to all runs, as in a config file; `credit` holds options by method."""

    def __post_init__(self) -> None:
        if len(self.methods) < 2 or len(set(self.methods)) < len(self.methods):
            raise GearError(f"--credit {','.join(self.methods)}: name two or more different methods.")
        if self.seeds < 2:
            raise GearError(f"--seeds {self.seeds}: a comparison needs at least 2 (5 or more to conclude anything).")
        if not self.learning_rates or any(not 0 < rate < 1 for rate in self.learning_rates):
            raise GearError(f"--learning-rates {self.learning_rates}: give one or more numbers between 0 and 1.")
        options = self.settings.get("credit", {})
        if not isinstance(options, dict):
            raise GearError("credit settings are by method here: --set credit.gear.alpha=4.")
        for name in options:
            if name not in self.methods:
                raise GearError(f"--set credit.{name}.…: {name} is not among the methods compared.")
        for name in self.methods:  # every setting is checked before anything runs
            config = self.config(name, self.learning_rates[0], 0)
            method(config.credit, **config.credit_options)
            make_task(config.task, **config.task_options)

    @property
    def baseline(self) -> str:
        return "grpo" if "grpo" in self.methods else self.methods[0]

    def config(self, method: str, learning_rate: float, seed: int) -> TrainConfig:
        settings = {name: value for name, value in self.settings.items() if name != "credit"}
        train = {"record_every": 10**9, **settings.get("train", {}), "learning_rate": learning_rate}
        credit = {"name": method, **self.settings.get("credit", {}).get(method, {})}
        return TrainConfig.from_dict({**settings, "seed": seed, "credit": credit, "train": train})

    def tuned_as(self, method: str) -> str:
        """Whose learning rate `method` runs at: its own, but a control (`rlsd+wrong_hint`) has that of its method where both
        are compared, so that nothing differs but what the control takes away."""
        control, base = self.control_of(method), method.partition("+")[0]
        return control[0] if control else base if base in self.methods else method

    def control_of(self, method: str) -> tuple[str, str] | None:
        """(the method it is a control of, which control), or None. `wrong_hint` alone is GEAR's. `scaled_grpo` has a row of
        its own: it is a baseline, not the method with something taken away."""
        base, plus, control = method.partition("+")
        if control == "scaled_grpo":
            return None
        if not plus and base in CONTROLS:
            base, control = "gear", base
        return (base, control) if control and base in self.methods else None

    def tuning_jobs(self) -> list[Job]:
        if len(self.learning_rates) == 1:
            return []
        seeds = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + self.tuning_seeds)
        tuned = [m for m in self.methods if self.tuned_as(m) == m]
        return [Job(m, rate, s) for s in seeds for rate in self.learning_rates for m in tuned]

    def comparison_jobs(self, rates: dict[str, float]) -> list[Job]:
        return [Job(m, rates[m], s) for s in range(self.seeds) for m in self.methods]


@dataclass(frozen=True)
class Job:
    method: str
    learning_rate: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.method}-{self.learning_rate:g}-{self.seed}"


def open_folder(path: Path, plan: Plan | None) -> Plan:
    """Start a comparison in `path`, or resume the one that is there (`plan` None, or the same)."""
    file = path / "compare.json"
    if file.is_file():
        try:
            stored = json.loads(file.read_text())
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise GearError(f"{file} is damaged: {error}.") from None
        if not isinstance(stored, dict) or stored.pop("format", None) != FORMAT:
            raise GearError(f"{file} was written by another version; this one reads format {FORMAT}.")
        found = Plan(**stored)
        if plan is not None and plan != found:
            differing = [name for name, value in asdict(plan).items() if value != asdict(found)[name]]
            raise GearError(f"{path} has another comparison ({', '.join(differing)} differ). Give another --out.")
        return found
    if plan is None:
        raise GearError(f"{path} has no comparison to resume: it has no compare.json.")
    if path.exists() and any(path.iterdir()):
        raise GearError(f"{path} exists and is not a comparison. Give another --out.")
    path.mkdir(parents=True, exist_ok=True)
    write_json(file, {"format": FORMAT, **asdict(plan)})
    return plan
