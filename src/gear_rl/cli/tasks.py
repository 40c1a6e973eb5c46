"""`gear tasks`: what tasks there are; and one of them with its splits, hint forms and options."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from gear_rl.cli.arguments import option_lines, show

if TYPE_CHECKING:
    from gear_rl.tasks import Task

OWN = """\
A task of your own: a file with a problem per line (--task problems.jsonl), a class
(--task package.module:Class), or a class that a package registers under the entry-point
group "gear_rl.tasks". `gear tasks NAME` shows a task in full, with its options."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="show this task with its options; also FILE.jsonl, package.module:Class"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: a list of objects, or one for NAME")


def run(args: argparse.Namespace) -> int:
    from gear_rl.tasks import all_tasks, find_task

    chosen = {args.name: find_task(args.name)} if args.name else all_tasks() | {"FILE.jsonl": find_task("FILE.jsonl")}
    return show([describe(name, found) for name, found in chosen.items()], args, in_full, table)


def describe(name: str, task: type[Task]) -> dict[str, Any]:
    """Everything a task declares, as plain data."""
    from gear_rl.tasks import task_options

    return {
        "name": name,
        "summary": task.summary,
        "splits": list(task.splits),
        "hint_forms": list(task.hint_forms),
        "options": task_options(name),
    }


def table(tasks: list[dict[str, Any]], width: int) -> str:
    """All tasks, one or two lines each, within `width` columns."""
    longest = max(len(task["name"]) for task in tasks) + 2
    lines = []
    for task in tasks:
        text = f"{task['summary']} [{', '.join(task['splits'])}]"
        lines.append(textwrap.fill(f"{task['name']:{longest}}{text}", width, subsequent_indent=" " * longest))
    return "\n".join([*lines, "", textwrap.fill(OWN, width)])


def in_full(task: dict[str, Any], width: int) -> str:
    """One task with its options."""
    hints = ", ".join(task["hint_forms"]) or "one form"
    lines = [textwrap.fill(f"{task['name']}: {task['summary']}", width), ""]
    lines += [f"{'splits':10}{', '.join(task['splits'])}", f"{'hints':10}{hints}", ""]
    lines += ["options (--set task.NAME=VALUE):" if task["options"] else "no options"]
    return "\n".join([*lines, *option_lines(task["options"], width)])
