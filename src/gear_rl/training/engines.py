"""The engines that `gear train` can run on, by name: TRL, and what installed packages add.

An engine is one function that builds a trainer from a run's parts. All it has to write itself is how its own batches become
a `gear_rl.signals.sampled.Sampled` and where its loss reads token advantages; hints, signals, credit, guards and records
are `gear_rl.engines.step.CreditStep`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gear_rl import plugins
from gear_rl.errors import GearError, unknown_name
from gear_rl.records.writer import RecordWriter
from gear_rl.tasks import Task
from gear_rl.training.config import TrainConfig
from gear_rl.training.progress import Progress
from gear_rl.training.run_folder import RunFolder

ENGINES = {"trl": "gear_rl.training.trainer:build_trainer"}
"""Name → module and function. Text, so that naming an engine does not import all the others."""


class Trainer(Protocol):
    policy: Any
    """The model as it is now; saved with `save_pretrained`."""

    @property
    def steps_taken(self) -> int:
        """Optimizer steps, those before a resume included."""

    def train(self, resume_from_checkpoint: str | None = None) -> Any:
        """Until the last step, or until it is interrupted."""


@runtime_checkable
class ParallelTrainer(Protocol):
    """A trainer that may run in several processes. All of them call both."""

    def whole_policy(self) -> AbstractContextManager[Any]:
        """Inside, this process can run the policy alone."""

    def save_policy(self, folder: Path) -> None:
        """As a model folder, written by the first process."""


BuildTrainer = Callable[[TrainConfig, RunFolder, Task, Any, Any, RecordWriter, Progress], Trainer]
"""Configuration, run folder, task, model, tokenizer, record, progress → trainer."""


def find_engine(name: str) -> BuildTrainer:
    if name in ENGINES:
        module, _, attribute = ENGINES[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    third_party = plugins.found("engine", ENGINES)
    if name not in third_party:
        raise unknown_name("engine", name, [*ENGINES, *third_party])
    build = plugins.load("engine", third_party[name])
    if not callable(build):
        raise GearError(f"engine {name!r}: {third_party[name].value!r} is no function that builds a trainer.")
    return build
