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
    from gear_rl.records.writer import RecordWriter
    from gear_rl.training.config import TrainConfig
    from gear_rl.training.run import prepare
    from gear_rl.training.run_folder import RunFolder
    from gear_rl.training.trainer import build_trainer

    small = {"steps": 2, "prompts": 2, "generations": 4, "checkpoint_every": 10**6, "record_every": 1, "device": "cpu",
             "kl": 0.0}  # fmt: skip
    config = TrainConfig.from_dict(
        {"credit": credit, "task": {"name": "workshop", "steps": 4}, "train": {**small, **train}}
    )
    task, path = prepare(config)
    run = RunFolder.create(folder, config.as_dict())
    model, tokenizer = load_model(path, "cpu")
    return build_trainer(config, run, task, model, tokenizer, RecordWriter(run.rollouts, {}), Silent())


def watch(trainer: Any) -> list[dict[str, Any]]:
    """What the step's recorder is called with from now on, by name."""
    seen: list[dict[str, Any]] = []
    before = trainer.credit_step.recorder

    def recorder(scored: Any) -> None:
        seen.append(as_dict(scored))
        if before is not None:
            before(scored)

    trainer.credit_step.recorder = recorder
    return seen


def as_dict(scored: Any) -> dict[str, Any]:
    sampled, hinted = scored.sampled, scored.hinted
    return {
        "step": scored.step, "rows": sampled.rows, "verdicts": sampled.verdicts, "rollouts": scored.rollouts,
        "credit": scored.credit, "prompts": sampled.prompt_ids, "completions": sampled.completion_ids,
        "hinted": None if hinted is None else hinted.prompt_ids, "sampled": sampled,
    }  # fmt: skip
