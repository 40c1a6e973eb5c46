"""Function documents of benchmarks into the JSON schemas that chat templates and endpoints read."""

from __future__ import annotations

import inspect
from typing import Any

_TYPES = {
    "dict": "object", "hashmap": "object", "hashtable": "object", "object": "object",
    "float": "number", "double": "number", "number": "number",
    "int": "integer", "integer": "integer", "long": "integer", "short": "integer", "byte": "integer", "bigint": "integer",
    "bool": "boolean", "boolean": "boolean",
    "list": "array", "tuple": "array", "array": "array", "arraylist": "array", "objectarray": "array",
    "queue": "array", "stack": "array", "set": "array", "list(string)": "array", "list(enum)": "array",
    "str": "string", "string": "string", "char": "string", "enum": "string",
}  # fmt: skip
"""Names of types as the benchmarks write them, lower case. One that is not here ("any") is left open."""
_KEPT = ("description", "enum", "default", "minimum", "maximum", "format", "pattern")
_DEEPEST = 24


def as_tool(name: str, description: str, parameters: Any) -> dict[str, Any]:
    """{"type": "function", "function": {…}}, the form of OpenAI's API and of chat templates."""
    schema = as_schema(parameters) if isinstance(parameters, dict) else {}
    schema = {"type": "object", "properties": {}, **schema}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def as_schema(document: Any, depth: int = 0) -> dict[str, Any]:
    """One parameter's document, whatever it nests."""
    if not isinstance(document, dict) or depth > _DEEPEST:
        return {}
    schema: dict[str, Any] = {}
    kind = document.get("type")
    if isinstance(kind, str) and kind.lower() in _TYPES:
        schema["type"] = _TYPES[kind.lower()]
    schema |= {key: document[key] for key in _KEPT if key in document}
    if isinstance(document.get("properties"), dict):
        schema["properties"] = {key: as_schema(value, depth + 1) for key, value in document["properties"].items()}
    if isinstance(document.get("items"), dict):
        schema["items"] = as_schema(document["items"], depth + 1)
    if isinstance(document.get("required"), list):
        schema["required"] = document["required"]
    return schema


_PYTHON = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def tools_of_class(kind: type) -> list[dict[str, Any]]:
    """A tool per public method of a class of simulated tools: its name, its docstring's first line, its plain parameters."""
    tools = []
    for name, method in vars(kind).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        parameters = list(inspect.signature(method).parameters.values())[1:]  # self is not the model's to give
        schema = {
            "type": "object",
            "properties": {item.name: {"type": _PYTHON[str(item.annotation)]} for item in parameters},
            "required": [item.name for item in parameters if item.default is inspect.Parameter.empty],
        }
        function = {"name": name, "description": (method.__doc__ or "").strip().splitlines()[0], "parameters": schema}
        tools.append({"type": "function", "function": function})
    return tools
