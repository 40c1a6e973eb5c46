"""Bad inputs out of good ones: bytes cut, doubled, flipped and spliced, JSON with other values in it, words that hurt."""

from __future__ import annotations

import json
import random
from typing import Any

HARSH = [
    b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", "\u2028".encode(), "٣".encode(), "ﬁ".encode(), b"\\ud800",
    b"NaN", b"-Infinity", b"1e999", b"-0", b"1_000", b"9" * 5000, b"[" * 3000, b'{"a":' * 2000, b"]" * 50, b"null", b"true",
    b'""', b"{}", b"[]", b"<tool_call>", b"</tool_call>", b"<think>", b"</think>", b"\\boxed{", b"}", b"{", b"$", b"**", b"//",
    b"{{", b"}}", b"{% for i in range(99) %}", b"{% endfor %}", b"..", b"/", b"%s", b"\r\n", b"\n", b"\t", b",", b"=", b"#",
    b'"', b"'", b"\\", b"a" * 3000, b"(" * 300, b"-" * 300, b"train.steps", b"e5", b"inf", b"2**64", b"18446744073709551616",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 1e308, float("nan"), float("inf"), 0.5, "", "x", "\ud800",
    "\x00", "9" * 300, [], {}, [None], [[]], {"": None}, {"name": 1}, "a" * 2000, 10**400,
]  # fmt: skip


def mutated(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """One to four changes of `data`; half of them keep JSON what it is."""
    choice = rng.random()
    if choice < 0.4 and (changed := _json_changed(data, rng)) is not None:
        return changed if rng.random() < 0.7 else _bytes_changed(changed, others, rng)
    for _ in range(1 if choice < 0.7 else rng.randint(2, 4)):
        data = _bytes_changed(data, others, rng)
    return data[:65536]


def _bytes_changed(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + int(2 ** rng.uniform(0, 7)))
    kind = rng.randrange(7)
    if kind == 0:
        return data[:at] + rng.choice(HARSH) + data[at:]
    if kind == 1:
        return data[:at] + rng.choice(HARSH) + data[end:]
    if kind == 2:
        return data[:at] + data[end:]
    if kind == 3:
        return data[:at] + data[at:end] * rng.randint(2, 40) + data[end:]
    if kind == 4 and at < len(data):
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 5:
        other = rng.choice(others)
        return data[:at] + other[rng.randrange(len(other) + 1) :]
    return data[:at]


def _json_changed(data: bytes, rng: random.Random) -> bytes | None:
    """One value, key or element of a JSON text (or of one of its lines) changed; None: it is none."""
    lines = data.split(b"\n")
    place = rng.randrange(len(lines)) if len(lines) < 50 and data[:1] == b"{" and b"}\n{" in data else None
    text = data if place is None else lines[place]
    if text[:1] not in b"{[" or not text:
        return None
    try:
        value = json.loads(text)
        path = _somewhere(value, rng)
        fresh = json.dumps(_with(value, path, rng)).encode()
    except (ValueError, RecursionError):
        return None
    if place is None:
        return fresh
    return b"\n".join([*lines[:place], fresh, *lines[place + 1 :]])


def _somewhere(value: Any, rng: random.Random) -> list[Any]:
    """A random path into `value`."""
    path = []
    while isinstance(value, dict | list) and value and rng.random() < 0.85:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        path.append(key)
        value = value[key]
    return path


def _with(value: Any, path: list[Any], rng: random.Random) -> Any:
    if not path:
        return rng.choice(VALUES)
    *way, last = path
    place = value
    for key in way:
        place = place[key]
    kind = rng.randrange(5)
    if kind == 0:
        del place[last]
    elif kind == 1 and isinstance(place, dict):
        place[rng.choice(("", "name", "step", "x" * 50, "\ud800", *place))] = place.pop(last)
    elif kind == 2 and isinstance(place, list):
        place.extend(place[: rng.randint(1, 30)])
    else:
        place[last] = rng.choice(VALUES)
    return value
