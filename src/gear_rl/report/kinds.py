"""What kind of token it is: for the question whether credit goes to thought, to calls, to numbers or to marks.

The kinds are read off the text alone, so they work for any tokenizer, and are only as good as that.
"""

from __future__ import annotations

import re
from functools import lru_cache

KINDS = ("thinking", "tool call", "mark", "number", "word", "punctuation", "space")
"""In the order the page lists them. The first two are spans between tags; the others are kinds of a single token."""

_SPANS = re.compile(r"<(think|thinking|tool_call|function_call)>.*?(?:</\1>|\Z)", re.DOTALL)
_MARK = re.compile(r"\s*(<[^<>\s]{1,80}>|\[/?[A-Z_]{2,40}\])\s*")


@lru_cache(maxsize=100_000)
def _single(text: str) -> int:
    if _MARK.fullmatch(text):
        return KINDS.index("mark")
    if not text.strip():
        return KINDS.index("space")
    if any(c.isdigit() for c in text):
        return KINDS.index("number")
    if any(c.isalpha() for c in text):
        return KINDS.index("word")
    return KINDS.index("punctuation")


def token_kinds(texts: list[str], action_mask: list[int]) -> list[int]:
    """Index into KINDS per token; masked tokens count for nothing and get the kind of their text."""
    kinds = [_single(text[:200]) for text in texts]
    start = 0
    while start < len(texts):
        end = start
        while end < len(texts) and action_mask[end] == action_mask[start]:
            end += 1
        if action_mask[start]:
            _mark_spans(texts, kinds, start, end)
        start = end
    return kinds


def _mark_spans(texts: list[str], kinds: list[int], start: int, end: int) -> None:
    """Tags may be cut into several tokens, so they are looked for in the joined text of the turn."""
    joined = "".join(texts[start:end])
    if "<think" not in joined and "_call>" not in joined:
        return
    spans = iter([(m.start(), m.end(), m[1]) for m in _SPANS.finditer(joined)])
    span = next(spans, None)
    at = 0
    for i in range(start, end):
        after = at + len(texts[i])
        while span and span[1] <= at:
            span = next(spans, None)
        if span and at < span[1] and after > span[0]:
            kinds[i] = KINDS.index("thinking" if span[2].startswith("think") else "tool call")
        at = after
