"""Rollouts of a record as groups that can be rewound: what `gear credit --check` and `gear audition RECORD` begin with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gear_rl.errors import GearError
from gear_rl.options import argument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gear_rl.audition.groups import Groups
    from gear_rl.records.recorded import RecordedRollout
    from gear_rl.tasks.base import Task
    from gear_rl.training.config import TrainConfig


def add_step(group: Any) -> None:
    group.add_argument("--step", type=argument(int, at_least=0), help="whose rollouts (default: the first recorded)")


def task_of(source: Path, name: str | None, options: dict[str, Any]) -> tuple[Task, TrainConfig | None]:
    """The task that was played: the one of the run in whose folder the record lies, or the one that is named. The run's
    configuration comes with the first."""
    from gear_rl.tasks import make_task

    config = _config(source) if name is None else None
    if name is None and config is None:
        raise GearError(
            f"{source} does not lie in its run folder: name with --task (and --set task.NAME=…) what was played."
        )
    return make_task(name or (config.task if config else ""), **{**(config.task_options if config else {}), **options}), config


def _config(source: Path) -> TrainConfig | None:
    from gear_rl.training.config import TrainConfig
    from gear_rl.training.run_folder import RunFolder

    if not (source.parent / "config.json").is_file():
        return None
    return TrainConfig.from_dict(RunFolder.open(source.parent)[1])


def of_step(rollouts: Iterable[RecordedRollout], step: int | None, source: Path) -> list[RecordedRollout]:
    """The rollouts of `step`, or of the first step, group by group."""
    lines: list[RecordedRollout] = []
    steps: dict[int, None] = {}  # in the record's order
    for line in rollouts:
        steps.setdefault(line.step)
        if line.step == (next(iter(steps)) if step is None else step):
            lines.append(line)
    if not lines:
        known = ", ".join(map(str, sorted(steps)[:8])) + (", …" if len(steps) > 8 else "") or "none"
        raise GearError(f"{source} has no rollouts{'' if step is None else f' of step {step}'}. Its steps: {known}.")
    return sorted(lines, key=lambda line: line.group)


def groups_of(
    args: argparse.Namespace, source: Path, config: TrainConfig | None, task: Task, lines: list[RecordedRollout]
) -> Groups:
    """Played again with the model that sampled them. Reads `args.model`, `seed`, `temperature` and `device`."""
    from gear_rl.audition.recorded import recorded_groups
    from gear_rl.models import choose_device, load_model, model_for

    step, begun_with = lines[0].step, config.model if config else None
    if args.model is None and step > 0:
        raise GearError(
            f"step {step} of {source} was sampled by a policy that had been trained so far: name it with --model, such as a "
            f"checkpoint near that step. Only step 0 is of the model that the run began with."
        )
    seed = args.seed if args.seed is not None else config.seed if config else 0
    count = config.train.steps * config.train.prompts if config and args.seed is None else None
    temperature = args.temperature or (config.train.temperature if config else 1.0)
    rows = task.rows("train", count, seed)
    device = choose_device(args.device or "auto")
    model, tokenizer = load_model(model_for(task.name, args.model or begun_with, task.default_model()), device)
    model.eval()
    return recorded_groups(lines, task, rows, model, tokenizer, seed=seed, temperature=temperature)
