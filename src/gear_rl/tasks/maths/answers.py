"""The final answer in a mathematical text, and the comparisons that need no computer algebra."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

LONGEST_ANSWER = 1000
"""Characters. No reference answer is longer than 300; what is longer is not an answer."""
SEARCHED = 1000
"""How much of the end of a text is searched for an answer that was not set apart."""
_BOX_SIGNS = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\(?:boxed|fbox)\s*(?P<bare>[^\s{}$\\]+)|\\.|[{}]", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3}(?![\w.]))?")
_POWER_OF_TEN = re.compile(r"(?<=\d)\s*\\(?:cdot|times)\s*10\s*\^\s*\{?([-+]?\d{1,3})\}?$")
_NO_MATTER = re.compile(r"\\left|\\right|\\[,;:! ]|\\(?:displaystyle|limits)|[\s$]+")


def after_thought(text: str) -> str:
    """What was said once thinking was over; nothing, if it never was."""
    if "</think>" in text:
        return text.rpartition("</think>")[2]
    return "" if "<think>" in text else text


def last_boxed(text: str) -> str | None:
    r"""What stands in the last \boxed{…} or \fbox{…} whose brackets close; None: there is none.

    >>> last_boxed(r"so \boxed{3}, or rather \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    found, last, opened = (
        None,
        -1,
        list[tuple[int, bool]](),
    )  # one pass: a model may repeat "\\boxed{" ten thousand times
    for sign in _BOX_SIGNS.finditer(text):
        if sign["box"]:
            opened.append((sign.end(), True))
        elif sign["bare"]:  # \boxed 5
            found, last = sign["bare"].rstrip(".,;:"), sign.start()
        elif sign[0] == "{":
            opened.append((sign.end(), False))
        elif sign[0] == "}" and opened:
            start, is_box = opened.pop()
            if is_box and start > last:
                found, last = text[start : sign.start()].strip(), start
    return found


def plain_number(text: str) -> Decimal | None:
    """`-1,234.50` → −1234.50, `1e4` → 10000; None for anything that is not just a number."""
    text = _POWER_OF_TEN.sub(r"e\1", text.strip().strip("$").replace("\\$", "").replace("{,}", ",")).strip()
    if len(text) > 40 or not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text.replace(",", ""))
    except InvalidOperation:
        return None


def last_number(text: str) -> Decimal | None:
    """The last number in a text; None: there is none."""
    found = _NUMBER.findall(text[-SEARCHED:])
    return plain_number(found[-1]) if found else None


def same_text(reference: str, answer: str) -> bool:
    """The same characters, but for spacing and the size of brackets and fractions."""
    return _bare(reference) == _bare(answer)


def _bare(text: str) -> str:
    return _NO_MATTER.sub("", text).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").rstrip(".")


def fingerprint(problem: str) -> str:
    """Letters and digits of a problem's text: equal for two printings of one problem, whatever their LaTeX looks like."""
    return re.sub(r"[^a-z0-9]", "", problem.lower())
