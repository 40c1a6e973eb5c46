"""Trainers for tests of the engine: the embedded model on four jobs, built as `gear train` builds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Silent:
    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def build(credit: str | dict, folder: Path, **train: Any) -> Any:
    """`gear train --credit NAME` without the command line: two steps of two prompts, four rollouts each."""
    from gear_rl.models import load_model
    from gear_rl.records.record import RecordWriter
    from gear_rl.training.config import TrainConfig
    from gear_rl.training.run import build_trainer, prepare
    from gear_rl.training.run_folder import RunFolder

    small = {"steps": 2, "prompts": 2, "generations": 4, "checkpoint_every": 10**6, "record_every": 1, "device": "cpu"}
    config = TrainConfig.from_dict(
        {"credit": credit, "task": {"name": "workshop", "steps": 4}, "train": {**small, **train}}
    )
    task, path = prepare(config)
    run = RunFolder.create(folder, config.as_dict())
    model, tokenizer = load_model(path, "cpu")
    return build_trainer(config, run, task, model, tokenizer, RecordWriter(run.rollouts, {}), Silent())


def watch(trainer: Any) -> list[dict[str, Any]]:
    """What the trainer's recorder is called with from now on, by name."""
    names = ("step", "rows", "rollouts", "credit", "prompts", "hinted", "completions")
    seen: list[dict[str, Any]] = []
    before = trainer.recorder

    def recorder(*values: Any) -> None:
        seen.append(dict(zip(names, values, strict=True)))
        if before is not None:
            before(*values)

    trainer.recorder = recorder
    return seen
