"""τ-bench's files: databases, rules, tool schemas and tasks of one domain.

Two layouts are read. A clone of the benchmark has its tasks and schemas as Python files, which are parsed as literals and
never run. The other has the same exported as JSON:

    <domain>/data/*.json   <domain>/wiki.md   <domain>/tasks_<split>.{json|py}   <domain>/tools_schema.json | tools/*.py
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.tasks.tools.tau.records import Tables
from gear_rl.tasks.upstream import data_folder, read_document, read_text

GET_IT = "Clone github.com/sierra-research/tau-bench (MIT) and give its folder."
INSIDE = ("tau_bench/envs", "envs", "tau_bench")


@dataclass(frozen=True)
class Problem:
    """One task of the benchmark: what the user wants, and the calls that fulfil it."""

    id: str
    user_id: str
    instruction: str
    actions: list[dict[str, Any]]
    """{"name": …, "arguments": {…}}"""
    outputs: list[str]
    """Strings the agent must have said to the user."""


@dataclass(frozen=True)
class Domain:
    tables: Tables
    rules: str
    tools: list[dict[str, Any]]


def domain_folder(task: str, data: str | None, domain: str, tables: tuple[str, ...]) -> Path:
    needs = [f"{domain}/wiki.md", *(f"{domain}/data/{name}.json" for name in tables)]
    return data_folder(task, data, needs, GET_IT, INSIDE) / domain


def load_domain(folder: Path, tables: tuple[str, ...]) -> Domain:
    records = {}
    for name in tables:
        path = folder / "data" / f"{name}.json"
        records[name] = read_document(path, dict)
        for key, record in records[name].items():
            if not isinstance(record, dict):
                raise GearError(f"{path}: record {key!r} must be an object, not {type(record).__name__}.")
    return Domain(records, read_text(folder / "wiki.md"), load_schemas(folder))


def load_schemas(folder: Path) -> list[dict[str, Any]]:
    exported = folder / "tools_schema.json"
    found = read_document(exported, list) if exported.exists() else _schemas_in_code(folder)
    for number, schema in enumerate(found):
        function = schema.get("function") if isinstance(schema, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise GearError(
                f'{folder}: tool schema {number} is none: {{"type": "function", "function": {{"name": …}}}}.'
            )
    return found


def _schemas_in_code(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted((folder / "tools").glob("*.py")):
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.FunctionDef) and node.name == "get_info":
                returned = [part.value for part in node.body if isinstance(part, ast.Return) and part.value]
                found.append(_literal(path, returned[0]) if returned else {})
    if not found:
        raise GearError(f"{folder}: looked for tools_schema.json or tools/*.py with the tools' schemas. {GET_IT}")
    return found


def load_problems(folder: Path, split: str) -> list[Problem]:
    exported, code = folder / f"tasks_{split}.json", folder / f"tasks_{split}.py"
    if exported.exists():
        path, raw = exported, read_document(exported, list)
    elif code.exists():
        path, raw = code, _tasks_in(code)
    else:
        raise GearError(f"{folder}: looked for tasks_{split}.json or tasks_{split}.py. {GET_IT}")
    problems = []
    for number, item in enumerate(raw):
        try:
            actions = [{"name": a["name"], "arguments": a.get("kwargs", a.get("arguments"))} for a in item["actions"]]
            outputs = [str(text) for text in item.get("outputs") or []]
            problem = Problem(f"{split}_{number}", item["user_id"], item["instruction"], actions, outputs)
            if not isinstance(problem.instruction, str) or not all(isinstance(a["arguments"], dict) for a in actions):
                raise TypeError("an instruction is text, an action's kwargs an object")
        except (KeyError, TypeError, AttributeError) as error:
            raise GearError(f"{path}, task {number}: not in τ-bench's layout ({error!r}).") from None
        problems.append(problem)
    return problems


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError, RecursionError) as error:
        raise GearError(f"cannot read {path}: {error}.") from None


def _literal(path: Path, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, SyntaxError):
        raise GearError(f"{path}, line {node.lineno}: expected a plain literal; code is not run.") from None


def _tasks_in(path: Path) -> list[dict[str, Any]]:
    """`Task(user_id=…, instruction=…, actions=[Action(name=…, kwargs={…})], outputs=[…])` calls, read as data."""
    found = []
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Task":
            task: dict[str, Any] = {}
            for item in node.keywords:
                if item.arg == "actions" and isinstance(item.value, ast.List):
                    calls = [call for call in item.value.elts if isinstance(call, ast.Call)]
                    task["actions"] = [{k.arg: _literal(path, k.value) for k in call.keywords} for call in calls]
                elif item.arg:
                    task[item.arg] = _literal(path, item.value)
            found.append(task)
    return found
