"""Whether an answer is the reference answer: what can be seen at once here, the rest by math-verify in its process."""

from __future__ import annotations

from gear_rl.tasks.maths.answers import LONGEST_ANSWER, SEARCHED, plain_number, same_text
from gear_rl.tasks.workers.judging import Judge


def is_right(judge: Judge, reference: str, answer: str, boxed: bool, tolerance: float = 0.0) -> bool:
    """`boxed`: `answer` was set apart; else the end of it is searched. `tolerance`: how far a number may be off."""
    if not boxed:
        return bool(answer.strip()) and judge.score(reference=reference, answer=answer[-SEARCHED:], boxed=False) == 1.0
    if not answer or len(answer) > LONGEST_ANSWER:
        return False
    if same_text(reference, answer):
        return True
    wanted, given = plain_number(reference), plain_number(answer)
    if wanted is not None and given is not None:
        if abs(wanted - given) <= tolerance:
            return True
        if wanted == int(wanted) and given == int(given):
            return False  # two whole numbers: nothing is left to compute
    return judge.score(reference=reference, answer=answer, boxed=True) == 1.0
