"""Transcripts recorded elsewhere: conversations with a reward, read from JSON or JSON Lines, checked row by row.

A row:

    messages        as in OpenAI's chat API, tool calls included; the assistant's tokens get credit
    reward          a number
    hint            what the teacher may read: text; or `ground_truth`, or `answer` (the first of them that is there)
    group           rows of one group are compared. Without it: rows of the same prompt
    advantage       the row's advantage within its group, if known; then in every row
    success, tools  true or false; JSON schemas for the chat template. Both are optional
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gear_rl.chat.messages import Message
from gear_rl.errors import GearError
from gear_rl.records.json_rows import LARGEST_FILE, kind_of, read_rows
from gear_rl.records.messages import read_messages

TRUTHS = ("hint", "ground_truth", "answer")


@dataclass(frozen=True)
class Transcript:
    where: str
    """File and line, for messages to the user."""
    messages: list[Message]
    reward: float
    truth: str | None
    answer: str | None
    group: str | None
    advantage: float | None
    success: bool | None
    tools: list[dict[str, Any]] | None

    @property
    def prompt(self) -> list[Message]:
        """The messages before the first one of the assistant."""
        roles = [message["role"] for message in self.messages]
        return self.messages[: roles.index("assistant")]


def read_transcripts(path: Path) -> list[Transcript]:
    """All rows of `path`, each checked."""
    rows = [_transcript(content, where) for where, content in read_rows(path)]
    if not rows:
        raise GearError(f"{path} has no rows.")
    given = [row.advantage is not None for row in rows]
    if any(given) and not all(given):
        lacking = rows[given.index(False)]
        raise GearError(
            f"{lacking.where}: no advantage, though others here have one. Give it in every row, or in none."
        )
    return rows


def groups_of(rows: Sequence[Transcript]) -> list[list[int]]:
    """Indices of the rows of each group, in the order of first appearance."""
    groups: dict[tuple[str, str], list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(("group", row.group) if row.group is not None else ("prompt", problem_of(row)), []).append(i)
    return list(groups.values())


def problem_of(row: Transcript) -> str:
    """Rows with the same prompt and the same tools are attempts at the same problem."""
    return json.dumps([row.prompt, row.tools], sort_keys=True)


def refuse_groups_of_one(rows: Sequence[Transcript], groups: Sequence[Sequence[int]]) -> None:
    for group in groups:
        if len(group) == 1:
            raise GearError(
                f"{rows[group[0]].where}: the only row of its group, so there is nothing to compare its reward with. Give "
                "more attempts at the same prompt, name groups with `group`, or give an `advantage` in every row."
            )


def looks_like_transcripts(path: Path) -> bool:
    """Whether the first row of `path` has messages."""
    if not path.is_file() or path.stat().st_size > LARGEST_FILE:
        return False
    try:
        return "messages" in next(iter(read_rows(path)))[1]
    except (GearError, StopIteration):
        return False


def _transcript(row: dict[str, Any], where: str) -> Transcript:
    for name in ("messages", "reward"):
        if name not in row:
            raise GearError(f"{where}: has no {name!r}. Its keys: {', '.join(map(str, row)) or 'none'}.")
    group, success, tools = row.get("group"), row.get("success"), row.get("tools")
    if group is not None and (not isinstance(group, (str, int)) or isinstance(group, bool)):
        raise GearError(f"{where}: group must be text or a whole number, not {kind_of(group)}.")
    if success is not None and not isinstance(success, bool):
        raise GearError(f"{where}: success must be true or false, not {kind_of(success)}.")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise GearError(f"{where}: tools must be a list of JSON schemas.")
    messages = read_messages(row["messages"], where)
    if all(message["role"] != "assistant" for message in messages):
        raise GearError(f"{where}: no assistant message, so there is nothing to give credit to.")
    return Transcript(
        where=where,
        messages=messages,
        reward=_number(row["reward"], "reward", where),
        truth=truth_of(row, TRUTHS, where),
        answer=truth_of(row, ("answer",), where),
        group=None if group is None else str(group),
        advantage=None if row.get("advantage") is None else _number(row["advantage"], "advantage", where),
        success=success,
        tools=tools or None,
    )


def truth_of(row: dict[str, Any], names: Sequence[str], where: str) -> str | None:
    """The ground truth as text: the first of `names` that says something. Structure is written as JSON."""
    for name in names:
        value = row.get(name)
        if isinstance(value, float) and not math.isfinite(value):
            raise GearError(f"{where}: {name} is {value}.")
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
        if text.strip():
            return text
    return None


def _number(value: Any, name: str, where: str) -> float:
    if type(value) not in (int, float) or not abs(value) < 3e38:  # NaN, infinities, and what float32 cannot hold
        raise GearError(f"{where}: {name} must be a finite number, not {str(value)[:40]}.")
    return float(value)
