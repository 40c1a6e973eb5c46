"""One dialogue: calls go to the world, words to the user, until the user stops or the agent hands over."""

from __future__ import annotations

from typing import Any, Protocol

from gear_rl.chat.messages import Message
from gear_rl.chat.tool_calls import ToolCall, read_turn
from gear_rl.tasks.tools.tau.user import STOP, User

ONE_AT_A_TIME = "Error: one tool call at a time; this one was not made."


class Desk(Protocol):
    """What an agent works at: `World`, or telecom's."""

    def problem(self, call: ToolCall) -> str | None: ...

    def call(self, call: ToolCall) -> str: ...

    def changes(self) -> Any: ...

    def ends(self, call: ToolCall) -> bool: ...


class TauEpisode:
    """The rules ask for one call or one message a turn. Of several calls the first is made, as in the benchmark; words beside
    a call are not heard."""

    def __init__(self, world: Desk, user: User) -> None:
        self.world, self.user = world, user
        self.said: list[str] = []
        """What the agent has said to the user."""
        self.calls: list[ToolCall | None] = []
        """Per turn of the agent: the call that was made, or None."""
        self.changed: list[int] = []
        """Turns that changed the database."""
        self.ended = False
        """The user stopped or was handed over. A dialogue that is broken off earns nothing."""
        self.malformed = 0
        """Calls that could not be read or do not fit their schema."""
        self._before = world.changes()

    def reply(self, turn: str) -> list[Message] | None:
        read = read_turn(turn)
        self.malformed += read.malformed
        if not read.items:
            return self._to_user(read.text)
        replies: list[Message] = []
        made: ToolCall | None = None
        for item in read.items:
            if not isinstance(item, ToolCall):
                answer = item.reply()
            elif made is None:
                made, answer = item, self._make(item)
            else:
                answer = ONE_AT_A_TIME
            replies.append({"role": "tool", "content": answer})
        self.calls.append(made)
        return None if self.ended else replies

    def _make(self, call: ToolCall) -> str:
        self.malformed += self.world.problem(call) is not None
        answer = self.world.call(call)
        after = self.world.changes()
        if after != self._before:
            self.changed.append(len(self.calls))
            self._before = after
        self.ended = self.world.ends(call) and not answer.startswith("Error")
        return answer

    def _to_user(self, text: str) -> list[Message] | None:
        self.said.append(text)
        self.calls.append(None)
        answer = self.user.reply(text)
        if STOP in answer:
            self.ended = True
            return None
        return [{"role": "user", "content": answer}]
