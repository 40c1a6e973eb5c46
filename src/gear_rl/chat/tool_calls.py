"""Tool calls as chat models write them, read with bounds: size, depth, number. What cannot be read is named, never guessed.

    <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>          Qwen2.5, Qwen3, Hermes: a tag per call
    <tool_call>[{"name": "f", "arguments": {"x": 1}}, …]</tool_call>     SmolLM2: a list in one tag
    <tool_call>{"name": "f", "parameters": {…}}\\n{"name": …}</tool_call>  ToolRL: a line per call

`arguments` may be JSON text of an object, as OpenAI's API has it. Calls inside `<think>…</think>` are thoughts. A tag that
is never closed counts if its JSON is whole: some models end their turn that way.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from gear_rl.chat.messages import well_formed
from gear_rl.errors import unknown_name

LARGEST_CALL = 2**16
"""Characters inside one tag."""
DEEPEST = 32
"""Brackets within brackets."""
MOST_CALLS = 64
"""Calls in one turn; what follows is malformed."""
OPEN, CLOSE = "<tool_call>", "</tool_call>"
_TAGS = re.compile(r"<tool_call>(.*?)(?:</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class Refused(Exception):
    """A simulated tool cannot do that; its text is what the model reads."""


UNFIT = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What a simulated tool may raise on arguments that fit its schema and still make no sense to it: schemas say less than
code needs. The model reads an error; it must not end a run."""


class Unreadable(ValueError):
    """JSON that is none, or is too much; the message is fit to be shown to the model."""


@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        """As the policy would write it, in Qwen's form."""
        return f"{OPEN}\n{json.dumps({'name': self.name, 'arguments': self.arguments}, ensure_ascii=False)}\n{CLOSE}"


def as_list(calls: list[ToolCall]) -> str:
    """Calls in one tag, as SmolLM2 writes them."""
    return f"{OPEN}{json.dumps([{'name': c.name, 'arguments': c.arguments} for c in calls], ensure_ascii=False)}{CLOSE}"


@dataclass(frozen=True)
class Malformed:
    """A call that could not be read."""

    problem: str

    def reply(self) -> str:
        """What the model reads."""
        return json.dumps({"error": f"malformed tool call: {self.problem}"}, ensure_ascii=False)


@dataclass(frozen=True)
class Turn:
    """A policy's turn, read."""

    text: str
    """What was said outside of calls and thoughts."""
    items: list[ToolCall | Malformed]
    """Calls and failed calls, in the order in which they were written: an environment answers each."""

    @property
    def calls(self) -> list[ToolCall]:
        return [item for item in self.items if isinstance(item, ToolCall)]

    @property
    def malformed(self) -> int:
        return sum(isinstance(item, Malformed) for item in self.items)


def read_turn(turn: str) -> Turn:
    """The text and the calls of one turn. Never raises: what is wrong is among the items."""
    said = _THOUGHTS.sub("", well_formed(turn))
    items: list[ToolCall | Malformed] = []
    for tag in _TAGS.finditer(said):
        items += _read_tag(tag[1], MOST_CALLS - len(items))
        if len(items) > MOST_CALLS:
            break
    return Turn(_TAGS.sub("", said).replace(CLOSE, "").strip(), items)


def _read_tag(content: str, left: int) -> list[ToolCall | Malformed]:
    if not content.strip():
        return [Malformed("the tag is empty")]
    try:
        values = read_json_values(content)
    except Unreadable as error:
        return [Malformed(str(error))]
    calls = [call for value in values for call in (value if isinstance(value, list) else [value])]
    if len(calls) > left:
        return [*map(_read_call, calls[:left]), Malformed(f"more than {MOST_CALLS} calls in one turn")]
    return [_read_call(call) for call in calls] or [Malformed("the list of calls is empty")]


def _read_call(value: Any) -> ToolCall | Malformed:
    if not isinstance(value, dict):
        return Malformed(f'a call is an object {{"name": …, "arguments": {{…}}}}, not {_shown(value)}')
    if isinstance(value.get("function"), dict):  # OpenAI's own nesting
        value = value["function"]
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return Malformed('the call has no "name"')
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments) if arguments.strip() else {}
        except Unreadable as error:
            return Malformed(f'the "arguments" of {name}: {error}')
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return Malformed(f'the "arguments" of {name} must be an object, not {_shown(arguments)}')
    return ToolCall(name, arguments)


