"""The registry, users' own tasks, and what the interface promises."""

import json
import sys
import textwrap
from pathlib import Path

import pytest
from entry_points import forbid, register

from gear_rl.errors import GearError
from gear_rl.tasks import (
    TASKS,
    SingleTurn,
    Task,
    Transcript,
    Verdict,
    all_tasks,
    choose,
    find_task,
    make_task,
    replay,
    verdicts,
)
from gear_rl.tasks.base import check_rows
from gear_rl.tasks.workshop.task import Workshop
from gear_rl.tasks.workshop.world import Order


def test_every_name_leads_to_its_task():
    for name in TASKS:
        task = find_task(name)
        assert issubclass(task, Task) and task.name == name and task.summary and task.splits


def test_what_a_task_may_offer_has_a_default():
    plain = Counting()
    assert plain.answer_prefix == "" and plain.as_hint("done") is None and plain.judge_process is None
    assert make_task("workshop").answer_prefix == "answer" and make_task("workshop").as_hint("") == ""


def test_naming_a_task_imports_no_other():
    import subprocess

    code = "import sys; from gear_rl.tasks import find_task; find_task('gsm8k'); print([m for m in sys.modules if 'bfcl' in m])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("gms8k", {}, "Did you mean 'gsm8k'"),
        ("workshop", {"stepz": 4}, "unknown workshop option 'stepz'. Did you mean 'steps'"),
        ("workshop", {"steps": "four"}, "workshop.steps='four': must be one of 4, 6, 8, 12"),
        ("workshop", {"steps": True}, "workshop.steps=True: must be one of"),
        ("gsm8k", {"data": 3}, "gsm8k.data=3: must be text, or None"),
        ("reasoning_gym", {}, "needs the option dataset: --set task.dataset=VALUE"),
        ("gone.module:Task", {}, "no module 'gone' here or installed"),
        ("json:Task", {}, "unknown task class of json 'Task'"),
        ("json:JSONDecoder", {}, "not a subclass of gear_rl.tasks.Task"),
        (":Task", {}, "write it as package.module:Class"),
        ("gone.jsonl", {}, "there is no file gone.jsonl"),
    ],
)
def test_mistakes_are_explained(name, options, says):
    with pytest.raises(GearError) as caught:
        make_task(name, **options)
    assert says in str(caught.value)


@pytest.fixture
def users(tmp_path, monkeypatch):
    """A module of the user's, in the folder gear is run in."""
    monkeypatch.chdir(tmp_path)

    def write(name, code):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
        return name

    return write


def test_a_task_in_twenty_lines(users):
    users("mine", """
        from dataclasses import dataclass
        from gear_rl.tasks import SingleTurn, Verdict, choose

        @dataclass
        class Doubling(SingleTurn):
            most: int = 5

            def rows(self, split, count, seed=0):
                ask = lambda n: [{"role": "user", "content": f"Twice {n}?"}]
                rows = [{"prompt": ask(n), "answer": str(2 * n), "hint": str(2 * n), "id": str(n)} for n in range(self.most)]
                return choose(rows, split, count, seed)

            def judge(self, row, completion):
                right = completion.strip() == row["answer"]
                return Verdict(float(right), right)

            def reference(self, row):
                return row["answer"]
        """)  # fmt: skip
    task = make_task("mine:Doubling", most=7)
    rows = task.rows("test", None)
    assert len(rows) == 7 and task.name == "Doubling" and task.max_turns == 1
    assert all(replay(task, row, task.reference(row)).success for row in rows)
    assert replay(task, rows[0], ["0"]).success and not replay(task, rows[0], task.empty(rows[0])).success


def test_the_examples_are_sound(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    for name in ("Doubling", "Guess"):
        task = make_task(f"examples.custom_task:{name}")
        for row in (row for split in task.splits for row in task.rows(split, None)):
            assert replay(task, row, task.reference(row)).success and not replay(task, row, task.empty(row)).success


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("class T(Task):\n    pass", "T must define episode and rows and judge"),
        ("class T(SingleTurn):\n    def rows(self, split, count, seed=0): return []", "T must define judge"),
        (
            "class T(Task):\n    def rows(self, *a): return []\n    def verdict(self, *a): return None",
            "T must define episode;",
        ),
        ("import gone_package", "importing broken failed: No module named 'gone_package'"),
        ("1 / 0", "importing broken failed: ZeroDivisionError"),
        ("class T(SingleTurn", "importing broken failed: SyntaxError"),
    ],
)
def test_an_unfinished_task_is_refused(users, body, says):
    users("broken", f"from gear_rl.tasks import SingleTurn, Task\n{body}\n")
    with pytest.raises(GearError) as caught:
        make_task("broken:T")
    assert says in str(caught.value)


class Echo(SingleTurn):
    def rows(self, split, count, seed=0):
        return choose([{"prompt": [], "id": "a"}], split, count, seed)

    def judge(self, row, completion):
        return Verdict(1.0, True)


