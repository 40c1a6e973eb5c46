"""The judge's question, and a reader of its answer that takes a turn's number and nothing else."""

from __future__ import annotations

import pytest

from gear_rl.chat.turn_judge import LONGEST_ANSWER, MOST_CHARACTERS, Told, named_turn, question


@pytest.mark.parametrize("answer", ["2", " 2\n", "Turn 2", "turn 2.", "#2", "<think>1, or 3?</think>\n2", "0002"])
def test_a_number_is_read(answer):
    assert named_turn(answer, 3) == 1


@pytest.mark.parametrize(
    "answer",
    ["", "0", "4", "-1", "2.5", "2 or 3", "The 2nd turn", "two", "²", "٢", "99999999", "2; import os", "<think>2</think>",
     "<think>2", "1\n2", "2" + " " * LONGEST_ANSWER],
)  # fmt: skip
def test_anything_else_is_no_verdict(answer):
    assert named_turn(answer, 3) is None


def test_the_question_shows_task_turns_and_how_it_ended_and_is_bounded():
    long = "x" * (MOST_CHARACTERS + 1)
    turns = [Told("look it up", "found {nothing}"), Told(long), Told("done \ud800", " ")]
    lost, won = (question([{"role": "user", "content": "mend it"}], turns, won)[0]["content"] for won in (False, True))
    assert "mend it" in lost and "Turn 1:\nlook it up\nReply:\nfound {nothing}" in lost and "Turn 3:\ndone \ufffd" in lost
    assert "from 1 to 3" in lost and "worse" in lost and "went wrong first" in lost
    assert "better" in won and "did most" in won and "went wrong" not in won
    assert long not in lost and lost.count("Reply:") == 1
    assert "mend it" in question("mend it", turns, won=True)[0]["content"]
