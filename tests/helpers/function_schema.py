"""Descriptions of functions, as the tool-use benchmarks publish them."""

from __future__ import annotations

from typing import Any


def function(name: str, description: str, required: list[str], kind: str = "object", /, **properties: Any) -> dict[str, Any]:
    """`kind`: the benchmark's word for an object. A property is its type in one word, or its JSON schema."""
    schemas = {key: {"type": given} if isinstance(given, str) else given for key, given in properties.items()}
    parameters = {"type": kind, "properties": schemas, "required": required}
    return {"name": name, "description": description, "parameters": parameters}
