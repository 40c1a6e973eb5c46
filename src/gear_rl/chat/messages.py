"""The shapes that chat templates, tasks and endpoints share."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]
"""{"role": …, "content": …}, as chat templates read it."""
Prompt = str | list[Message]
"""What the policy reads: plain text, or messages."""
Tools = list[dict[str, Any]]
"""JSON schemas, {"type": "function", "function": {…}} each."""
