"""The columns of verl's data: what a row says, and whether every row says what the method needs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gear_rl.chat.hints import hinted_prompt
from gear_rl.engines.verl.data import LOOP, ROW
from gear_rl.engines.verl.settings import GROUP, Settings
from gear_rl.errors import GearError, did_you_mean
from gear_rl.methods import Method
from gear_rl.signals.from_verdicts import refuse_what_the_task_cannot_say
from gear_rl.signals.hinted import Tokenize
from gear_rl.signals.sources import as_text
from gear_rl.tasks.base import Row, Task


def value_at(row: Mapping[str, Any], column: str) -> Any:
    """`row["a"]`, and of "a.b" what is at b in it; None where there is nothing. Nested columns may be JSON text."""
    value: Any = row
    for part in column.split("."):
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                return None
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def task_row(row: Mapping[str, Any]) -> Row:
    """The row of our task, as `gear_rl.engines.verl.data` wrote it."""
    try:
        found = json.loads(row[ROW])
    except (KeyError, TypeError, ValueError):
        found = None
    if not isinstance(found, dict) or "prompt" not in found:
        raise GearError(
            f"a row of the data has no task row in {ROW!r}: write the file by python -m gear_rl.engines.verl.data."
        )
    return found


def check_data(dataset: Any, method: Method, settings: Settings, task: Task | None, batch: int = 1) -> None:
    """There are enough rows for a step, and each has what the method and the task need. `dataset`: a datasets.Dataset."""
    columns, hint = list(dataset.column_names), settings.hint_column(task)
    if len(dataset) < batch:
        raise GearError(
            f"the training data has {len(dataset)} rows, and a step takes data.train_batch_size={batch}: give more rows, or "
            "lower it."
        )
    if task is not None:
        for column in (ROW, "agent_name"):
            if column not in columns:
                raise GearError(
                    f"{GROUP}.task is set, but the data has no column {column!r}: write the file by "
                    "python -m gear_rl.engines.verl.data."
                )
        loops = set(dataset["agent_name"])
        if loops != {LOOP}:
            others = ", ".join(sorted(loops - {LOOP}))
            raise GearError(f"{GROUP}.task is set, but rows name the agent loop {others}, not {LOOP}.")
        refuse_what_the_task_cannot_say(task, settings.task["name"], task_row(dataset[0]), method)
    if method.hint not in ("own", "other"):
        return
    assert hint is not None
    top = hint.split(".")[0]
    if top not in columns:
        known = ", ".join(columns)
        raise GearError(
            f"{GROUP}.hint={hint}: the data has no column {top!r} to take the hint from.{did_you_mean(top, columns)} "
            f"Columns: {known}."
        )
    for i, value in enumerate(dataset[top]):
        if not as_text(value_at({top: value}, hint)).strip():
            raise GearError(f"row {i}: {hint!r} holds no ground truth; method {method.name!r} needs one.")


def check_lengths(
    rows: Iterable[tuple[Row, Any]],
    hint: str,
    template: str,
    tokenize: Tokenize,
    context: int,
    longest_prompt: int,
    response: int,
) -> None:
    """Each hinted prompt with the longest completion fits the workers' context of `context` tokens. rows: (row, prompt) pairs.

    A token is at least a byte of text, so only rows whose hint could be too long are tokenised."""
    for i, (row, prompt) in enumerate(rows):
        text = as_text(value_at(row, hint))
        if longest_prompt + response + len(f"{template}{text}".encode()) <= context:
            continue
        length = len(tokenize([hinted_prompt(prompt, text, template)], [row])[0])
        if length + response > context:
            raise GearError(
                f"row {i}: its hinted prompt has {length} tokens, and data.max_response_length is {response}: more than the "
                f"workers' context of {context}. Shorten the hint, or the responses."
            )
