"""The other forms in which a task can write its hints: the same problems, told differently."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

from gear_rl.errors import GearError
from gear_rl.tasks.base import Row, Task

OPTIONS = ("hint", "hint_form")
"""What tasks call the option."""


def form_of(task: Task) -> str | None:
    """The form in use. None: the task has one form only."""
    return getattr(task, _option(task) or "", None)


def other_forms(task: Task, rows: list[Row], seed: int) -> dict[str, tuple[Task, list[Row]]]:
    """Form → the task that writes it, and `rows` (its first training problems) with hints of that form. A form that does not
    go with the task's other options is left out."""
    option, found = _option(task), dict[str, tuple[Task, list[Row]]]()
    for form in _forms(task, option) if option else ():
        if form == getattr(task, option or ""):
            continue
        try:
            other = replace(task, **{option: form})  # type: ignore[type-var]
        except GearError:
            continue
        told = other.rows("train", len(rows), seed)
        if [row["prompt"] for row in told] == [row["prompt"] for row in rows]:
            found[form] = other, told
    return found


def _option(task: Task) -> str | None:
    known = {field.name for field in fields(task)} if is_dataclass(task) else set()
    return next((name for name in OPTIONS if name in known and len(_forms(task, name)) > 1), None)


def _forms(task: Task, option: str) -> tuple[str, ...]:
    (declared,) = (field for field in fields(task) if field.name == option)  # type: ignore[arg-type]
    return tuple(declared.metadata.get("choices") or task.hint_forms)
