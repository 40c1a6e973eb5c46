"""Options of training, the warm start, tasks and methods: dataclass fields, all declared, checked and described here.

    @dataclass
    class Options:
        steps: int = option(400, at_least=1)
        "Optimizer steps."

    check_options(Options, {"steps": 0}, "train")    train.steps=0: must be a whole number, at least 1.
    listing(Options)                                 [{"name": "steps", "default": 400, "range": …, "description": …}]

The type annotation says what kind of value an option takes, the string under the field says what it is for. A plain field
(`steps: int = 400`) is an option without a range.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import math
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from typing import Any

from gear_rl.errors import GearError, did_you_mean, unknown_name

_KINDS: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("True or False", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    str: ("text", (str,)),
    list: ("a list", (list, tuple)),
    dict: ("a table", (dict,)),
}
"""Annotation → its name in messages, and the types of values that fit it."""


def option(
    default: Any = MISSING,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: tuple[Any, ...] | None = None,
    note: str | None = None,
) -> Any:
    """A dataclass field with its range. Without a default it is required; None fits where the annotation says so.
    `note` follows the range in brackets: why it is so, or what else must hold."""
    limits = dict(at_least=at_least, above=above, at_most=at_most, below=below, choices=choices, note=note)
    return field(default=default, metadata=limits)


def check_options(cls: type, values: Mapping[str, Any], where: str = "", section: str | None = None) -> None:
    """Raise GearError unless `values` fit the fields of the dataclass `cls`: known names, values of the right kind and
    in range, none missing. `where`: what the options belong to ("train", a task's or a method's name). `section`: how
    `--set` names them, if not so ("task", "credit")."""
    known, dotted = _options_of(cls), f"{where}." if where else ""
    for name, value in values.items():
        if not known:
            raise GearError(f"{where} takes no options, got {name!r}.")
        if name not in known:
            raise unknown_name(f"{where} option".strip(), name, known)
        if not _fits(value, known[name].metadata, _kinds(cls, known[name])):
            choices = known[name].metadata.get("choices")
            guess = did_you_mean(value, choices) if choices and isinstance(value, str) else ""
            raise GearError(f"{dotted}{name}={value!r}: must be {describe(cls, known[name])}.{guess}")
    for name, declared in known.items():
        if _is_required(declared) and name not in values:
            how = f"--set {section or where}.{name}=VALUE"
            raise GearError(f"{where} needs the option {name}: {how} ({describe(cls, declared)}).")


def check_instance(made: Any, where: str = "", section: str | None = None) -> None:
    """`check_options` of a dataclass instance's own values: for `__post_init__`, so that every instance is checked."""
    check_options(type(made), {name: getattr(made, name) for name in _options_of(type(made))}, where, section)


def describe(cls: type, declared: Field[Any]) -> str:
    """The values an option of `cls` takes, as messages and lists print it: "a number, above 0 and at most 1"."""
    return _describe(declared.metadata, _kinds(cls, declared))


def listing(cls: type, prefix: str = "") -> list[dict[str, Any]]:
    """Every option of `cls` as plain data: name (with `prefix`), default, whether it is required, range, description."""
    described = descriptions(cls)
    return [
        {
            "name": prefix + name,
            "default": _default(declared),
            "required": _is_required(declared),
            "range": describe(cls, declared),
            "description": described.get(name, ""),
        }
        for name, declared in _options_of(cls).items()
    ]


@cache
def descriptions(cls: type) -> Mapping[str, str]:
    """The string under each annotated attribute, which Python itself discards. Empty where there is no source to read."""
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        except (OSError, TypeError, SyntaxError, IndexError):
            continue
        lines = body.body if isinstance(body, ast.ClassDef) else []
        for line, below in itertools.pairwise(lines):
            if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
                continue
            if (
                isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                found[line.target.id] = " ".join(below.value.value.split())
    return types.MappingProxyType(found)


LARGEST_SEED = 2**32 - 1
"""numpy takes no larger one."""


def argument(kind: type, **limits: Any) -> Callable[[str], Any]:
    """`type=` of a command-line argument with a range: `add_argument("--rows", type=argument(int, at_least=1))`."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if not _fits(value, limits, (kind,)):
            raise argparse.ArgumentTypeError(f"{text!r} must be {_describe(limits, (kind,))}")
        return value

    return read


def _options_of(cls: type) -> dict[str, Field[Any]]:
    return {declared.name: declared for declared in fields(cls) if declared.init} if is_dataclass(cls) else {}


def _is_required(declared: Field[Any]) -> bool:
    return declared.default is MISSING and declared.default_factory is MISSING


def _default(declared: Field[Any]) -> Any:
    if declared.default_factory is not MISSING:
        return declared.default_factory()
    return None if declared.default is MISSING else declared.default


@cache
def _kinds(cls: type, declared: Field[Any]) -> tuple[Any, ...]:
    """The types that the annotation allows, None among them where it may be none. Empty: one that cannot be read here (a
    class of the task's own, say), which is left to `cls` itself to check."""
    hint: Any = declared.type
    if isinstance(hint, str):  # alone, so that another field's unreadable annotation does not matter
        owner = next(c for c in cls.__mro__ if declared.name in inspect.get_annotations(c))
        alone = type(owner.__name__, (), {"__annotations__": {"it": hint}, "__module__": owner.__module__})
        try:
            hint = typing.get_type_hints(alone)["it"]
        except Exception:
            return ()
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    kinds = tuple(None if part is type(None) else typing.get_origin(part) or part for part in parts)
    return kinds if all(kind is None or kind in _KINDS for kind in kinds) else ()


def _fits(value: Any, limits: Mapping[str, Any], kinds: tuple[Any, ...]) -> bool:
    if not kinds:
        return True
    if value is None:
        return None in kinds
    if isinstance(value, bool) and bool not in kinds:  # a bool is an int to Python, not to us
        return False
    if not any(isinstance(value, _KINDS[kind][1]) for kind in kinds if kind is not None):
        return False
    if limits.get("choices") and value not in limits["choices"]:
        return False
    if isinstance(value, str | bool | list | tuple | dict):
        return True
    return (
        (abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value))
        and (limits.get("at_least") is None or value >= limits["at_least"])
        and (limits.get("above") is None or value > limits["above"])
        and (limits.get("at_most") is None or value <= limits["at_most"])
        and (limits.get("below") is None or value < limits["below"])
    )


def _describe(limits: Mapping[str, Any], kinds: tuple[Any, ...]) -> str:
    if limits.get("choices"):
        text = "one of " + ", ".join(map(repr, limits["choices"]))
    else:
        text = " or ".join(_KINDS[kind][0] for kind in kinds if kind is not None) or "any value"
    words = {"above": "above", "at_least": "at least", "at_most": "at most", "below": "below"}
    given = {word: limits[key] for key, word in words.items() if limits.get(key) is not None}
    bounds = [f"{word} {value}" if isinstance(value, int) else f"{word} {value:g}" for word, value in given.items()]
    text = ", ".join([text, *filter(None, [" and ".join(bounds)])])
    text += ", or None" if None in kinds else ""
    return f"{text} ({limits['note']})" if limits.get("note") else text