def test_third_party_tasks_are_found_and_listed(monkeypatch):
    register(monkeypatch, "task", ("echo", f"{__name__}:Echo"))
    assert make_task("echo").name == "echo" and find_task("echo").summary == ""
    assert list(all_tasks()) == [*TASKS, "echo"]
    with pytest.raises(GearError, match=r"Did you mean 'echo'"):
        find_task("ecco")


def test_ours_are_found_without_looking_for_third_parties(monkeypatch):
    forbid(monkeypatch)
    assert find_task("workshop") is Workshop and find_task("a.jsonl").name == "jsonl"


class Counting(Task):
    """Three turns, then over."""

    def rows(self, split, count, seed=0):
        return choose([{"prompt": [], "id": "a"}], split, count, seed)

    def episode(self, row):
        class World:
            left = 3

            def reply(self, turn):
                self.left -= 1
                return f"{self.left} left" if self.left else None

        return World()

    def verdict(self, row, transcript):
        done = transcript.episode.left == 0
        return Verdict(float(done), done, turn_rewards=[1.0] * len(transcript.turns))


def test_a_scripted_dialogue_is_played_in_a_fresh_world():
    task = Counting()
    (row,) = task.rows("test", None)
    assert replay(task, row, ["a", "b", "c"]).success and not replay(task, row, ["a", "b"]).success
    assert replay(task, row, ["a", "b", "c"]).turn_rewards == [1.0, 1.0, 1.0]
    with pytest.raises(GearError, match="ended after turn 2 of 5"):
        replay(task, row, list("abcde"))
    with pytest.raises(GearError, match="no `reference`"):
        task.reference(row)


def test_verdicts_keep_their_order_in_threads():
    class Slow(SingleTurn):
        concurrent_verdicts = 4

        def rows(self, split, count, seed=0):
            return []

        def judge(self, row, completion):
            return Verdict(float(completion), True)

    transcripts = [Transcript(str(i), [str(i)]) for i in range(20)]
    assert [v.reward for v in verdicts(Slow(), [{}] * 20, transcripts)] == list(range(20))


# ---------------------------------------------------------------------------------------------------- JSONL
def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


SUMS = [{"prompt": f"{a}+{b}?", "answer": a + b, "note": f"{a} and {b}"} for a in range(6) for b in range(8)]


def test_a_file_is_a_task(tmp_path):
    task = make_task(jsonl(tmp_path / "sums.jsonl", SUMS))
    train, test = task.rows("train", None), task.rows("test", None)
    assert len(train) + len(test) == 48 and 0 < len(test) < 15
    assert not {r["id"] for r in train} & {r["id"] for r in test}
    assert task.rows("test", None) == make_task(str(tmp_path / "sums.jsonl")).rows("test", None)
    assert all(replay(task, r, task.reference(r)).success and not replay(task, r, task.empty(r)).success for r in test)
    assert not task.judge(test[0], f"It is {test[0]['answer']}").success, "exact is exact"
    assert task.judge(test[0], f"<think>hm</think>\n{test[0]['answer']}").success


def test_columns_judges_and_a_test_file_can_be_named(tmp_path):
    file, more = jsonl(tmp_path / "a.jsonl", SUMS), jsonl(tmp_path / "b.jsonl", SUMS[:3])
    task = make_task(
        file, test=more, hint_column="note", judged_by="number", answer_column="answer", prompt_column="prompt"
    )
    assert len(task.rows("train", None)) == 48 and len(task.rows("test", None)) == 3
    row = task.rows("test", None)[0]
    assert (
        row["hint"] == "0 and 0"
        and task.judge(row, "1 and -1 make 0").success
        and not task.judge(row, "0, or 1").success
    )


def test_a_column_named_hint_is_the_hint(tmp_path):
    """Without one it is the answer, which is a poor hint; with one, nobody should have to name it."""
    rows = [{"prompt": f"{i}?", "answer": str(i), "hint": f"count to {i}", "note": "x"} for i in range(12)]
    file = jsonl(tmp_path / "a.jsonl", rows)
    assert {row["hint"].split()[0] for row in make_task(file).rows("train", None)} == {"count"}
    assert {row["hint"] for row in make_task(file, hint_column="note").rows("train", None)} == {"x"}
    bare = jsonl(tmp_path / "b.jsonl", [{"prompt": r["prompt"], "answer": r["answer"]} for r in rows])
    assert all(row["hint"] == row["answer"] for row in make_task(bare).rows("train", None))
    with pytest.raises(GearError, match="line 1: no 'hint'; it has prompt, answer"):
        make_task(file, test=bare)


def test_messages_may_stand_in_the_prompt(tmp_path):
    said = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "2+2?"}]
    file = jsonl(tmp_path / "a.jsonl", [{"prompt": said, "answer": "4", "category": "sums"}])
    row = make_task(file, test=file).rows("test", None)[0]
    assert row["prompt"] == said and row["category"] == "sums"


