"""The user of a dialogue: a script made from the task's instruction, or a language model that is given the instruction.

The script is for training and checks without any second model. It says everything at once and agrees to everything, which
is much easier for the agent than the benchmark's user: scores under it are not τ-bench scores, and results name the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

STOP = "###STOP###"
OPENING = "Hello, I need some help, please."
"""How a language-model user begins, the same in every rollout: a group of rollouts shares one prompt."""
_QUESTION = re.compile(r"\?|\b(confirm|provide|let me know|please (tell|give|share|specify)|would you like)\b", re.I)
_ASKS_FOR_MORE = re.compile(r"\b(provide|what|which|when|who|could you|can you|specify|share|tell me|give me)\b", re.I)
_CONFIRMS = re.compile(r"\b(confirm|proceed|go ahead|correct|yes|agree|would you like me to|shall i|should i)\b", re.I)


class User(Protocol):
    """One dialogue's user."""

    def opening(self) -> str:
        """The first message."""

    def reply(self, message: str) -> str:
        """The answer to the agent's message; it contains STOP when the user has nothing more to say."""


class ScriptedUser:
    """Rules, in order: a message that asks for confirmation gets a yes, one that asks for facts gets all of them again, and
    anything else ends the dialogue. After `patience` answers it ends in any case."""

    def __init__(self, instruction: str, patience: int = 12) -> None:
        self.wish, self.left = first_person(instruction), patience

    def opening(self) -> str:
        return self.wish

    def reply(self, message: str) -> str:
        self.left -= 1
        if self.left < 0 or not _QUESTION.search(message):
            return STOP
        if _CONFIRMS.search(message):
            return "Yes, please go ahead."
        if _ASKS_FOR_MORE.search(message):
            return f"This is all I know: {self.wish}"
        return STOP


class ModelUser:
    """A language model plays the user. `chat` takes messages and gives the next one: an endpoint or a local model."""

    def __init__(self, instruction: str, chat: Callable[[list[dict[str, str]]], str]) -> None:
        self._chat = chat
        self._messages = [
            {"role": "system", "content": GUIDE.format(instruction=instruction, stop=STOP)},
            {"role": "assistant", "content": OPENING},
        ]

    def opening(self) -> str:
        return OPENING

    def reply(self, message: str) -> str:
        self._messages.append({"role": "user", "content": message or "(silence)"})
        answer = self._chat(self._messages)
        self._messages.append({"role": "assistant", "content": answer})
        return answer


GUIDE = """You play a customer who writes to a service agent. You are not the agent and you never act as one.

What you want and who you are:
{instruction}

How to play:
- Write one short message at a time, in your own words, as this customer would.
- Say only what the agent needs next, and only what stands above. What is not there you do not know; never invent an order \
number, a date or a name.
- Keep your character and stay with your wishes until they are met or clearly refused.
- When all is done, or nothing more can be done, write {stop} and nothing else."""


_PERSON = (
    (r"\byou are\b", "I am"), (r"\byou're\b", "I'm"), (r"\byou were\b", "I was"), (r"\byou've\b", "I have"),
    (r"\byou'd\b", "I'd"), (r"\byou'll\b", "I'll"), (r"\byourself\b", "myself"), (r"\byours\b", "mine"),
    (r"\byour\b", "my"), (r"\b(to|for|with|from|of|at|give|gives|tell|tells|help|helps|let|lets) you\b", r"\1 me"),
    (r"\byou\b", "I"),
)  # fmt: skip


def first_person(instruction: str) -> str:
    """ "You are Mia, your zip code is 10001." → "I am Mia, my zip code is 10001." """
    text = instruction
    for pattern, words in _PERSON:
        text = re.sub(pattern, words, text, flags=re.I)
    return re.sub(r"(^|[.!?]\s+)([a-z])", lambda match: match[1] + match[2].upper(), text).strip()
