"""Between the policy's tool calls (JSON) and the forms the official checker reads; and reference answers as tool calls."""

from __future__ import annotations

import ast
import json
import keyword
from typing import Any

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.errors import GearError

NO_SUCH = "no_such_function()"
"""What stands for a call that must not reach `eval`. It fails there with a NameError, as an unknown function does."""


def tool_name(name: str) -> str:
    """Tool names in chat formats have no dots; the benchmark's own function-calling handlers write underscores too."""
    return name.replace(".", "_")


def executable(call: ToolCall, methods: frozenset[str]) -> str:
    """`f(a=1, b='x')` for the official executor, which evaluates it: known methods, identifiers and literals only."""
    if call.name not in methods:
        return NO_SUCH
    if not all(key.isidentifier() and not keyword.iskeyword(key) for key in call.arguments):
        return NO_SUCH
    return f"{call.name}({','.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


def read_executable(text: str, parameters: dict[str, list[str]], where: str) -> ToolCall:
    """A reference call of the multi-turn files as a tool call. `parameters`: names in order, for positional arguments."""
    try:
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise ValueError("no call")
        names = parameters[node.func.id]
        arguments = {names[i]: ast.literal_eval(value) for i, value in enumerate(node.args)}
        arguments |= {item.arg: ast.literal_eval(item.value) for item in node.keywords if item.arg}
    except (SyntaxError, ValueError, KeyError, IndexError, RecursionError, MemoryError) as error:  # the last two: nested deeply
        raise GearError(f"{where}: the reference call {text[:200]!r} cannot be read ({error!r}).") from None
    return ToolCall(node.func.id, arguments)


def reference_call(name: str, accepted: dict[str, list[Any]], parameters: dict[str, Any], language: str) -> ToolCall:
    """One accepted call out of {parameter: [accepted values]}, the shortest: "" among the values says that the parameter
    may be left out, and so it is. `parameters` is the function's document."""
    arguments = {}
    for key, values in accepted.items():
        required = key in (parameters.get("required") or [])
        if not values or ("" in values and not required):
            continue
        value = _choose(next((value for value in values if value != ""), ""))
        if language != "Python":
            document = parameters.get("properties", {}).get(key, {})
            element = (document.get("items") or {}).get("type", "any")
            value = _as_source(value, document.get("type", "any"), element, language)
        arguments[key] = value
    return ToolCall(tool_name(name), arguments)


def _choose(value: Any) -> Any:
    """Dictionaries hold lists of accepted values below them."""
    if isinstance(value, dict):
        chosen = {
            key: [item for item in values if item != ""] for key, values in value.items() if isinstance(values, list)
        }
        plain = {key: item for key, item in value.items() if not isinstance(item, list)}
        return plain | {key: _choose(values[0]) for key, values in chosen.items() if values}
    if isinstance(value, list):
        return [_choose(item) for item in value]
    return value


def _as_source(value: Any, kind: str, element: str, language: str) -> str:
    """A value written as Java or JavaScript source: those categories take every argument as a string of code."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        items = [
            item if isinstance(item, str) and kind == "Array" else _item(item, element, language) for item in value
        ]
        if language == "JavaScript":
            return f"[{', '.join(items)}]"
        if kind == "Array":
            return f"new {element}[]{{{', '.join(items)}}}"
        return f"new ArrayList<>(Arrays.asList({', '.join(items)}))" if items else "new ArrayList<>()"
    if isinstance(value, dict):
        if language == "JavaScript":
            return "{" + ", ".join(f"{key}: {_item(item, 'any', language)}" for key, item in value.items()) + "}"
        puts = " ".join(f'put("{key}", {_item(item, "any", language)});' for key, item in value.items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
    suffix = {"long": "L", "float": "f", "Bigint": "n"}.get(kind, "")
    if language == "JavaScript" and kind == "float":
        suffix = ""
    return f"{value!r}{suffix}"


def _item(value: Any, kind: str, language: str) -> str:
    return json.dumps(value) if isinstance(value, str) else _as_source(value, kind, "any", language)
