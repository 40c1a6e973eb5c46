"""Can a task's judge be trusted? Reference answers must score 100 % and empty ones 0 %, over the whole set.

A benchmark's own errors do not count against its judge, but are listed: problems that no answer passes (`Task.unpassable`),
problems that doing nothing passes, and reference answers that had to be corrected (`Task.corrected`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from gear_rl.evaluation.evaluate import with_ids
from gear_rl.limits import in_order
from gear_rl.tasks.base import Row, Task, Verdict, replay


@dataclass(frozen=True)
class Check:
    """One split."""

    split: str
    problems: int
    reference_right: int
    empty_right: int
    trivially_passable: int
    """Problems the task itself says are passed by doing nothing."""
    unpassable: dict[str, str]
    """Problems whose reference answer is judged wrong, as the task itself says: id → why."""
    corrected: dict[str, str]
    """Problems whose published reference answer was corrected: id → what was wrong with it."""
    failures: list[str]
    """What failed, with the problem's id."""
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.failures

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "passed": self.passed}


def check_split(task: Task, split: str, count: int | None) -> Check:
    rows = with_ids(task.rows(split, count), split)
    began = time.monotonic()

    def both(row: Row) -> tuple[Verdict, Verdict]:
        return replay(task, row, task.reference(row)), replay(task, row, task.empty(row))

    verdicts = in_order(both, rows, task.concurrent_verdicts)
    failures = []
    for row, (reference, empty) in zip(rows, verdicts, strict=True):
        if row["id"] in task.unpassable:
            if reference.success:
                failures.append(f"{row['id']}: said to be unpassable, but its reference answer is judged right")
        elif not reference.success:
            failures.append(f"{row['id']}: the reference answer is judged wrong (reward {reference.reward:g})")
        if reference.failed_calls:
            failures.append(f"{row['id']}: a call of the reference answer fails ({reference.failed_calls[0]})")
        if empty.success and not empty.trivially_passable:
            failures.append(f"{row['id']}: an empty answer is judged right")
        if reference.trivially_passable and not empty.success:
            failures.append(f"{row['id']}: said to be passed by doing nothing, but is not")
    ids = [row["id"] for row in rows]
    return Check(
        split,
        len(rows),
        sum(reference.success for reference, _ in verdicts),
        sum(empty.success for _, empty in verdicts),
        sum(empty.trivially_passable for _, empty in verdicts),
        {id: task.unpassable[id] for id in ids if id in task.unpassable},
        {id: task.corrected[id] for id in ids if id in task.corrected},
        failures,
        time.monotonic() - began,
    )
