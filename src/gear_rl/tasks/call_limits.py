"""How long a call of a task may take: `Task.time_limit` seconds, or what the environment variable GEAR_TASK_SECONDS says.

A variable, not an option: an interrupted run or evaluation goes on with other limits, and is the same one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

from gear_rl.errors import GearError
from gear_rl.limits import time_limit


def limited(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a task, within its time."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with within_time(self, f"`{method.__name__}`"):
            return method(self, *args, **kwargs)

    return call


def within_time(task: Any, what: str) -> AbstractContextManager[None]:
    """Around a call of `task`. `what`: the call, for the message."""
    said = os.environ.get("GEAR_TASK_SECONDS")
    try:
        seconds = float(said) if said else task.time_limit
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise GearError(f"GEAR_TASK_SECONDS={said!r}: must be a number of seconds above 0.")
    needs = "If it needs longer, set the environment variable GEAR_TASK_SECONDS."
    return time_limit(seconds, f"task {type(task).__name__}: {what} took more than {seconds:g} s. {needs}")
