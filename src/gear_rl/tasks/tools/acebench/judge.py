"""ACEBench's rules for a list of calls and for the special answers, as functions of plain values.

The benchmark is lenient in ways worth knowing. Strings need only contain the reference string (case, spaces and , . / - _ * ^
aside). Numbers and booleans are compared by type alone unless they stand in an object, and a reference argument that the schema
does not require may be missing. `Judged.accepted` is that rule, `Judged.exact` also compares numbers and booleans and misses
nothing. Where the official code cannot accept its own reference answer (an empty list, say), an equal value is accepted.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from gear_rl.chat.tool_calls import ToolCall

_IGNORED = re.compile(r"[ ,./\-_*^]")
_TYPES: dict[str, type[Any]] = {
    "string": str, "any": str, "integer": int, "int": int, "number": int, "float": float, "boolean": bool,
    "array": list, "tuple": list, "list": list, "list(string)": list, "list(enum)": list, "objectArray": list,
    "dict": dict, "object": dict,
}  # fmt: skip
"""Types as the benchmark's schemas name them. "number" is int: a float is then judged by the reference value's own type."""


@dataclass(frozen=True)
class Judged:
    accepted: bool
    """By the benchmark's rule."""
    exact: bool
    """By the stricter one."""


WRONG = Judged(False, False)


def judge_calls(calls: list[ToolCall], reference: Any, functions: list[dict[str, Any]]) -> Judged:
    """`reference` is {name: arguments}, or a list of such alternatives; two calls of one function are name_1 and name_2."""
    alternatives = reference if isinstance(reference, list) else [reference]
    results = [_judge_one(calls, alternative, functions) for alternative in alternatives]
    return Judged(any(r.accepted for r in results), any(r.exact for r in results))


def _judge_one(calls: list[ToolCall], reference: dict[str, Any], functions: list[dict[str, Any]]) -> Judged:
    wanted = [(function_name(key, functions), arguments) for key, arguments in reference.items()]
    if Counter(call.name for call in calls) != Counter(_flat(name) for name, _ in wanted):
        return WRONG
    accepted = exact = True
    for name, arguments in wanted:
        document = next((f for f in functions if f["name"] == name), {})
        parameters = document.get("parameters") or document.get("arguments") or {}
        results = [_judge_arguments(c.arguments, arguments, parameters) for c in calls if c.name == _flat(name)]
        accepted &= any(result.accepted for result in results)
        exact &= any(result.exact for result in results)
    return Judged(accepted, accepted and exact)


def function_name(key: str, functions: list[dict[str, Any]]) -> str:
    """The function a reference key stands for: itself, or without its number."""
    names = [function["name"] for function in functions]
    return key if key in names else re.sub(r"_\d+$", "", key)


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _judge_arguments(said: dict[str, Any], reference: dict[str, Any], parameters: dict[str, Any]) -> Judged:
    if not said or not reference:
        same = not said and not reference
        return Judged(same, same)
    properties = parameters.get("properties") or {}
    if any(key not in said for key in parameters.get("required") or []):
        return WRONG
    if any(key not in properties or key not in reference for key in said):
        return WRONG
    accepted = all(_accepts(value, reference[key], properties[key]) for key, value in said.items())
    exact = set(said) == set(reference) and all(_plain_equal(value, reference[key]) for key, value in said.items())
    return Judged(accepted, accepted and exact)


def _plain_equal(value: Any, reference: Any) -> bool:
    """Numbers and booleans: equal. Everything else is left to the benchmark's rule."""
    value = _truth(value)
    if isinstance(reference, bool) or isinstance(value, bool):
        return value is reference
    if isinstance(reference, int | float):
        return value == reference
    return True


def _truth(value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _accepts(value: Any, reference: Any, document: dict[str, Any]) -> bool:
    kind = str(document.get("type", "string"))
    value = float(value) if kind == "float" and type(value) is int else _truth(value)
    if value == reference and (not isinstance(reference, dict | list) or repr(value) == repr(reference)):
        return True  # also 1 for true and 2.0 for 2, but not inside
    expected = _TYPES.get(kind)
    if (
        type(value) is not expected or type(reference) is not expected
    ):  # the schema's type or the reference value's: either will do,
        return type(value) in (expected, type(reference))  # and then nothing more is asked
    if expected is dict:
        return _dict_accepts(value, reference)
    if expected is str:
        return _standard(reference) in _standard(value)
    if expected is list:
        return _list_accepts(value, reference)
    return True


def _list_accepts(value: list[Any], reference: list[Any]) -> bool:
    if len(value) != len(reference):
        return False
    if any(isinstance(item, dict) for item in reference):
        return all(_dict_accepts(v, g) if isinstance(g, dict) else v == g for v, g in zip(value, reference, strict=True))
    return [_standard(v) for v in value] == [_standard(g) for g in reference]


def _dict_accepts(value: Any, reference: dict[str, Any]) -> bool:
    """The same keys; below them the reference value's text is contained in the value's."""
    if not isinstance(value, dict) or set(value) != set(reference):
        return False
    for key, wanted in reference.items():
        said = _truth(value[key])
        if isinstance(wanted, dict):
            if not _dict_accepts(said, wanted):
                return False
        elif str(_standard(wanted)) not in str(_standard(said)):
            return False
    return True


def _standard(value: Any) -> Any:
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def judge_special(text: str, reference: Any, category: str) -> bool:
    """The set phrase of the category, and what it must name, occur in the answer."""
    if category == "special_irrelevant":
        return "the limitations of the function" in text
    phrase = "Missing necessary parameters" if category == "special_incomplete" else "There is incorrect value"
    needed = [str(value) for values in reference.values() for value in values]
    if category == "special_incomplete":
        needed += list(reference)
    return phrase in text and all(word in text for word in needed)
