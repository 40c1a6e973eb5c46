"""Tasks by name: one explicit dict. A task knows its data, its world and its verdict; never credit, never an engine.

A name in `TASKS`, a JSONL file (`problems.jsonl`), or a class of your own (`package.module:Task`): docs/tasks.md.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from gear_rl.errors import GearError, unknown_name
from gear_rl.tasks.base import Episode, Message, Row, SingleTurn, Task, Transcript, Verdict, choose, replay, verdicts

TASKS: dict[str, str] = {
    "workshop": "gear_rl.tasks.workshop:Workshop",
    # mathematics
    "gsm8k": "gear_rl.tasks.maths.task:Gsm8k",
    "math": "gear_rl.tasks.maths.task:Math",
    "dapo": "gear_rl.tasks.maths.task:Dapo",
    "aime24": "gear_rl.tasks.maths.task:Aime24",
    "aime25": "gear_rl.tasks.maths.task:Aime25",
    "amc23": "gear_rl.tasks.maths.task:Amc23",
    "olympiadbench": "gear_rl.tasks.maths.task:OlympiadBench",
    "reasoning_gym": "gear_rl.tasks.reasoning_gym:ReasoningGym",
    # tool use
    "toolrl": "gear_rl.tasks.tools.toolrl:ToolRL",
    "bfcl": "gear_rl.tasks.tools.bfcl:Bfcl",
    "tau_retail": "gear_rl.tasks.tools.tau:TauRetail",
    "tau_airline": "gear_rl.tasks.tools.tau:TauAirline",
    "tau2_retail": "gear_rl.tasks.tools.tau:Tau2Retail",
    "tau2_airline": "gear_rl.tasks.tools.tau:Tau2Airline",
    "tau2_telecom": "gear_rl.tasks.tools.tau:Tau2Telecom",
    "acebench": "gear_rl.tasks.tools.acebench:AceBench",
    "toolsandbox": "gear_rl.tasks.tools.toolsandbox:ToolSandbox",
}
"""Name → module and class. Text, so that naming a task does not import all the others."""
JSONL_ENDINGS = (".jsonl", ".jsonl.gz")


def make_task(name: str, **options: Any) -> Task:
    """The task called `name`, with its options checked by name and type."""
    if name.endswith(JSONL_ENDINGS):
        from gear_rl.tasks.jsonl import Jsonl

        if "path" in options:
            raise GearError(f"task {name}: the file is the task's name; leave out path={options['path']!r}.")
        found: type[Task] = Jsonl
        options = {"path": name, **options}
    else:
        found = find_task(name)
    _check_options(name, found, options)
    try:
        return found(**options)
    except TypeError as error:
        raise GearError(f"task {name}: {error}") from None


def find_task(name: str) -> type[Task]:
    """The class of one of ours, or of the user's `package.module:Class`."""
    if name in TASKS:
        module, _, attribute = TASKS[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    if ":" not in name:
        own = "A task of your own: package.module:Class, or a .jsonl file."
        raise GearError(f"{unknown_name('task', name, TASKS)} {own}")
    return _users_task(name)


def _users_task(name: str) -> type[Task]:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute.isidentifier():
        raise GearError(f"task {name!r}: write it as package.module:Class.")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it: a task beside the user's own work is found
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise GearError(f"task {name!r}: importing {module_name} failed: {error}.") from None
        raise GearError(f"task {name!r}: there is no module {error.name!r} here or installed.") from None
    except Exception as error:
        raise GearError(f"task {name!r}: importing {module_name} failed: {type(error).__name__}: {error}.") from error
    if not hasattr(module, attribute):
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Task) and v is not Task]
        raise unknown_name(f"task class of {module_name}", attribute, classes)
    found = getattr(module, attribute)
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise GearError(f"task {name!r}: {attribute} is no subclass of gear_rl.tasks.Task.")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if found.judge in (Task.judge, SingleTurn.judge) and found.verdict in (Task.verdict, SingleTurn.verdict):
        missing.append("judge")
    if missing:
        raise GearError(f"task {name!r}: {attribute} must write {' and '.join(missing)}; see gear_rl.tasks.base.")
    for text in ("name", "summary"):
        if not hasattr(found, text):
            setattr(found, text, attribute if text == "name" else "")
    return found


_PLAIN: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "str": str,
    "bool": bool,
    "list": list,
    "dict": dict,
}


def _check_options(name: str, task: type[Task], options: dict[str, Any]) -> None:
    """By the task's dataclass fields. Field types this cannot read are left to the task."""
    known: dict[str, Any] = {f.name: f for f in fields(task) if f.init} if is_dataclass(task) else {}
    for option, value in options.items():
        if option not in known:
            raise unknown_name(f"option of task {name}", option, known)
        wanted = [part.split("[")[0].strip() for part in str(known[option].type).split("|")]
        if (value is None and "None" in wanted) or not all(part in (*_PLAIN, "None") for part in wanted):
            continue
        fits = [part for part in wanted if part != "None" and isinstance(value, _PLAIN[part])]
        if not fits or (isinstance(value, bool) and "bool" not in wanted):
            raise GearError(f"task {name}: {option}={value!r} must be of type {' or '.join(wanted)}.")
    lacking = [f.name for f in known.values() if f.default is MISSING and f.default_factory is MISSING]
    for option in lacking:
        if option not in options:
            raise GearError(f"task {name} needs the option {option}: --set task.{option}=VALUE.")


__all__ = [
    "TASKS",
    "Episode",
    "Message",
    "Row",
    "SingleTurn",
    "Task",
    "Transcript",
    "Verdict",
    "choose",
    "find_task",
    "make_task",
    "replay",
    "verdicts",
]
