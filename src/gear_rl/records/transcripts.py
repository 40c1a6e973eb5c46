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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gear_rl.chat.messages import Message
from gear_rl.errors import GearError
from gear_rl.records.record import SCHEMA

LARGEST_FILE, LONGEST_LINE = 256 * 2**20, 64 * 2**20
"""Bytes. Rows of a group may be anywhere in a file, so it is read whole. Split larger ones by group."""
LARGEST_TEMPLATE = 2**20
MOST_MESSAGES = 500
"""Of one row: templates are rendered once per turn of the assistant."""
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
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


# ---------------------------------------------------------------------------------------------------- any JSON file
def is_record(path: Path) -> bool:
    """Whether `path` is a record of gear_rl, of whatever version."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        first = file.readline(LONGEST_LINE)
    try:
        header = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and header.get("schema") == SCHEMA


def looks_like_transcripts(path: Path) -> bool:
    """Whether the first row of `path` has messages."""
    if not path.is_file() or path.stat().st_size > LARGEST_FILE:
        return False
    try:
        return "messages" in next(iter(read_rows(path)))[1]
    except (GearError, StopIteration):
        return False


def read_template(path: Path) -> str:
    """A chat template (Jinja) from a file."""
    if not path.is_file():
        raise GearError(f"there is no chat template {path}.")
    if path.stat().st_size > LARGEST_TEMPLATE:
        raise GearError(f"{path} has more than {LARGEST_TEMPLATE} bytes: this is not a chat template.")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise GearError(f"{path}: not UTF-8 text.") from None


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, row) of a JSON array, a single JSON object, or JSON Lines."""
    if not path.exists():
        raise GearError(f"there is no file {path}.")
    if not path.is_file():
        raise GearError(f"{path} is not a file.")
    if path.stat().st_size > LARGEST_FILE:
        size = path.stat().st_size / 2**20
        raise GearError(f"{path} has {size:.0f} MiB; at most {LARGEST_FILE >> 20} are read at once. Split it by group.")
    with open(path, "rb") as file:
        first = file.readline(LONGEST_LINE)
        while first and not first.strip():
            first = file.readline(LONGEST_LINE)
        if not first:
            raise GearError(f"{path} is empty.")
        if first.lstrip()[:1] == b"[" or first.strip() == b"{":  # one document, over as many lines as it likes
            file.seek(0)
            yield from _rows_of_document(path, file.read())
            return
        file.seek(0)
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            where = f"{path}, line {number}"
            if len(line) > LONGEST_LINE:
                raise GearError(f"{where}: longer than {LONGEST_LINE >> 20} MiB.")
            if line.strip():
                yield where, _object(_parse(line, where), where)


def _rows_of_document(path: Path, data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    content = _parse(data, str(path))
    if isinstance(content, dict):
        yield f"{path}", content
        return
    for number, row in enumerate(content if isinstance(content, list) else [content], start=1):
        where = f"{path}, row {number}"
        yield where, _object(row, where)


def _object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise GearError(f"{where}: must be an object with keys and values, not {_kind(row)}.")
    return row


def _parse(data: bytes, where: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not a JSON number")

    try:
        return json.loads(data, parse_constant=refuse)
    except json.JSONDecodeError as error:
        place = f", line {error.lineno}" if error.lineno > 1 else ""
        raise GearError(f"{where}{place}: not JSON: {error.msg} (column {error.colno}).") from None
    except RecursionError:
        raise GearError(f"{where}: nested too deeply.") from None
    except UnicodeDecodeError:
        raise GearError(f"{where}: not UTF-8 text.") from None
    except ValueError as error:
        raise GearError(f"{where}: {error}.") from None


# ---------------------------------------------------------------------------------------------------- one row
def _transcript(row: dict[str, Any], where: str) -> Transcript:
    for name in ("messages", "reward"):
        if name not in row:
            raise GearError(f"{where}: has no {name!r}. Its keys: {', '.join(map(str, row)) or 'none'}.")
    group, success, tools = row.get("group"), row.get("success"), row.get("tools")
    if group is not None and (not isinstance(group, (str, int)) or isinstance(group, bool)):
        raise GearError(f"{where}: group must be text or a whole number, not {_kind(group)}.")
    if success is not None and not isinstance(success, bool):
        raise GearError(f"{where}: success must be true or false, not {_kind(success)}.")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise GearError(f"{where}: tools must be a list of JSON schemas.")
    messages = _messages(row["messages"], where)
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


def _messages(value: Any, where: str) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise GearError(f"{where}: messages must be a list of messages, not {_kind(value)}.")
    if len(value) > MOST_MESSAGES:
        raise GearError(f"{where}: {len(value)} messages; at most {MOST_MESSAGES} are read.")
    return [_message(message, f"{where}, message {i}") for i, message in enumerate(value)]


def _message(message: Any, where: str) -> Message:
    """As chat templates expect it: text content, and tool calls with their arguments as an object."""
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        role = message.get("role") if isinstance(message, dict) else _kind(message)
        raise GearError(f"{where}: must have a role, one of {', '.join(ROLES)}; got {str(role)[:40]!r}.")
    made = {**message, "content": _text(message.get("content"), where)}
    if message.get("tool_calls") is None:
        made.pop("tool_calls", None)
        return made
    if not isinstance(message["tool_calls"], list):
        raise GearError(f"{where}: tool_calls must be a list, not {_kind(message['tool_calls'])}.")
    made["tool_calls"] = [_call(call, f"{where}, tool call {i}") for i, call in enumerate(message["tool_calls"])]
    return made


def _text(content: Any, where: str) -> str:
    """Content may be null (beside tool calls), text, or a list of text parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    if all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        return "".join(part["text"] for part in parts)
    raise GearError(f"{where}: content is not plain text; images and sounds are not supported.")


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise GearError(f"{where}: must be {{'function': {{'name': …, 'arguments': …}}}}.")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):  # OpenAI sends JSON text; templates iterate over, or print, an object
        try:
            parsed = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            parsed = None  # the model did not write JSON: left to the template unchanged
        arguments = parsed if isinstance(parsed, dict) else arguments
    elif not isinstance(arguments, dict):
        raise GearError(f"{where}: arguments must be an object or JSON text, not {_kind(arguments)}.")
    kept = {key: value for key, value in call.items() if key in ("id", "index")}
    return {**kept, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number") if not (isinstance(value, list) and not value) else "an empty list"
