"""Values put into one line of JSON without touching the rest of it: number formats, key order and spaces stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)  # what is skipped need not become a number

Visit = Callable[[int], int]
"""Where a value begins → where it ends. May remember what lies between."""


@dataclass(frozen=True)
class Member:
    """Where `"key": value` of an object stands in the text."""

    start: int
    key_end: int
    value: int
    end: int


class Spliced:
    """A text of valid JSON, and what is to be written into it. Visit objects and lists from the outside in, call `put`, and
    read `result`. Every part of the text is parsed once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._edits: list[tuple[int, int, str]] = []

    def skip(self, at: int) -> int:
        return _DECODER.raw_decode(self.text, at)[1]

    def after_space(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def members(self, at: int, inside: dict[str, Visit]) -> tuple[dict[str, Member], int]:
        """The members of the object at `at`, and where it ends. Values of the keys in `inside` are visited."""
        found: dict[str, Member] = {}
        at = self.after_space(at + 1)
        while self.text[at] != "}":
            start = at
            key, key_end = _DECODER.raw_decode(self.text, at)
            value = self.after_space(self.after_space(key_end) + 1)
            is_list = self.text[value] == "["
            end = inside[key](value) if key in inside and is_list else self.skip(value)
            found[key] = Member(start, key_end, value, end)
            at = self._next(end)
        return found, at + 1

    def elements(self, at: int, visit: Callable[[int, int], int]) -> int:
        """`visit(number, start)` of every element of the list at `at` → where the list ends."""
        number, at = 0, self.after_space(at + 1)
        while self.text[at] != "]":
            at = self._next(visit(number, at))
            number += 1
        return at + 1

    def put(self, members: dict[str, Member], key: str, numbers: list[float], after: str) -> None:
        """`key` of an object becomes `numbers`: in its place, else behind `after`, else at the end. Written with the spaces
        that the object itself is written with."""
        known = list(members.values())
        first = known[0]
        separator = self.text[first.end : known[1].start] if len(known) > 1 else ","
        value = f"[{separator.join(map(_number, numbers))}]"
        if key in members:
            place = members[key]
            self._edits.append((place.value, place.end, value))
            return
        end = members.get(after, known[-1]).end
        colon = self.text[first.key_end : first.value]
        self._edits.append((end, end, f"{separator}{json.dumps(key)}{colon}{value}"))

    def result(self) -> str:
        pieces, at = [], 0
        for start, end, new in sorted(self._edits):
            pieces += [self.text[at:start], new]
            at = end
        return "".join([*pieces, self.text[at:]])

    def _next(self, at: int) -> int:
        at = self.after_space(at)
        return self.after_space(at + 1) if self.text[at] == "," else at


def _number(x: float) -> str:
    """Six significant digits, as in our own records; no minus before a zero."""
    return repr(float(f"{x:.6g}") + 0.0)
