"""Turns with a lone surrogate in every place that a task reads: shared by the tests of several tasks."""

from __future__ import annotations

import json
import math
from typing import Any

from byte_tokenizers import byte_tokenizer

from gear_rl.chat.templates import Replies
from gear_rl.tasks.base import Row, Task, Transcript, tools_of

SAID = ["say \ud800", "\\boxed{\ud800}", "<answer>\udfff</answer>", '[f(a="\ud800")]',
        '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>']  # fmt: skip
ESCAPED = "SURROGATE"


def turns(task: Task, row: Row) -> list[str]:
    """Plain ones, and a call of each tool with a lone surrogate for every text, written as JSON's escape and as itself."""
    calls = []
    for tool in tools_of(task, row) or []:
        function = tool.get("function", tool)
        properties = (function.get("parameters") or {}).get("properties") or {}
        arguments = {name: _value(schema) for name, schema in properties.items()}
        calls.append(f"<tool_call>{json.dumps({'name': function['name'], 'arguments': arguments})}</tool_call>")
    return SAID + [call.replace(ESCAPED, mark) for call in calls for mark in ("\\ud800", "\ud800")]


def _value(schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds: dict[Any, Any] = {"integer": 1, "number": 1, "float": 1, "boolean": True}
    return kinds.get(
        kind, [ESCAPED] if kind in ("array", "list") else {ESCAPED: ESCAPED} if kind == "object" else ESCAPED
    )


def play_all(task: Task, row: Row) -> int:
    """Every one of `turns` as a rollout: reply, its tokens, verdict. How many there were."""
    replies, said = Replies(byte_tokenizer()), turns(task, row)
    for turn in said:
        episode = task.episode(row)
        reply = episode.reply(turn)
        assert reply is None or replies.ids(reply)
        verdict = task.verdict(row, Transcript(turn, [turn], episode))
        assert math.isfinite(verdict.reward)
        (verdict.feedback or "").encode()
    return len(said)
