"""The configuration of a training run: every setting, its default, and the shape config files and `--set` share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from gear_rl.engines import LOSS_TYPES
from gear_rl.errors import GearError, unknown_name
from gear_rl.scoring.teacher import KINDS

PRECISIONS = ("float32", "bfloat16")
SCHEDULES = ("linear", "constant")
COUNTS = (
    "steps", "prompts", "generations", "teacher_every", "mix_steps", "mask_budget", "eval_rows", "checkpoint_every",
    "record_every",
)  # fmt: skip
NUMBERS: dict[str, tuple[Callable[[float], bool], str]] = {
    "learning_rate": (lambda x: 0 < x < math.inf, "above 0"),
    "temperature": (lambda x: 0 < x < math.inf, "above 0"),
    "kl": (lambda x: 0 <= x < math.inf, "not below 0"),
    "teacher_decay": (lambda x: 0 < x <= 1, "above 0 and at most 1"),
}


@dataclass
class TrainOptions:
    """`--set train.NAME=VALUE`. The defaults are those of the embedded task (docs/experiments.md says how they were chosen)."""

    steps: int = 400
    """Optimizer steps; each samples a fresh batch."""
    prompts: int = 4
    """Prompts per step."""
    generations: int = 8
    """Rollouts per prompt: the group."""
    rollouts_per_pass: int | None = None
    """Rollouts that go through the model at once when the loss is computed; a divisor of prompts × generations. Fewer need
    less memory and give the same gradient. None: all."""
    precision: str = "float32"
    """float32, or bfloat16: weights and optimizer stay in float32, forward and backward passes run in bfloat16, and a
    bfloat16 copy of the policy samples."""
    learning_rate: float = 6e-4
    schedule: str = "linear"
    """linear: the learning rate falls to 0 over the run. constant: it stays. At a constant rate some runs of the embedded task
    end where every rollout of a group gives the same answer, which no outcome can mend (docs/experiments.md)."""
    kl: float = 0.0
    """β of the KL term towards the starting policy (TRL's `beta`). Above 0, each step reads its rollouts once more with the
    starting weights, which are kept in memory."""
    temperature: float = 1.0
    loss_type: str = "dapo"
    teacher: str | None = None
    """live, sync, ema or base. None: what the method's source uses where it distils, else live."""
    teacher_every: int = 20
    teacher_decay: float = 0.05
    mix_steps: int | None = None
    """Let λ fall to 0 over so many steps."""
    mask_budget: int = 64
    """oar_p: tokens, or runs of them, that are hidden in each rollout, one at a time."""
    eval_rows: int = 1000
    """Unseen problems for the evaluation before and after."""
    checkpoint_every: int = 50
    record_every: int = 10
    """Keep the rollouts of every so many steps."""
    report_to: str = "none"
    """A tracker of TRL's: tensorboard, trackio, wandb."""
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in COUNTS:
            least = 2 if name == "generations" else 1
            value = getattr(self, name)
            if (name, value) == ("mix_steps", None):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                why = " (a group of one has no baseline)" if name == "generations" else ""
                raise GearError(f"train.{name}={value!r}: must be a whole number, at least {least}{why}.")
        rollouts = self.prompts * self.generations
        part = rollouts if self.rollouts_per_pass is None else self.rollouts_per_pass
        if not isinstance(part, int) or isinstance(part, bool) or part < 1 or rollouts % part:
            raise GearError(
                f"train.rollouts_per_pass={part!r}: must be a divisor of prompts × generations, here {rollouts}."
            )
        choices = {"precision": PRECISIONS, "schedule": SCHEDULES, "loss_type": LOSS_TYPES, "teacher": KINDS}
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in known and (name, value) != ("teacher", None):
                raise unknown_name(f"train.{name}", str(value), known)
        for name, (holds, limits) in NUMBERS.items():
            value = getattr(self, name)
            if type(value) not in (int, float) or not holds(value):
                raise GearError(f"train.{name}={value!r}: must be a number {limits}.")
        for name in ("device", "report_to"):
            if not isinstance(getattr(self, name), str):
                raise GearError(f"train.{name}={getattr(self, name)!r}: must be a name.")


@dataclass
class TrainConfig:
    """All of a run. What is not said here is TRL's default."""

    task: str = "workshop"
    task_options: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    """None: the model that comes with the task."""
    credit: str = "gear"
    credit_options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    train: TrainOptions = field(default_factory=TrainOptions)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> TrainConfig:
        """From `{"task": {"name": …, option: …}, "credit": {"name": …, …}, "model": …, "seed": …, "train": {…}}`: what a
        config file, `--set` and a run's config.json look like. A bare name may stand for {"name": name}."""
        known = ("task", "credit", "model", "seed", "train")
        for name in values:
            if name not in known:
                raise unknown_name("configuration key", name, known)
        task, credit = _named(values.get("task", {}), "task"), _named(values.get("credit", {}), "credit")
        train = values.get("train", {})
        if not isinstance(train, dict):
            raise GearError(f"train={train!r}: must be a table of options, such as train.steps=100.")
        options = {f.name for f in fields(TrainOptions)}
        for name in train:
            if name not in options:
                raise unknown_name("train option", name, options)
        seed = values.get("seed", 0)
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise GearError(f"seed={seed!r}: must be a whole number, at least 0.")
        return TrainConfig(
            task=task.pop("name", "workshop"),
            task_options=task,
            model=values.get("model"),
            credit=credit.pop("name", "gear"),
            credit_options=credit,
            seed=seed,
            train=TrainOptions(**train),
        )

    def as_dict(self) -> dict[str, Any]:
        """The inverse of `from_dict`."""
        return {
            "task": {"name": self.task, **self.task_options},
            "model": self.model,
            "credit": {"name": self.credit, **self.credit_options},
            "seed": self.seed,
            "train": asdict(self.train),
        }


def _named(value: Any, what: str) -> dict[str, Any]:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict):
        raise GearError(f"{what}={value!r}: must be a name or a table with a name and options.")
    return dict(value)
