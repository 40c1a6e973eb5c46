"""What `gear train` does at the trainer's events: metrics, progress, a saved stop, sealed checkpoints, no step into nothing."""

from __future__ import annotations

import json
import signal
from typing import Any

import torch
from transformers import TrainerCallback

from gear_rl.errors import GearError
from gear_rl.training.run_folder import RunFolder, mark_complete

MOST_SKIPPED = 5
"""Steps in a row without a finite gradient; one more is no accident."""


class RunCallback(TrainerCallback):
    """Metrics to the folder, progress to the terminal, Ctrl-C into a saved stop, checkpoints sealed.

    A step whose gradient is not finite is skipped: taken, it would leave no weight a number. A backward pass in 16 bits
    can do that by itself once in a thousand (pytorch issue 178251), and the next batch is fine."""

    def __init__(self, folder: RunFolder, say: Any) -> None:
        self.folder, self.say = folder, say
        self.stop, self.skipped = False, 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        def interrupt(number: int, frame: Any) -> None:
            if self.stop:
                raise KeyboardInterrupt
            self.stop = True
            self.say.line(
                "stopping after this step and saving (again: stop at once, losing what came after the last checkpoint)"
            )

        signal.signal(signal.SIGINT, interrupt)  # `training.run` puts the one before it back

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if not gradients or torch.stack(torch._foreach_norm(gradients)).isfinite().all():
            self.skipped = 0
            return
        self.skipped += 1
        if self.skipped > MOST_SKIPPED:
            raise GearError(
                f"the gradient is not finite, {self.skipped} steps in a row up to step {state.global_step + 1}, and none was "
                "taken. Try a smaller train.learning_rate, or train.precision=float32."
            )
        self.say.line(f"step {state.global_step + 1}: the gradient is not finite; the step is skipped")
        for weight in model.parameters():
            weight.grad = None  # an optimizer passes over what has no gradient

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self.stop:
            control.should_save = control.should_training_stop = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **kwargs: Any) -> None:
        if logs and "loss" in logs:
            with open(self.folder.metrics, "a") as file:
                file.write(json.dumps({"step": state.global_step, **logs}) + "\n")
            self.say.step(state.global_step, logs)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        mark_complete(self.folder.checkpoints / f"checkpoint-{state.global_step}")
