"""Reference calls of the agent categories: "[f(a='x', b=1), g()]" as tool calls, and the lists of them that a problem accepts.

They are no Python: apostrophes stand inside single quotes ('Domino's'). A quote ends a text only where a comma, a colon or a
closing bracket follows.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.errors import GearError

Step = list[ToolCall]
"""The calls of one turn."""
_TEXT = re.compile(r"'(.*?)'(?=\s*[,:)\]}]|\s*$)|\"(.*?)\"(?=\s*[,:)\]}]|\s*$)", re.DOTALL)


def read_step(text: str, where: str) -> Step:
    quoted = _TEXT.sub(lambda m: repr(m[1] if m[1] is not None else m[2]), text.strip())
    try:
        node = ast.parse(quoted, mode="eval").body
        calls = node.elts if isinstance(node, ast.List) else [node]
        return [ToolCall(call.func.id, _arguments(call)) for call in calls]  # type: ignore[attr-defined]
    except (SyntaxError, ValueError, AttributeError, RecursionError) as error:
        raise GearError(f"{where}: the milestone {text[:200]!r} cannot be read ({error!r}).") from None


def _arguments(call: Any) -> dict[str, Any]:
    if call.args:
        raise ValueError("arguments have names")
    return {item.arg: ast.literal_eval(item.value) for item in call.keywords}


def read_milestones(value: Any, where: str) -> list[list[Step]]:
    """One list of steps, or several of which any will do."""
    alternatives = value if value and isinstance(value[0], list) else [value]
    return [[read_step(text, where) for text in steps] for steps in alternatives]


_PIZZA = """[add_food_delivery_order(username='Eve', merchant_name='Domino's',
    items=[{'product': 'Super Supreme Pizza', 'quantity': 1}])]"""
_FOOD_LOGIN = "[login_food_platform(username='Helen', password='password321')]"
_NEWEST = ["[get_latest_message_id()]", "[delete_message(message_id=4)]"]
_NO_SUCH_PRODUCT = "the reference order names a product the merchant does not have; the end state has another"
_NO_LOGIN = "the reference calls leave out a log-in without which the others fail"
_OTHER_MESSAGE = "the reference calls delete the oldest message; the question and the end state say the newest"
Splice = tuple[int, int, list[str]]
"""At this step, leave out so many and put these in."""
CORRECTED: dict[str, tuple[str, list[Splice]]] = {
    "agent_multi_step_0": (_NO_SUCH_PRODUCT, [(1, 1, [_PIZZA])]),
    "agent_multi_step_1": (_NO_SUCH_PRODUCT, [(2, 1, [_PIZZA])]),
    "agent_multi_step_12": (_NO_LOGIN, [(3, 0, [_FOOD_LOGIN])]),
    "agent_multi_step_13": (_NO_LOGIN, [(4, 0, [_FOOD_LOGIN])]),
    "agent_multi_step_14": (_OTHER_MESSAGE, [(5, 2, _NEWEST)]),
    "agent_multi_step_15": (_OTHER_MESSAGE, [(4, 2, _NEWEST)]),
    "agent_multi_step_16": (f"{_OTHER_MESSAGE}; and {_NO_LOGIN}", [(4, 2, _NEWEST), (0, 0, ["[login_device()]"])]),
    "agent_multi_step_17": (_OTHER_MESSAGE, [(3, 2, _NEWEST)]),
    "agent_multi_turn_6": (_NO_LOGIN, [(0, 0, ["[login_device()]"])]),
}
"""Ids of problems whose published reference calls do not lead to the published end state: why, and what is put right, the last
place first. The benchmark scores the end state, so these problems can be passed; it is their reference calls that are wrong."""


def corrected(problem: str, steps: list[Step]) -> list[Step]:
    for at, count, texts in CORRECTED.get(problem, ("", []))[1]:
        steps = [*steps[:at], *(read_step(text, problem) for text in texts), *steps[at + count :]]
    return steps


def matched(turns: list[Step], steps: list[Step]) -> list[int]:
    """The turns that make the steps, one after the other; what else is done between them does not count. As in the
    benchmark, the first step that is never made ends the count."""
    found: list[int] = []
    for step in steps:
        after = found[-1] + 1 if found else 0
        turn = next((i for i in range(after, len(turns)) if turns[i] == step), None)
        if turn is None:
            break
        found.append(turn)
    return found