def read_json(text: str) -> Any:
    """One JSON value within the bounds, or `Unreadable`."""
    values = read_json_values(text)
    if len(values) != 1:
        raise Unreadable(f"{len(values)} JSON values where one belongs")
    return values[0]


def read_json_values(text: str) -> list[Any]:
    """One or more JSON values, white space or commas between them."""
    if len(text) > LARGEST_CALL:
        raise Unreadable(f"{len(text)} characters; at most {LARGEST_CALL} are read")
    if _depth(text) > DEEPEST:
        raise Unreadable(f"nested deeper than {DEEPEST}")
    values, at = [], 0
    while at < len(text):
        if text[at].isspace() or text[at] == ",":
            at += 1
            continue
        try:
            value, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise Unreadable(f"not JSON, {error.msg} at character {error.pos}") from None
        except (ValueError, RecursionError) as error:  # NaN, a number of thousands of digits
            raise Unreadable(f"not JSON, {error}") from None
        values.append(well_formed(value))
    return values


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
_SIGNS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def _depth(text: str) -> int:
    """How deep brackets nest, strings left out; found before anything recursive reads them."""
    depth = deepest = 0
    for sign in _SIGNS.finditer(text):
        first = sign[0][0]
        depth += first in "[{"
        depth -= first in "]}"
        deepest = max(deepest, depth)
    return deepest


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---------------------------------------------------------------------------------------------------- against schemas
def problem_with(call: ToolCall, tools: list[dict[str, Any]]) -> str | None:
    """What is wrong with `call` by the tools' JSON schemas, in words for the model; None: nothing.

    Checked: the tool exists, required arguments are there (inside of objects too), no unknown ones, and JSON types and enums
    as far as the schema names them. Types that are not JSON's own are not checked. Not jsonschema, which allows unknown
    arguments unless set otherwise, fails on the benchmarks' own type names, and runs patterns and references it is given."""
    by_name = {tool.get("function", tool).get("name"): tool.get("function", tool) for tool in tools}
    if call.name not in by_name:
        return str(unknown_name("tool", call.name, [name for name in by_name if isinstance(name, str)]))
    schema = by_name[call.name].get("parameters") or {}
    known = schema.get("properties") or {}
    for name in schema.get("required") or []:
        if name not in call.arguments:
            return f"{call.name}: the required argument {name!r} is missing."
    for name, value in call.arguments.items():
        if name in known:
            wrong = _mismatch(value, known[name], f"{call.name}: argument {name!r}", 0)
            if wrong:
                return wrong
        elif "properties" in schema or schema.get("additionalProperties") is False:
            return f"{call.name}: {unknown_name('argument', name, known)}"
    return None


def _mismatch(value: Any, schema: Any, where: str, depth: int) -> str | None:
    if not isinstance(schema, dict) or depth > DEEPEST:
        return None
    wanted = schema.get("type")
    names: list[Any] = wanted if isinstance(wanted, list) else [wanted]
    if all(name in _TYPES for name in names) and not any(_fits(value, name) for name in names):
        return f"{where} must be of type {' or '.join(names)}, not {_shown(value)}."
    if isinstance(schema.get("enum"), list) and value not in schema["enum"]:
        return f"{where} must be one of {_shown(schema['enum'])}, not {_shown(value)}."
    if isinstance(value, list):
        parts = ((item, schema.get("items"), f"{where}[{i}]") for i, item in enumerate(value))
    elif isinstance(value, dict):
        inner = schema.get("properties") or {}
        for name in schema.get("required") or []:
            if name not in value:
                return f"{where}: {name!r} is missing."
        parts = ((item, inner.get(key), f"{where}.{key}") for key, item in value.items())
    else:
        return None
    return next((wrong for part in parts if (wrong := _mismatch(*part, depth + 1))), None)


def _fits(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])
