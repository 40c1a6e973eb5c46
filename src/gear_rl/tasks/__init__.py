"""Tasks by name: one explicit dict. A task knows its data, its world and its verdict; never credit, never an engine."""

from __future__ import annotations

from typing import Any

from gear_rl.errors import GearError, unknown_name
from gear_rl.tasks.base import Episode, Row, Task, Verdict
from gear_rl.tasks.workshop import Workshop

TASKS: dict[str, type[Task]] = {"workshop": Workshop}


def make_task(name: str, **options: Any) -> Task:
    """The task called `name`, with its options checked by name."""
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    known = getattr(TASKS[name], "__dataclass_fields__", {})
    for option in options:
        if option not in known:
            raise unknown_name(f"option of task {name}", option, known)
    try:
        return TASKS[name](**options)
    except TypeError as error:
        raise GearError(f"task {name}: {error}") from None


__all__ = ["TASKS", "Episode", "Row", "Task", "Verdict", "make_task"]
