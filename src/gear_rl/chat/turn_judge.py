"""Asking a chat model which turn of a rollout decided its outcome: the question as messages, and a strict reader of the answer.

A rollout is untrusted text, and so is the answer. The worst that either can do is to name another turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gear_rl.chat.messages import Message, Prompt, well_formed
from gear_rl.chat.tool_calls import read_turn

MOST_CHARACTERS = 2000
"""Of one turn, or of one reply, that are shown."""
LONGEST_ANSWER = 4000
"""Characters of an answer that are looked at, thoughts included."""
_NUMBER = re.compile(r"(?:turn\s*)?#?([0-9]{1,4})\.?", re.IGNORECASE | re.ASCII)

QUESTION = """An assistant worked on a task in {count} turns. It ended {how} than other attempts at the same task.

Task:
{task}

{turns}

Which turn {what}? Answer with its number alone, from 1 to {count}."""


class Told(NamedTuple):
    """One turn of a rollout as text."""

    said: str
    """By the policy."""
    reply: str = ""
    """By the environment, after it."""


def question(prompt: Prompt, turns: Sequence[Told], won: bool) -> list[Message]:
    """One message of the user."""
    task = prompt if isinstance(prompt, str) else "\n".join(str(message.get("content") or "") for message in prompt)
    told = "\n\n".join(
        f"Turn {k}:\n{_short(turn.said)}" + (f"\nReply:\n{_short(turn.reply)}" if turn.reply.strip() else "")
        for k, turn in enumerate(turns, 1)
    )
    how, what = ("better", "did most for that") if won else ("worse", "went wrong first")
    text = QUESTION.format(count=len(turns), how=how, task=_short(task), turns=told, what=what)
    return [{"role": "user", "content": well_formed(text)}]


def named_turn(answer: str, turns: int) -> int | None:
    """The turn that an answer names, counted from 0. None: it is anything but one number from 1 to `turns`, which may have
    the word "turn" before it. Thoughts in front are passed over."""
    if len(answer) > LONGEST_ANSWER:
        return None
    found = _NUMBER.fullmatch(read_turn(answer).text.strip())
    return int(found[1]) - 1 if found and 1 <= int(found[1]) <= turns else None


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + " …"
