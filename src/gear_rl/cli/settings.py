"""Settings from the command line (`--set a.b=value`) and from a file (`--config run.toml`), as one nested dict.

Values get their types here, and `--set` its meaning: SECTION.NAME=VALUE, the same in every command. Which names a section
has, and which values they take, is `gear_rl.options`'s part.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError, did_you_mean
from gear_rl.files import parse_json

LARGEST_CONFIG = 2**20
"""Bytes. Settings fit in far less; more is another kind of file."""
_KEY = re.compile(r"[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*")
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_INTEGER = re.compile(r"[+-]?\d(_?\d)*")
_NUMBER = re.compile(r"[+-]?(\d(_?\d)*\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def parse_assignments(pairs: Iterable[str]) -> dict[str, Any]:
    """`["alpha=4", "task.steps=8"]` → `{"alpha": 4, "task": {"steps": 8}}`. Of one key given twice, the last counts."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip()
        if not equals or not _KEY.fullmatch(key):
            example = f"{key}=4" if _KEY.fullmatch(key) else "train.steps=8"
            raise GearError(f"--set {pair!r}: write it as key=value, such as {example}.")
        *path, last = key.split(".")
        place = settings
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise GearError(f"--set {pair!r}: {part!r} has a value already; it cannot have settings inside it.")
        if isinstance(place.get(last), dict):
            raise GearError(f"--set {pair!r}: settings inside {last!r} are given already; it cannot be a value.")
        place[last] = parse_value(text)
    return settings


FullNames = Callable[[str, Mapping[str, Any]], Sequence[str]]
"""A name without its section, and all settings given → what it may stand for, such as train.steps."""


def parse_settings(
    command: str,
    pairs: Iterable[str],
    sections: Sequence[str],
    *,
    keys: Sequence[str] = (),
    short: str | None = None,
    full_names: FullNames = lambda name, given: (),
) -> dict[str, Any]:
    """The `--set` pairs of a command that takes SECTION.NAME=VALUE of these `sections`, and KEY=VALUE of these `keys`.
    NAME=VALUE of any other name is short for `short`.NAME=VALUE, where that is a section; without `short` it is an error,
    and `full_names` is asked what was meant."""
    settings = parse_assignments(pairs)
    for key, value in list(settings.items()):
        if key in keys or (key in sections and isinstance(value, dict)):
            continue
        if key in sections:
            raise GearError(f"--set {key}={value!r}: write {key}.NAME=VALUE.")
        if short is not None and not isinstance(value, dict):
            settings.setdefault(short, {}).setdefault(key, settings.pop(key))
            continue
        meant = [] if isinstance(value, dict) else full_names(key, settings)
        guess = f" Did you mean {' or '.join(meant)}?" if meant else did_you_mean(key, [*sections, *keys])
        *most, last = (f"{section}.NAME" for section in sections)
        takes = f"{', '.join(most)} and {last}" if most else last
        raise GearError(f"--set {key}: unknown.{guess} {command} takes {takes}.")
    return settings


def options_by_method(given: Mapping[str, Any], methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The section `credit` → options of each of `methods`. credit.NAME is an option of the only method, credit.METHOD.NAME
    one of METHOD's."""
    found: dict[str, dict[str, Any]] = {name: {} for name in methods}
    for key, value in given.items():
        if not isinstance(value, dict):
            if len(methods) != 1:
                raise GearError(
                    f"--set credit.{key}: {len(methods)} methods are named; say whose: credit.METHOD.{key}."
                )
            found[methods[0]].setdefault(key, value)
        elif key in found:
            found[key] |= value
        else:
            raise GearError(f"--set credit.{key}: {key} is not among the methods named ({', '.join(methods)}).")
    return found


def parse_value(text: str) -> Any:
    """Numbers, true/false, null, JSON strings and lists by what they look like; anything else is a string as it stands.

    >>> [parse_value(t) for t in ("3", "1e-4", "true", "null", "yesno", '"3"')]
    [3, 0.0001, True, None, 'yesno', '3']
    """
    text = text.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _NUMBER.fullmatch(text):
            return float(text)
        if text[:1] in ('"', "["):
            return parse_json(text, "as JSON", strict=True)
    except ValueError as error:
        raise GearError(f"the value {text[:60]!r} looks like a number, string or list, but is none: {error}.") from None
    return text


def load_config(path: str | Path) -> dict[str, Any]:
    """The settings in a .toml or .json file."""
    path = Path(path)
    if path.suffix.lower() not in (".toml", ".json"):
        raise GearError(f"config {path}: the name must end in .toml or .json, so that it is clear how to read it.")
    if not path.is_file():
        raise GearError(f"there is no config file {path}.")
    if path.stat().st_size > LARGEST_CONFIG:
        raise GearError(f"config {path} has more than {LARGEST_CONFIG} bytes: this is no file of settings.")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise GearError(f"config {path}, line {line}: not UTF-8 text.") from None
    if path.suffix.lower() == ".json":
        settings = parse_json(text, f"config {path}", strict=True)
    else:
        try:
            settings = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # the message has line and column in it
            raise GearError(f"config {path}: {error or 'nested too deeply'}.") from None
    if not isinstance(settings, dict):
        raise GearError(f"config {path}: the outermost thing must be an object of keys and values.")
    return settings


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, and where both have a value the one of `over`; tables are merged, everything else is replaced."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
