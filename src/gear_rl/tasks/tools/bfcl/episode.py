"""One multi-turn rollout: the user's turns, the simulated APIs behind the official executor, and what was called when."""

from __future__ import annotations

import json
from typing import Any

from gear_rl.chat.messages import Message
from gear_rl.chat.tool_calls import ToolCall, Turn, read_turn
from gear_rl.tasks.base import Row
from gear_rl.tasks.tools.bfcl.calls import executable
from gear_rl.tasks.tools.bfcl.checker import OfficialChecker
from gear_rl.tasks.workers.process import Trouble

MOST_STEPS = 20
"""Steps with calls in one user turn; the official runner ends the dialogue, failed, at the next one."""


class BfclEpisode:
    """A policy's turn with calls is a step: the APIs answer. One without ends the user's turn."""

    def __init__(self, row: Row, checker: OfficialChecker) -> None:
        self.entry: dict[str, Any] = json.loads(row["entry"])
        self.checker = checker
        self.methods = frozenset(self.entry["methods"])
        self.official_entry = {key: self.entry[key] for key in ("id", "initial_config", "involved_classes")}
        self.history: list[list[str]] = []
        """Every step so far as the official executor reads it."""
        self.steps: list[list[list[str]]] = [[]]
        """The same by user turn."""
        self.said: list[tuple[int, list[ToolCall]]] = []
        """Per policy turn: the user turn it belongs to, and its calls."""
        self.errors: list[str] = []
        """Calls that were answered with an error."""
        self.malformed = 0
        self.closed = 0
        """User turns that were brought to an end."""
        self.failed = ""
        """Why the dialogue was broken off, if it was."""

    def reply(self, turn: str) -> list[Message] | None:
        read = read_turn(turn)
        self.malformed += read.malformed
        self.said.append((len(self.steps) - 1, read.calls))
        return self._answer_calls(read) if read.items else self._next_user_turn()

    def _next_user_turn(self) -> list[Message] | None:
        self.closed += 1
        if self.closed == len(self.entry["users"]):
            return None
        self.steps.append([])
        return self.entry["users"][self.closed]

    def _answer_calls(self, read: Turn) -> list[Message] | None:
        results: list[str] = []
        if read.calls:
            calls = [executable(call, self.methods) for call in read.calls]
            self.history.append(calls)
            self.steps[-1].append(calls)
            try:
                reply = self.checker.check(kind="step", entry=self.official_entry, history=self.history)
                results = reply["results"] if "results" in reply else [f"Error: {reply['raised']}"] * len(calls)
            except Trouble as trouble:  # a call that never ends, or eats all memory: what it did cannot be known
                self.failed = f"a call was stopped: {trouble}"
                return None
        if len(self.steps[-1]) > MOST_STEPS:
            self.failed = f"more than {MOST_STEPS} steps in one turn"
            return None
        self.errors += [
            f"{call.name}: {text[:120]}" for call, text in zip(read.calls, results, strict=True) if _is_error(text)
        ]
        answers = iter(results)
        return [
            {
                "role": "tool",
                "content": self._worded(item, next(answers)) if isinstance(item, ToolCall) else item.reply(),
            }
            for item in read.items
        ]

    def _worded(self, call: ToolCall, result: str) -> str:
        if call.name not in self.methods:
            return f"Error during execution: name {call.name!r} is not defined"
        return result


def _is_error(result: str) -> bool:
    """The executor's own words for an exception, or an API's {"error": …}."""
    if result.startswith("Error"):
        return True
    try:
        value = json.loads(result) if result.startswith("{") else None
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "error" in value
