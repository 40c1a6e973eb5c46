"""Who speaks for the customer: a ticket, where the agent has the phone itself, or a language model that has it."""

from __future__ import annotations

from typing import Any

from gear_rl.chat.tool_calls import ToolCall, read_turn
from gear_rl.tasks.tools.tau.telecom.world import PHONE_TOOLS, TelecomWorld
from gear_rl.tasks.tools.tau.user import GUIDE, OPENING, STOP
from gear_rl.tasks.tools.tau.user_models import MOST_CHARACTERS, MOST_TOKENS, EndpointChat

MOST_ROUNDS = 12
"""Turns of the user with calls before one without."""
HANDS = """
- You have the phone in hand. Do what the agent asks with the functions you have, and tell what they show, never more."""


class Ticket:
    """The agent works alone, as in the benchmark's mode without a user: what it says ends the case."""

    def __init__(self, text: str) -> None:
        self._text = text

    def opening(self) -> str:
        return self._text

    def reply(self, message: str) -> str:
        return STOP


class PhoneUser:
    """A language model behind an endpoint plays the customer, and uses the phone by itself."""

    def __init__(self, instruction: str, chat: EndpointChat, world: TelecomWorld) -> None:
        self._chat, self._world = chat, world
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": GUIDE.format(instruction=instruction, stop=STOP) + HANDS},
            {"role": "assistant", "content": OPENING},
        ]

    def opening(self) -> str:
        return OPENING

    def reply(self, message: str) -> str:
        self._messages.append({"role": "user", "content": message or "(silence)"})
        for _ in range(MOST_ROUNDS):
            reply = self._chat.endpoint.chat(self._messages, PHONE_TOOLS, temperature=0, max_tokens=MOST_TOKENS)
            self._messages.append(reply.message)
            turn = read_turn(reply.text)
            if not turn.items:
                return turn.text[:MOST_CHARACTERS]
            ids = [call["id"] for call in reply.message.get("tool_calls", [])]
            for i, item in enumerate(turn.items):
                answer = self._world.on_the_phone(item) if isinstance(item, ToolCall) else item.reply()
                tied = {"tool_call_id": ids[i]} if i < len(ids) else {}
                self._messages.append({"role": "tool", "content": answer, **tied})
        return STOP  # a user who only plays with the phone is gone
