"""A task out of a file: one problem a line, its columns named by options. `gear train --task problems.jsonl`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gear_rl.chat.hints import DEFAULT_TEMPLATE
from gear_rl.errors import GearError, unknown_name
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Row, SingleTurn, Verdict, choose
from gear_rl.tasks.maths.answers import after_thought, last_boxed, last_number, plain_number
from gear_rl.tasks.maths.judging import is_right
from gear_rl.tasks.sources import Record, read_records
from gear_rl.tasks.workers.judging import Judge

JUDGES = ("exact", "number", "math")
HINT = "hint"
"""The column of hints, where no other is named."""
HELD_OUT = 10
"""Without a test file, one problem in so many is kept from training."""


@dataclass
class Jsonl(SingleTurn):
    name: ClassVar[str] = "jsonl"
    summary: ClassVar[str] = "a file of your own: --task problems.jsonl"
    hint_forms: ClassVar[tuple[str, ...]] = ()

    path: str
    """The file, one problem a line; `--task problems.jsonl` sets it."""
    prompt_column: str = "prompt"
    """Text, or a list of messages."""
    answer_column: str = "answer"
    """The reference answer."""
    hint_column: str | None = None
    """What the teacher reads; None: the column `hint` where the file has one, else the answer."""
    judged_by: str = option("exact", choices=JUDGES)
    """exact: the answer's characters, nothing else. number: the last number. math: \\boxed{}, by math-verify."""
    test: str | None = None
    """A second file to evaluate on. None: a tenth of the first, chosen by what the problems say, is kept from training."""
    max_turn_tokens: int = option(512, at_least=1)

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        self.hint_template = DEFAULT_TEMPLATE
        self.judge_process = Judge("math") if self.judged_by == "math" else None
        self._hint = self.hint_column
        files = {"train": self.path, **({"test": self.test} if self.test else {})}
        self._rows = {split: self._read(Path(file)) for split, file in files.items()}
        if self.test is None:
            rows = self._rows["train"]
            digests = sorted({row["digest"] for row in rows})  # the same problem twice stays on one side
            held = set(digests[: max(1, round(len(digests) / HELD_OUT))]) if len(digests) > 1 else set()
            self._rows = {
                "train": [row for row in rows if row["digest"] not in held],
                "test": [row for row in rows if row["digest"] in held],
            }

    def _read(self, path: Path) -> list[Row]:
        if not path.is_file():
            raise GearError(f"there is no file {path}.")
        records = list(read_records(path))
        if self._hint is None and records and HINT in records[0].values:
            self._hint = HINT
        rows = [self._row(record, f"{path.name}-{i}") for i, record in enumerate(records)]
        if not rows:
            raise GearError(f"{path}: no problem in it.")
        return rows

    def _row(self, record: Record, id: str) -> Row:
        columns = {"prompt_column": self.prompt_column, "answer_column": self.answer_column, "hint_column": self._hint}
        for name, column in columns.items():
            if column is not None and column not in record.values:
                there = ", ".join(map(str, record.values)) or "nothing"
                raise record.fail(f"no {column!r}; it has {there}. Name the column: --set task.{name}=NAME")
        prompt, answer = _messages(record, self.prompt_column), record.text(self.answer_column).strip()
        if self.judged_by == "number" and plain_number(answer) is None:
            raise record.fail(
                f"{self.answer_column} is {answer[:60]!r}, no number; judged_by=exact or math compares others"
            )
        return {
            "prompt": prompt,
            "hint": record.text(self._hint) if self._hint else answer,
            "answer": answer,
            "id": id,
            "category": record.optional("category") or "all",
            "digest": hashlib.sha256(json.dumps(prompt, sort_keys=True).encode()).hexdigest()[:8],
        }

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if split not in self.splits:
            raise unknown_name("split of a JSONL task", split, self.splits)
        if not self._rows[split]:
            raise GearError(
                f"{self.path}: no problem fell into the {split} split. Name a file for it: --set task.test=FILE."
            )
        return choose(self._rows[split], split, count, seed)

    def judge(self, row: Row, completion: str) -> Verdict:
        said, answer = after_thought(completion).strip(), row["answer"]
        if self.judge_process is not None:
            boxed = last_boxed(said)
            right = is_right(self.judge_process, answer, said if boxed is None else boxed, boxed is not None)
        elif self.judged_by == "number":
            right = last_number(said) == plain_number(answer)
        else:
            right = said == answer
        return Verdict(float(right), right, channels={"correct": float(right)}, first_wrong=None if right else 0)

    def reference(self, row: Row) -> str:
        return f"\\boxed{{{row['answer']}}}" if self.judged_by == "math" else row["answer"]

    def close(self) -> None:
        if self.judge_process is not None:
            self.judge_process.close()


def _messages(record: Record, column: str) -> list[dict[str, Any]]:
    value = record.values.get(column)
    if isinstance(value, list):
        if not value or not all(
            isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in value
        ):
            raise record.fail(f'{column} must be text or a list of messages {{"role", "content"}}')
        return [{"role": m["role"], "content": m["content"]} for m in value]
    return [{"role": "user", "content": record.text(column)}]
