"""A training step taken apart: which method runs it, what it took, and in detailed steps what each part took."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import torch
from transformers import TrainerCallback

from gear_rl.engines.trl import _AfterStep
from gear_rl.scoring import scorer as scorer_module


class Clock:
    """Wall-clock time up to the end of the device's work, and the device's memory."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"

    def now(self) -> float:
        if self.on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    def allocated(self) -> int:
        return torch.cuda.memory_allocated() if self.on_gpu else 0

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated() if self.on_gpu else 0

    def forget_peak(self) -> None:
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()


class Parts(TrainerCallback):
    """Puts the next method into the trainer before every step and measures the step.

    The teacher is read together with the student where their weights are the same, so in detailed steps it is read once
    more alone: "teacher alone" is no part of the step.
    """

    def __init__(
        self, trainer: Any, rollouts: Any, credit_steps: dict[str, Any], kept: dict[str, int],
        steps: list[tuple[str, str]], clock: Clock,
    ) -> None:  # fmt: skip
        self.trainer, self.rollouts, self.credit_steps, self.kept = trainer, rollouts, credit_steps, kept
        self.steps, self.clock = steps, clock
        self.done: list[dict[str, Any]] = []
        self.alone = 0.0
        self._parts: dict[str, float] | None = None
        self._inside = False
        self._wrapped: list[tuple[Any, str, Any]] = []
        trainer.remove_callback(_AfterStep)  # of the method that the trainer was made with
        trainer.add_callback(self)
        self._wrap(trainer, "_compute_loss", "loss forward")
        self._wrap(trainer.accelerator, "backward", "backward")
        self._wrap(trainer.accelerator, "clip_grad_norm_", "optimizer")
        self._wrap(rollouts, "sample", "sampling")
        self._wrap(scorer_module, "token_divergence", "head and divergence")
        for step in credit_steps.values():
            self._wrap(step, "read_hints", "hinted prompts")
            self._wrap(step, "_metrics", "metrics and guards")
            self._wrap(type(step.method), "assign", "method")
            self._wrap_reading(step.reader.scorer)

    def _wrap(self, owner: Any, name: str, part: str) -> None:
        function = getattr(owner, name)
        self._wrapped.append((owner, name, function))
        setattr(owner, name, lambda *args, **kwargs: self._timed(part, function, *args, **kwargs))

    def close(self) -> None:
        """Modules and classes as they were: they would keep the trainer and its memory."""
        for owner, name, function in reversed(self._wrapped):
            setattr(owner, name, function)

    def _timed(self, part: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self._parts is None or self._inside:  # what a part calls is within it
            return function(*args, **kwargs)
        began, self._inside = self.clock.now(), True
        try:
            return function(*args, **kwargs)
        finally:
            self._inside = False
            self._parts[part] += self.clock.now() - began

    def _wrap_reading(self, scorer: Any) -> None:
        read = scorer._hidden

        def hidden(sides: Any, *args: Any, **kwargs: Any) -> Any:
            states = self._timed("student and teacher forward", read, sides, *args, **kwargs)
            if self._parts is not None and not self._inside and len(sides) == 2:
                began = self.clock.now()
                read(sides[-1:], *args, **kwargs)
                self.alone += self.clock.now() - began
            return states

        scorer._hidden = hidden

    # ------------------------------------------------------------------------------------------ callbacks of the trainer
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._wrap(self.trainer.optimizer, "step", "optimizer")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        kind, name = self.steps[state.global_step]
        self.rollouts.sampling = kind.startswith("sampled")
        trainer, step = self.trainer, self.credit_steps[name]
        trainer.method, trainer.credit_step, trainer.distillation = step.method, step, step.distillation
        self.clock.forget_peak()
        self.alone, self._parts = 0.0, defaultdict(float) if kind == "detail" else None
        self._began = self.clock.now()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        kind, name = self.steps[state.global_step - 1]
        self.credit_steps[name].after_step(state.global_step)
        seconds = self.clock.now() - self._began - self.alone
        others = sum(size for other, size in self.kept.items() if other != name)
        self.done.append({
            "kind": kind, "method": name, "seconds": seconds, "parts": dict(self._parts or {}),
            "teacher_alone": self.alone, "peak_bytes": self.clock.peak() - others,
        })  # fmt: skip
        self._parts = None
