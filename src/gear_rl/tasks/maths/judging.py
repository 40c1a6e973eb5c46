"""Whether an answer is the reference answer: what the text decides (`forms`), the rest by math-verify in its process."""

from __future__ import annotations

from gear_rl.tasks.maths import forms
from gear_rl.tasks.maths.answers import LONGEST_ANSWER, SEARCHED, plain_number, same_text
from gear_rl.tasks.workers.judging import Judge

_ROUNDING = 5e-7


def is_right(judge: Judge, reference: str, answer: str, boxed: bool, tolerance: float = 0.0) -> bool:
    """`boxed`: `answer` was set apart; else the end of it is searched. `tolerance`: how far a number may be off."""
    if not boxed:
        answer = judge.find(answer[-SEARCHED:]) if answer.strip() else ""
    if not answer or len(answer) > LONGEST_ANSWER:
        return False
    if same_text(reference, answer):
        return True
    reference, answer = forms.normalised(reference), forms.normalised(answer)
    if forms.contradict(reference, answer):
        return False
    reference, answer = forms.without_units(reference), forms.without_units(answer)
    value = _value(judge, answer, keep_name="=" in reference)
    return value is not None and _equal(judge, reference, value, tolerance)


def _value(judge: Judge, answer: str, keep_name: bool) -> str | None:
    r"""What an answer with equations says: `x = 2+3 = 5` → `5`. None: a chain such as `6 = 5` that does not hold.

    `keep_name`: `x = 5` stays an equation, because the reference is one.
    """
    if "=" not in answer and r"\approx" not in answer:
        return answer
    items = []
    for item in forms.split(forms.without_thousands(answer), ","):
        exact, *rounded = item.split(r"\approx")
        item = exact if rounded and exact.strip() and not forms.has_unknown(exact) else item.replace(r"\approx", "=")
        first, *sides = (side for side in forms.split(item, "=") if side)
        if not sides:
            items.append(first)
            continue
        name = forms.has_unknown(first)
        checked = [side for side in sides[:-1] if not forms.is_name(side)] + ([] if name else [first])
        if not all(_equal(judge, sides[-1], side) for side in checked):
            return None
        items.append(f"{first}={sides[-1]}" if name and keep_name else sides[-1])
    value = ", ".join(items)
    return None if not keep_name and forms.false_inside(value) else value


def _equal(judge: Judge, reference: str, answer: str, tolerance: float = 0.0) -> bool:
    if same_text(reference, answer):
        return True
    words, said = forms.plain_words(reference), forms.plain_words(answer)
    if words is not None or said is not None:
        return words == said
    digits, given_digits = forms.based(reference), forms.based(answer)
    if digits and given_digits and {digits[1], given_digits[1]} != {"10"}:
        return digits == given_digits
    if (digits and digits[1] != "10") or (given_digits and given_digits[1] != "10"):
        return False
    wanted, given = plain_number(reference), plain_number(answer)
    if wanted is not None and given is not None:
        gap = float(abs(wanted - given))
        if wanted == int(wanted) and given == int(given):
            return gap <= tolerance
        return gap <= max(tolerance, _ROUNDING * min(1.0, float(abs(wanted))))
    return judge.score(reference=reference, answer=answer) == 1.0
