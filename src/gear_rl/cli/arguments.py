"""Arguments that several commands share, so that they mean the same in each."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gear_rl.cli.setting_names import full_names
from gear_rl.cli.settings import merge, parse_settings
from gear_rl.errors import GearError
from gear_rl.options import argument

COUNT, POSITIVE = argument(int, at_least=1), argument(float, above=0)
TASK = "a task (`gear tasks` lists them), a .jsonl file or package.module:Class"


def add_task(parser: argparse._ActionsContainer, default: str | None = "workshop", **more: Any) -> None:
    parser.add_argument("--task", help=TASK + (f"; default: {default}" if default else ""), **more)
    parser.add_argument("--data", metavar="DIR", help="folder with the task's data: short for --set task.data=DIR")


def add_set(parser: argparse.ArgumentParser, takes: str) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help=f"a setting, repeatable: {takes}"
    )


def check_out(out: Path, force: bool) -> None:
    """Raises unless a file can be written to `out`, before the work for it is done. `force`: one may be replaced."""
    if out.exists() and not out.is_file():  # never put a file in the place of a folder or a device
        raise GearError(f"{out} is not a file; give the name of a file with --out.")
    if out.exists() and not force:
        raise GearError(f"{out} exists. Give another name with --out, or --force to replace it.")
    if not out.parent.is_dir():
        raise GearError(f"there is no folder {out.parent} to write to.")


def read_settings(
    args: argparse.Namespace,
    sections: Sequence[str],
    *,
    keys: Sequence[str] = (),
    short: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What `--set` and `--data` say, by section. `config`: what a file says besides, which may name the task and the method."""

    def meant(name: str, given: Mapping[str, Any]) -> list[str]:
        return full_names(name, sections, args, merge(config or {}, given))

    settings = parse_settings(f"gear {args.command}", args.set, sections, keys=keys, short=short, full_names=meant)
    if getattr(args, "data", None) is not None:
        named = settings.get("task", {})
        settings["task"] = {**({"name": named} if isinstance(named, str) else named), "data": args.data}
    return settings


def show(
    described: list[dict[str, Any]],
    args: argparse.Namespace,
    in_full: Callable[[dict[str, Any], int], str],
    table: Callable[[list[dict[str, Any]], int], str],
) -> int:
    """Print a listing, or with `args.name` its only entry in full: for people, or with `args.json` as JSON."""
    width = max(60, min(110, shutil.get_terminal_size().columns))
    if args.json:
        print(json.dumps(described[0] if args.name else described, indent=2))
    else:
        print(in_full(described[0], width) if args.name else table(described, width))
    return 0


def option_lines(options: list[dict[str, Any]], width: int) -> list[str]:
    """`gear_rl.options.listing` for people: name, default and range, and below them the description. An entry with a `value`
    that is not the default shows both."""
    lines = []
    for entry in options:
        default = "(required)" if entry["required"] else f"= {entry['default']}"
        if "value" in entry and (entry["required"] or entry["value"] != entry["default"]):
            usual = "required" if entry["required"] else f"default {entry['default']}"
            default = f"= {entry['value']} ({usual})"
        head = f"{entry['name']} {default}    {entry['range']}"
        lines.append(textwrap.fill(head, width, initial_indent="  ", subsequent_indent=" " * 6))
        if entry["description"]:
            indent = " " * 6
            lines.append(textwrap.fill(entry["description"], width, initial_indent=indent, subsequent_indent=indent))
    return lines
