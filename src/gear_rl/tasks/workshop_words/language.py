"""What is said in the workshop in words: turns of the mechanic, replies, hints; and where in a turn its decisions stand.

For the rear valve I will use the torque wrench.
<tool_call>[{"name": "torque_wrench", "arguments": {"part": "rear valve", "setting": 14}}]</tool_call>
                                                                    Job 1 is done. The gauge reads 23 bar.
Answer: yes
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from gear_rl.chat.tool_calls import OPEN, ToolCall, as_list, read_turn
from gear_rl.tasks.workshop_words.world import PARTS, SETTINGS, TOOLS, Choice, Fact

SYSTEM = (
    "You are a mechanic. For each job, in order, write one short sentence, then one tool call with the part and the setting. "
    f"Tools: {', '.join(TOOLS)}. After the last job write the answer, yes or no."
)
THOUGHTS = (
    "For the {part} I will use the {tool}.",
    "The {part} {fault}, so I take the {tool}.",
    "This looks like a job for the {tool}.",
    "A {part} that {fault} calls for the {tool}.",
    "Let me see to the {part}.",
    "The {part} {fault}, I know what to do.",
    "Now the {part}.",
    "I will go on with the {part}.",
)
"""Half of them name the tool, so that a departure may begin before the call and be repeated in it."""
ANSWER = "Answer:"
NOT_RIGHT = "not right"
KINDS = ("thought", "tool", "argument", "answer", "form")
"""Of tokens. form: tags, JSON keys and punctuation, the end of a turn."""

_ANSWER = re.compile(r"Answer: (yes|no)\s*$")
_VALUES = {
    "tool": re.compile(r'"name"\s*:\s*"([^"\\]*)"'),
    "part": re.compile(r'"part"\s*:\s*"([^"\\]*)"'),
    "setting": re.compile(r'"setting"\s*:\s*(-?\d+)'),
}


class Call(NamedTuple):
    part: str
    choice: Choice


class Value(NamedTuple):
    """A decision as it stands in a turn: `text[start:stop]`."""

    name: str
    """mention (of the tool, in the thought), tool, part, setting or answer."""
    start: int
    stop: int


def spoken(tool: str) -> str:
    """A tool in a sentence."""
    return tool.replace("_", " ")


def write_call(part: str, choice: Choice) -> str:
    return as_list([ToolCall(choice.tool, {"part": part, "setting": choice.setting})])


def write_turn(rng: random.Random, job: Fact, choice: Choice) -> str:
    part, fault = job
    thought = rng.choice(THOUGHTS).format(part=part, fault=fault, tool=spoken(choice.tool))
    return f"{thought}\n{write_call(part, choice)}"


def write_reply(job: int, gauge: int) -> str:
    return f"Job {job} is done. The gauge reads {gauge} bar."


def write_hint(calls: Sequence[Call | None]) -> str:
    """A call a line, as it is written in a turn. None: a call that was not right."""
    return "\n".join(NOT_RIGHT if call is None else write_call(*call) for call in calls)


def _as_call(call: ToolCall) -> Call | None:
    part, setting = call.arguments.get("part"), call.arguments.get("setting")
    known = call.name in TOOLS and part in PARTS and type(setting) is int and setting in SETTINGS
    return Call(str(part), Choice(call.name, int(setting))) if known and len(call.arguments) == 2 else None  # type: ignore[arg-type]


def read_calls(text: str) -> list[Call]:
    """All calls of a completion that the workshop understands."""
    return [call for call in map(_as_call, read_turn(text).calls) if call is not None]


def read_call(turn: str) -> Call | None:
    """A turn's one call. None: it has none or several, or one that the workshop does not understand."""
    items = read_turn(turn).items
    return _as_call(items[0]) if len(items) == 1 and isinstance(items[0], ToolCall) else None


def read_answer(turn: str) -> str | None:
    found = _ANSWER.search(turn)
    return found[1] if found and OPEN not in turn else None


def values_in(turn: str) -> list[Value]:
    """Where the decisions of a turn stand, in their order. A key that is repeated counts where it stands last, as in JSON."""
    thought, tag, _ = turn.partition(OPEN)
    if not tag:
        found = _ANSWER.search(turn)
        return [Value("answer", *found.span(1))] if found else []
    values = []
    for name, pattern in _VALUES.items():
        places = [match.span(1) for match in pattern.finditer(turn, len(thought))]
        values += [Value(name, *places[-1])] if places else []
        if name == "tool" and places:
            words = spoken(turn[slice(*places[-1])])
            at = thought.rfind(words) if words else -1
            values += [Value("mention", at, at + len(words))] if at >= 0 else []
    return sorted(values, key=lambda value: value.start)


def kinds_of(turn: str) -> list[str]:
    """The kind of each character of a turn."""
    thought, tag, _ = turn.partition(OPEN)
    kinds = ["thought"] * len(thought) + ["form"] * (len(turn) - len(thought)) if tag else ["form"] * len(turn)
    for value in values_in(turn):
        kind = {"mention": "thought", "part": "argument", "setting": "argument"}.get(value.name, value.name)
        kinds[value.start : value.stop] = [kind] * (value.stop - value.start)
    return kinds
