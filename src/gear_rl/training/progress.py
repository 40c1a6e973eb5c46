"""What a person sees while training: a progress bar in a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from gear_rl.training.run_folder import RunFolder


class Progress(Protocol):
    """What `gear_rl.training.run` reports while it runs."""

    def line(self, text: str) -> None:
        """Show one message."""

    def progress(self, total: int, done: int) -> AbstractContextManager[None]:
        """Entered while training runs: `total` optimizer steps, of which `done` were taken in an earlier process."""

    def step(self, step: int, logs: dict[str, float]) -> None:
        """An optimizer step was taken; `logs` are its metrics."""

    def summary(self, evaluation: dict[str, Any], folder: RunFolder) -> None:
        """The run is finished. `evaluation` is what evaluation.json holds."""


class NoProgress:
    """Shows nothing: one run among many that run in parallel."""

    def line(self, text: str) -> None: ...
    def step(self, step: int, logs: dict[str, float]) -> None: ...
    def summary(self, evaluation: dict[str, Any], folder: RunFolder) -> None: ...

    @contextmanager
    def progress(self, total: int, done: int) -> Iterator[None]:
        yield


class TerminalProgress:
    """Prints to standard output."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._last_line = 0.0

    def line(self, text: str) -> None:
        (self._bar.console.print if self._bar else print)(text)
        sys.stdout.flush()

    @contextmanager
    def progress(self, total: int, done: int) -> Iterator[None]:
        self._total, self._first, self._began = total, done, time.time()
        if not sys.stdout.isatty():
            yield
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            "training",
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[now]}"),
        )
        with Progress(*columns) as self._bar:
            self._task = self._bar.add_task("", total=total, completed=done, now="")
            yield
        self._bar = None

    def step(self, step: int, logs: dict[str, float]) -> None:
        now = f"reward {logs.get('reward', 0):.2f}  success {logs.get('success', 0):.2f}"
        if self._bar:
            self._bar.update(self._task, completed=step, now=now)
        elif time.time() - self._last_line > 10 or step == self._total:
            self._last_line = time.time()
            left = (time.time() - self._began) / max(1, step - self._first) * (self._total - step)
            self.line(f"step {step}/{self._total}  {now}  {left:.0f} s left")

    def summary(self, evaluation: dict[str, Any], folder: RunFolder) -> None:
        """Before → after, and where everything is."""
        before, after = evaluation["before"], evaluation["after"]
        self.line(f"\n{before['sampled']['n']} unseen problems        before → after   (95 % interval)")
        for how in ("sampled", "greedy"):
            for what in ("success", "reward"):
                old, new = before[how][what], after[how][what]
                low, high = after[how]["success_interval"]
                interval = f"   ({100 * low:.1f}–{100 * high:.1f})" if what == "success" else ""
                name = {"success": "true success", "reward": "reward"}[what]
                scale, unit = (100, " %") if what == "success" else (1, "")  # rewards need not lie between 0 and 1
                digits = 1 if what == "success" else 3
                self.line(
                    f"  {name:13s}{how:9s} {scale * old:5.{digits}f}{unit} → {scale * new:5.{digits}f}{unit}{interval}"
                )
        self.line(
            f"\neverything is in {folder.path}: model/, metrics.jsonl, rollouts.jsonl, evaluation.json, config.json"
        )
