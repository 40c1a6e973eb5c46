"""The judging process: what it accepts, and that no expression can hang, kill or outlive it."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("math_verify")

from gear_rl.errors import GearError
from gear_rl.tasks import make_task
from gear_rl.tasks.maths.judging import is_right
from gear_rl.tasks.workers.judging import Judge


@pytest.fixture(scope="module")
def judge():
    judge = Judge("math", 1, seconds=2.0)
    yield judge
    judge.close()


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        (r"\frac{1}{2}", "0.5", True),
        (r"\frac{1}{2}", r"\dfrac12", True),
        ("1,3,5", "5, 1, 3", True),
        (r"11\sqrt2", r"11 \sqrt{2}", True),
        ("27", "27.0", True),
        ("27", "28", False),
        ("1234", "1,234", True),
        (r"10\%", "10", True),
        ("5", "4,5", False),
        (r"\text{Navin}", "Navin", True),
        ("0.333", "0.334", False),
        ("5", "", False),
        ("5", "5" * 2000, False),
    ],
)
def test_boxed_answers(judge, reference, answer, right):
    assert is_right(judge, reference, answer, boxed=True) is right


def test_an_answer_that_is_not_set_apart_is_searched_for(judge):
    assert is_right(judge, "18", "16 - 7 is 9, so she makes 9 * 2 = $18 a day.", boxed=False)
    assert not is_right(judge, "18", "It is 18, no, 19.", boxed=False)
    assert not is_right(judge, "18", "   ", boxed=False)


def test_numbers_may_be_off_where_the_set_says_so(judge):
    assert is_right(judge, "3.1", "3.15", boxed=True, tolerance=0.1) and not is_right(judge, "3.1", "3.25", True, 0.1)


def test_plain_numbers_need_no_process():
    unused = Judge("math", 1)
    assert is_right(unused, "204", "204.0", True) and not is_right(unused, "204", "205", True)
    assert unused.tally.judged == 0


def test_an_expression_that_never_ends_is_wrong_and_costs_its_limit(judge):
    overran = judge.tally.overran
    began = time.monotonic()
    assert not is_right(judge, "4", "9^{9^{9^{9}}}", boxed=True)
    assert 2 <= time.monotonic() - began < 8 and judge.tally.overran == overran + 1
    assert is_right(judge, "4", "2+2", boxed=True), "the next answer gets a fresh process"


def test_code_is_not_run(judge, tmp_path):
    mark = tmp_path / "mark"
    for answer in (f"__import__('os').system('touch {mark}')", f"open('{mark}','w')", r"\text{import os}"):
        assert not is_right(judge, "4", answer, boxed=True)
    assert not mark.exists()


def test_a_process_that_dies_takes_nothing_with_it(judge):
    judge.score(reference="4", answer="2+2")
    os.kill(judge._all[0].process.pid, 9)
    died = judge.tally.died
    assert judge.score(reference="4", answer="2+2") == 0.0 and judge.tally.died == died + 1
    assert judge.score(reference="4", answer="2+2") == 1.0


def test_a_process_whose_parent_is_gone_ends_itself():
    lost = Judge("math", 1, seconds=2.0)
    lost.score(reference="4", answer="2+2")
    worker = lost._all[0]
    worker.process.stdin.write(
        b'{"reference": "4", "answer": "9^{9^{9^{9}}}", "within": 1.0, "token": "t"}\n'
    )
    worker.process.stdin.close()  # as when the parent is killed
    assert worker.process.wait(10) == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(worker.process.pid, 0)
    lost.close()


def test_several_threads_may_ask_and_the_end_is_the_end():
    judge = Judge("math", 2)
    with ThreadPoolExecutor(4) as threads:
        scores = list(threads.map(lambda i: judge.score(reference=str(i), answer=f"{i - 1}+1"), range(40)))
    assert scores == [1.0] * 40 and judge.tally.judged == 40
    processes = [worker.process for worker in judge._all]
    judge.close()
    judge.close()
    assert 1 <= len(processes) <= 2 and all(process.poll() is not None for process in processes)


def test_the_worker_does_not_see_the_environment(judge):
    os.environ["GEAR_TEST_SECRET"] = "x"
    try:
        fresh = Judge("math", 1)
        fresh.score(reference="4", answer="2+2")
        with open(f"/proc/{fresh._all[0].process.pid}/environ") as file:
            assert "GEAR_TEST_SECRET" not in file.read()
        fresh.close()
    finally:
        del os.environ["GEAR_TEST_SECRET"]


def test_a_missing_judge_is_said_before_anything_is_sampled(monkeypatch):
    monkeypatch.setattr("gear_rl.tasks.workers.judging.find_spec", lambda name: None)
    with pytest.raises(GearError, match=r"math-verify is not installed: pip install 'gear-rl\[math\]'"):
        make_task("gsm8k")
    with pytest.raises(GearError, match="reasoning-gym is not installed"):
        make_task("reasoning_gym", dataset="gcd")


def test_the_tally_is_readable(judge):
    assert "answers judged" in str(judge.tally) and "overran" in str(judge.tally)
