"""Tasks by name. A task knows its data, its world and its verdict; never credit, never an engine.

A name in `TASKS`, a JSONL file (`problems.jsonl`), an environment of verifiers (`verifiers:NAME`), a class of your own
(`package.module:Task`), or a class that an installed package registers as an entry point (docs/tasks.md):

[project.entry-points."gear_rl.tasks"]
my_task = "my_package:MyTask"
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from gear_rl import plugins
from gear_rl.errors import GearError, unknown_name
from gear_rl.options import check_options, listing
from gear_rl.tasks.base import Episode, Message, Row, SingleTurn, Task, Transcript, Verdict, choose, replay, verdicts

TASKS: dict[str, str] = {
    "workshop": "gear_rl.tasks.workshop:Workshop",
    "workshop_words": "gear_rl.tasks.workshop_words:WorkshopWords",
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
    # environments of others
    "verifiers": "gear_rl.tasks.verifiers.task:Verifiers",
}
"""Name → module and class. Text, so that naming a task does not import all the others."""
JSONL_ENDINGS = (".jsonl", ".jsonl.gz")
VERIFIERS = "verifiers:"


def make_task(name: str, **options: Any) -> Task:
    """The task called `name`, with its options checked by name, kind and range."""
    found, given = find_task(name), _given_by(name)
    for option in given.keys() & options.keys():
        raise GearError(f"task {name}: its name gives {option}; leave out {option}={options[option]!r}.")
    options = {**given, **options}
    check_options(found, options, found.name, "task")
    try:
        return found(**options)
    except TypeError as error:
        raise GearError(f"task {name}: {error}") from None


def find_task(name: str) -> type[Task]:
    """The class of the task `name`: one of ours, an installed package's, a .jsonl file's, or `package.module:Class`.
    Entry points are looked at only when it is not one of ours."""
    if name.endswith(JSONL_ENDINGS):
        from gear_rl.tasks.jsonl import Jsonl

        return Jsonl
    if name.startswith(VERIFIERS):
        name = "verifiers"
    if name in TASKS:
        module, _, attribute = TASKS[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    if ":" in name:
        return _users_task(name)
    third_party = plugins.found("task", TASKS)
    if name not in third_party:
        if Path(name).exists():
            raise GearError(
                f"task {name!r} is a {'folder' if Path(name).is_dir() else 'file'}, and no {JSONL_ENDINGS[0]} file. "
                "Write one problem a line: docs/bring_your_task.md."
            )
        own = "A task of your own: package.module:Class, or a .jsonl file."
        raise GearError(f"{unknown_name('task', name, [*TASKS, *third_party])} {own}")
    return _load(third_party[name])


def task_options(name: str) -> list[dict[str, Any]]:
    """The options of the task `name`, as `options.listing` has them, without those that its name gives."""
    given = _given_by(name)
    return [entry for entry in listing(find_task(name)) if entry["name"] not in given]


def _given_by(name: str) -> dict[str, str]:
    """What a task's name says of its options: the file, or the environment of verifiers."""
    if name.endswith(JSONL_ENDINGS):
        return {"path": name}
    return {"environment": name.removeprefix(VERIFIERS)} if name.startswith(VERIFIERS) else {}


def all_tasks() -> dict[str, type[Task]]:
    """Ours and every third-party task that is installed."""
    return {name: find_task(name) for name in TASKS} | {
        name: _load(entry) for name, entry in plugins.found("task", TASKS).items()
    }


def _load(entry: EntryPoint) -> type[Task]:
    return _complete(plugins.load("task", entry), entry.name, entry.value)


def _users_task(name: str) -> type[Task]:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute.isidentifier():
        raise GearError(f"task {name!r}: write it as package.module:Class.")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does: a task in the current folder is found
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise GearError(f"task {name!r}: importing {module_name} failed: {error}.") from None
        raise GearError(f"task {name!r}: there is no module {error.name!r} here or installed.") from None
    except (Exception, SystemExit) as error:
        raise GearError(f"task {name!r}: importing {module_name} failed: {type(error).__name__}: {error}.") from error
    if not hasattr(module, attribute):
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Task) and v is not Task]
        raise unknown_name(f"task class of {module_name}", attribute, classes)
    return _complete(getattr(module, attribute), name, attribute)


def _complete(found: Any, name: str, where: str) -> type[Task]:
    """`found`, if it is a task with all that a task must have. One without a name of its own is called `name`."""
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise GearError(f"task {name!r}: {where} is not a subclass of gear_rl.tasks.Task.")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if found.judge in (Task.judge, SingleTurn.judge) and found.verdict in (Task.verdict, SingleTurn.verdict):
        missing.append("judge")
    if missing:
        raise GearError(f"task {name!r}: {where} must define {' and '.join(missing)}; see gear_rl.tasks.base.")
    for attribute, default in (("name", name.rpartition(":")[2]), ("summary", "")):
        if not hasattr(found, attribute):
            setattr(found, attribute, default)
    return found


__all__ = [
    "TASKS",
    "Episode",
    "Message",
    "Row",
    "SingleTurn",
    "Task",
    "Transcript",
    "Verdict",
    "all_tasks",
    "choose",
    "find_task",
    "make_task",
    "replay",
    "task_options",
    "verdicts",
]
