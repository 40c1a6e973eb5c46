"""What `gear train` does at the trainer's events: metrics, progress, stop on Ctrl-C, checksums, no non-finite steps."""

from __future__ import annotations

import signal
from typing import Any

import torch
from transformers import TrainerCallback

from gear_rl.engines.ranks import Alone, Ranks
from gear_rl.errors import GearError
from gear_rl.training.progress import Progress
from gear_rl.training.run_folder import RunFolder

MOST_SKIPPED = 5
"""Consecutive steps without a finite gradient. One more ends the run."""


class RunCallback(TrainerCallback):
    """Writes metrics to the folder, shows progress, saves and stops on Ctrl-C, marks complete checkpoints.

    A step whose gradient is not finite is skipped: it would turn every weight into NaN. A backward pass in 16 bits can
    produce one in a thousand steps without a cause in the data (pytorch issue 178251); the next batch is fine."""

    def __init__(self, folder: RunFolder, progress: Progress, ranks: Ranks | None = None) -> None:
        self.folder, self.progress = folder, progress
        self.ranks: Ranks = ranks or Alone()
        self.stop, self.skipped = False, 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        def interrupt(number: int, frame: Any) -> None:
            if self.stop:
                raise KeyboardInterrupt
            self.stop = True
            self.progress.line(
                "stopping after this step and saving (press again to stop at once; steps since the last checkpoint are lost)"
            )

        signal.signal(signal.SIGINT, interrupt)  # `training.run` restores the previous handler

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        gradients = [_local(weight.grad) for weight in model.parameters() if weight.grad is not None]
        finite = not gradients or bool(torch.stack(torch._foreach_norm(gradients)).isfinite().all())
        if not self.ranks.most(int(not finite)):  # of sharded gradients each process sees its own
            self.skipped = 0
            return
        self.skipped += 1
        if self.skipped > MOST_SKIPPED:
            raise GearError(
                f"the gradient is not finite, {self.skipped} steps in a row up to step {state.global_step + 1}, and none was "
                "taken. Try a smaller train.learning_rate, or train.precision=float32."
            )
        self.progress.line(f"step {state.global_step + 1}: the gradient is not finite; the step is skipped")
        for weight in model.parameters():
            weight.grad = None  # the optimizer skips weights without a gradient

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self.ranks.most(int(self.stop)):
            control.should_save = control.should_training_stop = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **kwargs: Any) -> None:
        if logs and "loss" in logs and self.ranks.index == 0:
            self.folder.add_metrics(state.global_step, logs)
            self.progress.step(state.global_step, logs)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ranks.wait()  # every process has files in it
        if self.ranks.index == 0:
            for name in self.folder.complete(self.folder.checkpoints / f"checkpoint-{state.global_step}"):
                self.progress.line(f"{self.folder.path / name} is gone; the run goes on, and ends with an error")
        self.ranks.wait()


def _local(gradient: Any) -> torch.Tensor:
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient
