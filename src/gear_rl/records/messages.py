"""Chat messages from outside, as in OpenAI's API, checked and put as chat templates expect them."""

from __future__ import annotations

import json
from typing import Any

from gear_rl.chat.messages import Message
from gear_rl.errors import GearError
from gear_rl.records.json_rows import kind_of

MOST_MESSAGES = 500
"""Of one row: templates are rendered once per turn of the assistant."""
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def read_messages(value: Any, where: str) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise GearError(f"{where}: messages must be a list of messages, not {kind_of(value)}.")
    if len(value) > MOST_MESSAGES:
        raise GearError(f"{where}: {len(value)} messages; at most {MOST_MESSAGES} are read.")
    return [_message(message, f"{where}, message {i}") for i, message in enumerate(value)]


def _message(message: Any, where: str) -> Message:
    """As chat templates expect it: text content, and tool calls with their arguments as an object."""
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        role = message.get("role") if isinstance(message, dict) else kind_of(message)
        raise GearError(f"{where}: must have a role, one of {', '.join(ROLES)}; got {str(role)[:40]!r}.")
    made = {**message, "content": _text(message.get("content"), where)}
    if message.get("tool_calls") is None:
        made.pop("tool_calls", None)
        return made
    if not isinstance(message["tool_calls"], list):
        raise GearError(f"{where}: tool_calls must be a list, not {kind_of(message['tool_calls'])}.")
    made["tool_calls"] = [_call(call, f"{where}, tool call {i}") for i, call in enumerate(message["tool_calls"])]
    return made


def _text(content: Any, where: str) -> str:
    """Content may be null (beside tool calls), text, or a list of text parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    if all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        return "".join(part["text"] for part in parts)
    raise GearError(f"{where}: content is not plain text; images and sounds are not supported.")


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise GearError(f"{where}: must be {{'function': {{'name': …, 'arguments': …}}}}.")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):  # OpenAI sends JSON text; templates iterate over, or print, an object
        try:
            parsed = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            parsed = None  # the model did not write JSON: left to the template unchanged
        arguments = parsed if isinstance(parsed, dict) else arguments
    elif not isinstance(arguments, dict):
        raise GearError(f"{where}: arguments must be an object or JSON text, not {kind_of(arguments)}.")
    kept = {key: value for key, value in call.items() if key in ("id", "index")}
    return {**kept, "type": "function", "function": {"name": function["name"], "arguments": arguments}}
