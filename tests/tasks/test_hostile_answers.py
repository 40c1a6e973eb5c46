"""No answer runs code, changes how another is judged, or costs more than its time: over every verifier that evaluates."""

import json
import math
import os
import time

import pytest

pytest.importorskip("reasoning_gym")

import hostile_answers

from gear_rl.tasks import make_task
from gear_rl.tasks.reasoning_gym import last_answer

SECRET = "gear-test-secret-7f3a"
LIMIT = 3.0


@pytest.fixture(scope="module")
def task():
    os.environ["GEAR_TEST_SECRET"] = SECRET
    task = make_task("reasoning_gym", dataset=",".join(hostile_answers.EVALUATING), judges=1)
    task.judge_process.seconds = LIMIT
    yield task
    task.close()
    del os.environ["GEAR_TEST_SECRET"]


@pytest.fixture(scope="module")
def rows(task):
    return {row["category"]: row for row in task.rows("test", len(hostile_answers.EVALUATING))}


def request(row, answer):
    which = {
        "dataset": row["category"],
        "config": "{}",
        "seed": row["seed"],
        "size": row["size"],
        "index": row["index"],
    }
    return {**which, "answer": answer}


def judged(task, row, answer):
    began = time.monotonic()
    score = task.judge_process.score(**request(row, answer))
    assert time.monotonic() - began < LIMIT + 2
    return score


@pytest.fixture(scope="module")
def honest(task, rows):
    """What right and wrong answers get before the judge has seen a hostile one."""
    found = {}
    for name, row in rows.items():
        found[name] = [judged(task, row, answer) for answer in (row["answer"], "nothing", "[1, 2]", "x")]
        assert found[name][0] == 1.0 and max(found[name][1:]) < 0.1
    return found


@pytest.mark.parametrize("generator", hostile_answers.EVALUATING)
def test_code_is_not_run(task, rows, honest, generator, tmp_path):
    row, mark = rows[generator], tmp_path / "mark"
    hostile = hostile_answers.code(str(mark))
    assert len(hostile) * len(hostile_answers.EVALUATING) > 300
    restarts, died = task.judge_process.tally.restarts, task.judge_process.tally.died
    for name, answer in hostile.items():
        began = time.monotonic()
        reply = task.judge_process.ask(LIMIT, request(row, answer))
        assert reply.get("score", 0.0) <= 0.05 and time.monotonic() - began < 1.5, name
        assert not mark.exists(), name
        assert SECRET not in json.dumps(reply), name
        assert judged(task, row, row["answer"]) == 1.0 and judged(task, row, "nothing") == honest[generator][1], name
    again = [judged(task, row, answer) for answer in (row["answer"], "nothing", "[1, 2]", "x")]
    assert again == honest[generator]
    tally = task.judge_process.tally
    assert (tally.restarts, tally.died) == (restarts, died), "all were refused; none reached the sandbox's limits"


@pytest.mark.parametrize("generator", hostile_answers.EVALUATING)
def test_exhausting_answers_cost_their_limit_at_most(task, rows, honest, generator):
    row = rows[generator]
    for name, answer in hostile_answers.EXHAUSTING.items():
        assert judged(task, row, answer) <= 0.05, name
    assert judged(task, row, row["answer"]) == 1.0 and task.judge_process.tally.restarts == 0


def test_answers_that_are_slow_to_compare_are_cut_off_without_a_restart(caplog):
    task = make_task("reasoning_gym", dataset="coin_flip,propositional_logic", judges=1)
    task.judge_process.seconds = 1.0
    slow = {"coin_flip": "1e999999999", "propositional_logic": "¬" * 9000}
    for row in task.rows("test", 2):
        assert judged(task, row, slow[row["category"]]) == 0.0
        assert judged(task, row, row["answer"]) == 1.0
    tally = task.judge_process.tally
    assert tally.overran == 2 and tally.restarts == 0 and "2 overran" in str(tally)
    assert len(caplog.records) == 1, "the first is logged, the others are counted"
    task.close()


def test_honest_forms_the_verifiers_accept_are_still_accepted(task, rows):
    characters = str(list(rows["string_insertion"]["answer"]))
    assert judged(task, rows["string_insertion"], characters) == 0.1
    numbers = f"[{', '.join(rows['spiral_matrix']['answer'].split())}]"
    assert judged(task, rows["spiral_matrix"], numbers) == 0.1
    polynomial = rows["polynomial_multiplication"]
    assert judged(task, polynomial, f"0 + {polynomial['answer']} + 2 - 4/2") == 1.0
    integral = rows["simple_integration"]
    assert judged(task, integral, integral["answer"].replace("C", "7*pi + sqrt(2) + sin(1)**2")) == 1.0


def test_an_answer_is_found_in_linear_time():
    began = time.monotonic()
    assert last_answer("<answer>" * 200_000) is None
    assert last_answer("<answer>1</answer>" * 50_000 + "<answer>2</answer><answer>3") == "2"
    assert last_answer("a</answer><answer><answer>b</answer>") == "<answer>b"
    assert time.monotonic() - began < 1


def test_scores_are_finite_and_bounded(task, monkeypatch):
    for score in (math.nan, math.inf, -0.5, 1.5, "1", None, [1]):
        monkeypatch.setattr(task.judge_process, "ask", lambda *_, score=score: {"score": score})
        assert task.judge_process.score() == 0.0
