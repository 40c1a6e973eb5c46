"""The exception that a user is meant to read, and text that is safe to print."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GearError(ValueError):
    """Bad input: what is wrong, where, and what to do. The command line prints it and exits with code 2, no traceback."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> GearError:
    """The error for a name that does not exist, with the nearest names that do."""
    known = sorted(known)
    return GearError(f"unknown {kind} {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}.")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Such as " Did you mean 'gear'?", or nothing where no known name is near."""
    spelled = {each.lower(): each for each in known if isinstance(each, str)}
    close = [spelled[each] for each in difflib.get_close_matches(name.lower(), spelled, n=3, cutoff=0.5)]
    return f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def printable(text: str, instead: str = "?") -> str:
    """`text` without control characters and escape sequences: data and model output must not steer a terminal."""
    return "".join(c if c.isprintable() else instead for c in text)


def shown(value: object) -> str:
    """The beginning of `repr(value)`: values from somebody else's code may be large, and may raise even there."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return printable(text)[:60]


def one_line(error: BaseException) -> str:
    """An exception of somebody else's code: its type and the beginning of what it says."""
    said = printable(" ".join(str(error).split()))[:200]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