def test_mathematics_in_a_file(tmp_path):
    pytest.importorskip("math_verify")
    file = jsonl(tmp_path / "a.jsonl", [{"prompt": "Half?", "answer": "\\frac12"}])
    task = make_task(file, test=file, judged_by="math")
    (row,) = task.rows("test", None)
    assert task.judge(row, "\\boxed{0.5}").success and not task.judge(row, "\\boxed{0.6}").success
    assert replay(task, row, task.reference(row)).success and not replay(task, row, task.empty(row)).success
    task.close()


@pytest.mark.parametrize(
    ("row", "options", "says"),
    [
        ({"prompt": "a"}, {}, "a.jsonl, line 1: no 'answer'; it has prompt. Name the column"),
        ({"prompt": [], "answer": "b"}, {}, "line 1: prompt must be text or a list of messages"),
        ({"prompt": [{"role": "user"}], "answer": "b"}, {}, "line 1: prompt must be text or a list of messages"),
        ({"prompt": "a", "answer": "b"}, {"judged_by": "number"}, "line 1: answer is 'b', no number"),
        ({"prompt": "a", "answer": "b"}, {"judged_by": "maths"}, "Did you mean 'math'"),
        ({"prompt": "a", "answer": "b"}, {"hint_column": "note"}, "line 1: no 'note'"),
        ({"prompt": "a", "answer": "b"}, {"test": "gone.jsonl"}, "there is no file gone.jsonl"),
        ({"prompt": "a", "answer": "b"}, {"path": "x"}, "leave out path='x'"),
    ],
)
def test_a_bad_file_is_explained(tmp_path, row, options, says):
    with pytest.raises(GearError) as caught:
        make_task(jsonl(tmp_path / "a.jsonl", [row]), **options)
    assert says in str(caught.value)


def test_a_split_without_problems_is_said(tmp_path):
    task = make_task(jsonl(tmp_path / "a.jsonl", [{"prompt": "a", "answer": "b"}]))
    empty = "test" if task._rows["train"] else "train"
    with pytest.raises(GearError, match=f"no problem fell into the {empty} split"):
        task.rows(empty, None)
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(GearError, match="no problem in it"):
        make_task(str(tmp_path / "none.jsonl"))


@pytest.mark.parametrize("kind", ["noise", "bias"])
def test_the_workshops_hints_err_as_often_as_asked_by_themselves_or_all_alike(kind):
    said: dict[tuple[str, str], set[str]] = {}
    wrong = total = 0
    for row in Workshop(hint_errors=0.3, hint_error_kind=kind).rows("train", 2000):
        order = Order.parse(row["order"])
        for job, reference, shown in zip(order.jobs, order.reference_tools, row["hint"].split(), strict=True):
            said.setdefault(job, set()).add(shown)
            wrong, total = wrong + (shown != reference), total + 1
    assert abs(wrong / total - 0.3) < (0.02 if kind == "noise" else 0.09)  # biased: a share of 256 facts
    assert all(len(tools) == 1 for tools in said.values()) == (kind == "bias")


def test_what_a_little_bias_gets_wrong_more_bias_gets_wrong_too():
    few, many = (
        [r["hint"] for r in Workshop(hint_errors=e, hint_error_kind="bias").rows("test", 200)] for e in (0.1, 0.4)
    )
    reference = [r["hint"] for r in Workshop().rows("test", 200)]
    tools = [zip(*(hint.split() for hint in hints), strict=True) for hints in zip(few, many, reference, strict=True)]
    assert all(a == b for row in tools for a, b, right in row if a != right)
    with pytest.raises(GearError, match="noise"):
        Workshop(hint_error_kind="biased")


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), None, "1"])
def test_a_reward_is_a_finite_number(reward):
    with pytest.raises(GearError, match="finite number"):
        Verdict(reward, True)


@pytest.mark.parametrize(
    ("rows", "says"), [([], "holds no problem"), ([{"question": "?"}], "row 0 .* has question"), (["?"], "is a str")]
)
def test_rows_without_a_prompt_are_refused(rows, says):
    with pytest.raises(GearError, match=says):
        check_rows(rows, "train")


@pytest.mark.parametrize(("problems", "held"), [(1, 0), (2, 1), (7, 1), (20, 2), (100, 10)])
def test_a_tenth_is_held_out_of_small_files_too(tmp_path, problems, held):
    file = tmp_path / "problems.jsonl"
    lines = [json.dumps({"prompt": f"What is {i} + 0?", "answer": str(i)}) for i in range(problems)]
    file.write_text("\n".join([*lines, lines[0]]))  # one stands there twice, and stays on one side
    task = make_task(str(file))
    test = {row["answer"] for row in task.rows("test", None)} if held else set()
    train = {row["answer"] for row in task.rows("train", None)}
    assert len(test) == held and not train & test and len(train | test) == problems
