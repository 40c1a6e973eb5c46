"""The shapes that chat templates, tasks and endpoints share, and text that can be written as UTF-8."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]
"""{"role": …, "content": …}, as chat templates read it."""
Part = dict[str, Any]
"""{"type": "text", "text": …} or {"type": "image", "image": …}: what a message's content may be a list of."""
Prompt = str | list[Message]
"""What the policy reads: plain text, or messages."""
Tools = list[dict[str, Any]]
"""JSON schemas, {"type": "function", "function": {…}} each."""


def well_formed(value: Any) -> Any:
    """`value` with every lone surrogate in its texts replaced by U+FFFD, as decoders do with bad bytes: JSON may hold one
    (`"\\ud800"`), but it has no UTF-8, so that no tokenizer and no file takes it."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    elif isinstance(value, dict):
        return {well_formed(key): well_formed(each) for key, each in value.items()}
    elif isinstance(value, list):
        return [well_formed(each) for each in value]
    return value
