"""A comparison's runs and folders. A folder never mixes two comparisons."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gear_rl.compare.jobs import Job, Setting, candidates
from gear_rl.errors import GearError
from gear_rl.files import read_json, remove_abandoned, write_json
from gear_rl.methods import find_method, method
from gear_rl.methods.controls import CONTROLS
from gear_rl.tasks import make_task
from gear_rl.training.config import TrainConfig

FORMAT = 2
FIRST_TUNING_SEED = 1000
"""Settings are chosen on seeds from here on, which the comparison itself never uses."""
SHUFFLED_GRPO = "grpo+shuffled_outcomes"
VARIANTS = ("sibling_hint", "without_lucky_wins")
"""Another form of hint, and other weights of wins: tuned by themselves."""
OWN_ROWS = ("scaled_grpo", *VARIANTS)
"""What stands in the table as a method: a baseline, and variants. The other controls take something away."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides the result. Stored in the folder; a folder with another plan raises an error."""

    methods: list[str]
    seeds: int
    """Per world."""
    learning_rates: list[float]
    """One: nothing is tuned. Several: the lowest and the highest are the ends of every method's grid."""
    tuning_runs: int = 0
    """Of each method that is tuned."""
    tuning_seeds: int = 1
    """Of each setting in each tuning world."""
    worlds: list[int] = field(default_factory=list)
    """Values of `task.world`; empty: the task as `settings` has it."""
    tuning_worlds: list[int] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    """Task, model and train options common to all runs, as in a config file; `credit` holds options by method."""
    tuning_steps: int = 0
    """Of each tuning run; 0: as many as the reported runs."""

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
        self._check_worlds()
        self._check_budget()
        for name in self.methods:  # every setting is checked before anything runs
            for world in self.reported:
                config = self.config(Job(name, Setting(self.learning_rates[0]), 0, world))
                method(config.credit, **config.credit_options)
                make_task(config.task, **config.task_options)

    def _check_worlds(self) -> None:
        both = [*self.worlds, *self.tuning_worlds]
        if len(set(both)) < len(both):
            raise GearError(f"--worlds, --tuning-worlds: {both} has a world twice. Settings are tuned on other worlds.")
        if self.tuning_worlds and not self.worlds:
            raise GearError("--tuning-worlds: name the reported ones too, with --worlds.")
        if self.worlds and self.tuning_runs and not self.tuning_worlds:
            raise GearError("--worlds: name others to tune on, with --tuning-worlds.")
        task = self.settings.get("task", {})
        if self.worlds and isinstance(task, dict) and "world" in task:
            raise GearError("give --worlds or task.world, not both.")

    def _check_budget(self) -> None:
        if bool(self.tuning_runs) != (len(set(self.learning_rates)) > 1):
            raise GearError(
                f"--tuning-runs {self.tuning_runs} with --learning-rates {self.learning_rates}: one rate means that nothing is "
                "tuned (0 runs); to tune, give the lowest and the highest."
            )
        for name in self.tuned() if self.tuning_runs else []:
            strengths = len(self.strengths(name)) or 1
            unit = self.runs_per_setting * strengths
            if self.tuning_runs % unit:
                raise GearError(
                    f"--tuning-runs {self.tuning_runs}: {name} has {strengths} strengths and each setting is run "
                    f"{self.runs_per_setting} times, so give a multiple of {unit}."
                )

    @property
    def baseline(self) -> str:
        return "grpo" if "grpo" in self.methods else self.methods[0]

    @property
    def reported(self) -> list[int | None]:
        """The worlds of the comparison's own runs; None: the task as it is set."""
        return [*self.worlds] or [None]

    @property
    def runs_per_setting(self) -> int:
        return max(1, len(self.tuning_worlds)) * self.tuning_seeds

    def config(self, job: Job) -> TrainConfig:
        settings = {name: value for name, value in self.settings.items() if name not in ("credit", "task")}
        train = {"record_every": 10**9, **settings.get("train", {}), "learning_rate": job.setting.learning_rate}
        if self.tuning_steps and job.seed >= FIRST_TUNING_SEED:
            train["steps"] = self.tuning_steps
        credit = {
            "name": job.method,
            **self.settings.get("credit", {}).get(job.method, {}),
            **dict(job.setting.options),
        }
        task = self.settings.get("task", {})
        if job.world is not None:
            task = {**({"name": task} if isinstance(task, str) else task), "world": job.world}
        with_task = {"task": task} if task else {}
        return TrainConfig.from_dict({**settings, **with_task, "seed": job.seed, "credit": credit, "train": train})

    def strengths(self, method: str) -> tuple[dict[str, Any], ...]:
        """What is tuned of a method's own options; nothing where the user has set one of them."""
        given = self.settings.get("credit", {}).get(method, {})
        return tuple(s for s in find_method(method).strength if not s.keys() & given.keys())

    def tuned(self) -> list[str]:
        return [m for m in self.methods if self.tuned_as(m) == m]

    def tuned_as(self, method: str) -> str:
        """Whose setting `method` runs with: its own, but a control (`rlsd+wrong_hint`) has that of its method where both are
        compared, so that nothing differs but what the control takes away. Variants are tuned by themselves."""
        control, (base, _, kind) = self.control_of(method), method.partition("+")
        if control:
            return control[0]
        return base if base in self.methods and kind not in VARIANTS else method

    def control_of(self, method: str) -> tuple[str, str] | None:
        """(the method it is a control of, which control), or None. `wrong_hint` alone is GEAR's."""
        base, plus, control = method.partition("+")
        if control in OWN_ROWS:
            return None
        if not plus and base in CONTROLS:
            base, control = "gear", base
        return (base, control) if control and base in self.methods else None

    def compared_with(self, method: str, chosen: dict[str, Setting]) -> tuple[str, Setting]:
        """What a method is compared with: the baseline; for a control with shuffled outcomes GRPO with shuffled outcomes at the
        same learning rate, because shuffling alone changes what a run comes to."""
        control = self.control_of(method)
        if control and control[1] == "shuffled_outcomes":
            return SHUFFLED_GRPO, Setting(chosen[method].learning_rate)
        return self.baseline, chosen[self.baseline]

    def candidates(self, method: str) -> list[Setting]:
        return candidates(self.learning_rates, self.strengths(method), self.tuning_runs // self.runs_per_setting)

    def tuning_jobs(self) -> list[Job]:
        if not self.tuning_runs:
            return []
        seeds = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + self.tuning_seeds)
        worlds: list[int | None] = [*self.tuning_worlds] or [None]
        return [Job(m, one, s, w) for s in seeds for w in worlds for m in self.tuned() for one in self.candidates(m)]

    def comparison_jobs(self, chosen: dict[str, Setting]) -> list[Job]:
        wanted = [(m, chosen[m]) for m in self.methods]
        wanted = list(dict.fromkeys([*wanted, *(self.compared_with(m, chosen) for m in self.methods)]))
        return [Job(m, one, s, w) for s in range(self.seeds) for w in self.reported for m, one in wanted]


def open_folder(path: Path, plan: Plan | None) -> Plan:
    """Start a comparison in `path`, or resume the one that is there (`plan` None, or the same)."""
    file = path / "compare.json"
    remove_abandoned(path)
    if file.is_file():
        stored = read_json(file)
        if stored.pop("format", None) != FORMAT:
            raise GearError(f"{file} was written by another version; this one reads format {FORMAT}.")
        try:
            found = Plan(**stored)
        except (TypeError, AttributeError) as error:  # of another kind than what was written
            raise GearError(f"{file} is damaged: {error}.") from None
        if plan is not None and plan != found:
            differing = [name for name, value in asdict(plan).items() if value != asdict(found)[name]]
            raise GearError(f"{path} has another comparison ({', '.join(differing)} differ). Give another --out.")
        return found
    if plan is None:
        raise GearError(f"{path} has no comparison to resume: it has no compare.json.")
    if path.exists() and any(path.iterdir()):
        raise GearError(f"{path} exists and is not a comparison. Give another --out.")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(file, {"format": FORMAT, **asdict(plan)})
    return plan
