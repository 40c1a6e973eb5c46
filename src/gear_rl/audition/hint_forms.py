"""The other forms in which a task can write its hints: the same problems, told differently."""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass, replace
from typing import Any

from gear_rl.errors import GearError
from gear_rl.tasks.base import Row, Task

OPTIONS = ("hint", "hint_form")
"""What tasks call the option."""


def form_of(task: Task) -> str | None:
    """The form in use. None: the task has one form only."""
    option, _ = _forms(task)
    return getattr(task, option) if option else None


def other_forms(task: Task, rows: list[Row], seed: int) -> dict[str, tuple[Task, list[Row]]]:
    """Form → the task that writes it, and `rows` (its first training problems) with hints of that form. A form that does not
    go with the task's other options is left out."""
    found = dict[str, tuple[Task, list[Row]]]()
    option, forms = _forms(task)
    for form in forms:
        if form == getattr(task, option):
            continue
        try:
            other: Task = replace(task, **{option: form})  # type: ignore[type-var]
        except GearError:
            continue
        told = other.rows("train", len(rows), seed)
        if [row["prompt"] for row in told] == [row["prompt"] for row in rows]:
            found[form] = other, told
    return found


def _forms(task: Task) -> tuple[str, tuple[str, ...]]:
    """The option that names the form, and the forms; "" and none where there is one form only."""
    known: tuple[Field[Any], ...] = fields(task) if is_dataclass(task) else ()
    for declared in known:
        choices: tuple[str, ...] = tuple(declared.metadata.get("choices") or task.hint_forms)
        if declared.name in OPTIONS and len(choices) > 1:
            return declared.name, choices
    return "", ()
