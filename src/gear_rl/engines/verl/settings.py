"""The `gear` group of verl's configuration: `+gear.credit=gear +gear.options.alpha=2 +gear.hint=answer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from gear_rl.chat.hints import DEFAULT_TEMPLATE
from gear_rl.engines.step import teacher_of
from gear_rl.errors import GearError
from gear_rl.methods import Method, method
from gear_rl.options import check_options, option
from gear_rl.scoring.teacher import KINDS, Teacher
from gear_rl.tasks import Task, make_task

GROUP = "gear"


@dataclass(frozen=True)
class Settings:
    credit: str = "gear"
    "Name of the method; `gear methods` lists them."
    options: dict[str, Any] = field(default_factory=dict)
    "The method's options."
    hint: str | None = None
    "Column with the ground truth that the teacher reads; `reward_model.ground_truth` looks into a nested column."
    hint_template: str | None = None
    "How prompt and hint become the teacher's prompt. None: the task's, or the default."
    teacher: str | None = option(None, choices=KINDS)
    "Whose weights read the hinted prompt. None: as the method's source, else `live`."
    teacher_every: int | None = option(None, at_least=1)
    "Optimizer steps between two copies of a `sync` teacher. None: as the method's source, else 20."
    teacher_decay: float | None = option(None, above=0.0, at_most=1.0)
    "The policy's share at each step of an `ema` teacher. None: as the method's source, else 0.05."
    mix_steps: int | None = option(None, at_least=0)
    "Let `mix` fall linearly to 0 over so many training steps. None: as the method's source. 0: constant."
    record: str | None = None
    "File to write rollouts and their credit to: `gear report FILE` opens it."
    record_every: int = option(1, at_least=1)
    "Write every n-th step only."
    task: dict[str, Any] = field(default_factory=dict)
    "A task of ours for the agent loop `gear_task`: its `name`, and its options beside it."

    @staticmethod
    def of(config: Any) -> Settings:
        """From verl's whole configuration, checked."""
        from omegaconf import OmegaConf

        group = OmegaConf.select(config, GROUP)
        given = OmegaConf.to_container(group, resolve=True) if group is not None else {}
        if not isinstance(given, dict):
            raise GearError(f"{GROUP}={given!r}: a group of options, such as +{GROUP}.credit=gear.")
        return Settings.from_dict({str(name): value for name, value in given.items()})

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Settings:
        check_options(Settings, given, GROUP)
        settings = Settings(**given)
        if settings.task and not isinstance(settings.task.get("name"), str):
            raise GearError(f"{GROUP}.task needs a name: +{GROUP}.task.name=workshop.")
        return settings

    def make_method(self) -> Method:
        return method(self.credit, **self.options)

    def make_teacher(self, method: Method) -> Teacher:
        """What the workers are asked for; it holds no weights itself."""
        return teacher_of(method, nn.Identity(), self.teacher, self.teacher_every, self.teacher_decay)

    def make_task(self) -> Task | None:
        """The task that `gear_task` plays; None: the data is verl's own."""
        if not self.task:
            return None
        options = dict(self.task)
        return make_task(options.pop("name"), **options)

    def hint_column(self, task: Task | None) -> str | None:
        return self.hint or ("hint" if task is not None else None)

    def template(self, task: Task | None) -> str:
        return self.hint_template or (task.hint_template if task is not None else DEFAULT_TEMPLATE)
