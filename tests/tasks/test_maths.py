"""The mathematical tasks on problems of our own in the published layouts, and on the published sets where they are at hand."""

import json
import random
from pathlib import Path

import pytest
from maths_sample import lines, write

from gear_rl.errors import GearError
from gear_rl.tasks import make_task, replay
from gear_rl.tasks.maths.answers import after_thought, fingerprint, last_boxed, last_number, plain_number, same_text

PUBLISHED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"so \boxed{3}, or rather \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed 5.", "5"),
        (r"\fbox{7}", "7"),
        (r"\boxed{5} and \boxed{never closed", "5"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{}", ""),
        ("no box", None),
        (r"\boxed{" * 20_000, None),  # and at once
    ],
)
def test_the_last_box(text, found):
    assert last_boxed(text) == found


def test_thoughts_are_no_answers():
    assert after_thought(r"<think>\boxed{1}</think>\boxed{2}") == r"\boxed{2}"
    assert after_thought(r"\boxed{1}</think>\boxed{2}") == r"\boxed{2}"  # a template that opens the thought itself
    assert after_thought(r"<think>\boxed{1}, no,") == ""


def test_comparisons_without_algebra():
    assert same_text(r"\left( 3, \frac{\pi}{2} \right)", r"(3,\dfrac{\pi}{2}).") and not same_text("3", "4")
    assert plain_number("-1,234.50") == plain_number("-1234.5") and plain_number("$18$") == 18
    assert plain_number("1,23") is None and plain_number("1/2") is None and plain_number("9" * 100) is None
    assert last_number("12 then 1,300.5 apples") == plain_number("1300.5") and last_number("none") is None
    assert fingerprint("What is $2+3$?") == fingerprint("what is \\(2 + 3\\)")


@pytest.mark.parametrize(
    ("name", "split", "n", "answers"),
    [
        ("gsm8k", "test", 3, ["1000", "1001", "1002"]),
        ("math", "test", 1, ["5"]),
        ("math", "math500", 1, [r"\pi"]),
        ("aime24", "test", 1, ["204"]),
        ("aime25", "test", 1, ["70"]),
        ("amc23", "test", 1, ["27"]),
        ("olympiadbench", "test", 2, ["69,84", "3.1"]),
        ("dapo", "test", 1, [r"\pi"]),
    ],
)
def test_sets_read_reference_passes_and_nothing_does_not(folder, name, split, n, answers):
    task = make_task(name, data=str(folder), judges=1)
    rows = task.rows(split, None)
    assert len(rows) == n and [row["answer"] for row in rows] == answers
    assert len({row["id"] for row in rows}) == n and all(row["hint"] and row["category"] for row in rows)
    assert rows[0]["prompt"][0]["content"].endswith("within \\boxed{}.")
    for row in rows:
        assert replay(task, row, task.reference(row)).success
        assert not replay(task, row, task.empty(row)).success
    task.close()


def test_a_set_may_lie_in_its_own_folder_too(folder):
    assert len(make_task("gsm8k", data=str(folder / "gsm8k")).rows("train", None)) == 9


def test_evaluation_problems_are_removed_and_counted(folder, capsys):
    rows = make_task("math", data=str(folder)).rows("train", None)
    assert len(rows) == 7 and not any("asy" in row["prompt"][0]["content"] for row in rows)
    err = capsys.readouterr().err
    assert "1 of 9 problems have no answer and are left out: math_train-8" in err
    assert (
        "removed 1 of 8 training problems" in err and "math_test: 1 of 1; math500: 0 of 1; olympiadbench: 0 of 2" in err
    )
    kept = make_task("math", data=str(folder), remove="none").rows("train", None)
    assert len(kept) == 8 and next(row for row in kept if "asy" in row["prompt"][0]["content"])["answer"] == "5"
    rows = make_task("dapo", data=str(folder)).rows("train", None)
    assert sorted(row["answer"] for row in rows) == ["34", "7"]
    assert "aime24: 1 of 1" in (err := capsys.readouterr().err) and "aime_1983_2023: 1 of 1" in err


def test_hints_come_in_the_forms_a_set_has(folder):
    row = make_task("gsm8k", data=str(folder)).rows("test", None)[0]
    assert row["hint"] == "0+1=1" and "<<" not in row["hint"]
    assert make_task("gsm8k", data=str(folder), hint="answer").rows("test", None)[0]["hint"] == "1000"
    with pytest.raises(GearError, match="unknown hint of task aime24 'solution'"):
        make_task("aime24", data=str(folder), hint="solution")


def test_verdicts(folder):
    task = make_task("gsm8k", data=str(folder), judges=1)
    row = task.rows("test", None)[0]
    right = task.judge(row, "It is \\boxed{1000}.")
    assert right.reward == 1.0 and right.success and right.channels == {"correct": 1.0, "boxed": 1.0}
    wrong = task.judge(row, "<think>1000</think> It is \\boxed{7}.")
    assert wrong.reward == 0.0 and wrong.first_wrong == 0 and wrong.channels["boxed"] == 1.0


def test_rows_are_chosen_by_the_rule(folder):
    task = make_task("gsm8k", data=str(folder))
    thrice = [row["id"] for row in task.rows("train", 25, seed=3)]
    assert [sorted(thrice[i : i + 9]) for i in (0, 9)] == [sorted({*thrice})] * 2 and thrice[:9] != thrice[9:18]
    assert thrice == [row["id"] for row in task.rows("train", 25, seed=3)]
    assert thrice[:9] != [row["id"] for row in task.rows("train", 9, seed=4)]
    assert len(task.rows("test", 100)) == 3
    two = [row["id"] for row in task.rows("test", 2)]
    assert len(two) == 2 and two == sorted(two)


def test_what_is_missing_is_said(folder, tmp_path):
    def refused(name, split="test", **options):
        with pytest.raises(GearError) as caught:
            make_task(name, **options).rows(split, None)
        return str(caught.value)

    says = refused("gsm8k", data=str(tmp_path / "gone"))
    assert "there is no folder" in says and "test.jsonl" in says and "github.com/openai" in says
    (tmp_path / "empty").mkdir()
    says = refused("aime24", data=str(tmp_path / "empty"))
    assert "has no aime24.jsonl" in says and "HuggingFaceH4/aime_2024" in says
    assert "is a file; name the folder" in refused("gsm8k", data=str(folder / "gsm8k" / "test.jsonl"))
    lines(tmp_path / "only" / "train.jsonl", [{"problem": "x", "type": "t", "solution": "\\boxed{1}"}])
    says = refused("math", "train", data=str(tmp_path / "only"))
    assert "math test" in says and "--set task.remove=" in says
    assert "unknown evaluation set to remove 'math50'. Did you mean 'math500'" in refused(
        "math", "train", data=str(folder), remove="math50"
    )
    assert "evaluation set; train on gsm8k" in refused("aime24", "train", data=str(folder))
    assert "unknown split of task math 'tets'" in refused("math", "tets", data=str(folder))
    with pytest.raises(GearError, match="at least 1"):
        make_task("gsm8k", judges=0)


def test_without_folder_and_network_the_hub_is_named():
    with pytest.raises(GearError) as caught:
        make_task("gsm8k").rows("test", None)  # conftest sets the hub offline
    assert "openai/gsm8k (main), split test, could not be loaded from the hub" in str(caught.value)
    assert "--data DIR" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"question": "a"', "test.jsonl, line 2: not JSON"),
        ('["a"]', "line 2: must be an object"),
        ('{"question": "a"}', "line 2: no text in 'answer'; it has question"),
        ('{"question": "a", "answer": "5"}', "line 2: the answer lacks its '####'"),
        ('{"question": 1, "answer": true}', "line 2: no text in 'answer'"),
        ("[" * 100_000, "line 2: not JSON"),
    ],
)
def test_a_malformed_row_is_named(tmp_path, line, says):
    good = json.dumps({"question": "q", "answer": "#### 1"})
    (tmp_path / "test.jsonl").write_text(f"{good}\n{line}\n")
    with pytest.raises(GearError, match=says.replace("(", "\\(")):
        make_task("gsm8k", data=str(tmp_path)).rows("test", None)


def test_damaged_files_are_named(tmp_path):
    (tmp_path / "test.jsonl.gz").write_bytes(b"\x1f\x8b no gzip")
    with pytest.raises(GearError, match="cannot be read"):
        make_task("gsm8k", data=str(tmp_path)).rows("test", None)
    (tmp_path / "train.jsonl").write_bytes(b"\xff\xfe{}\n")
    with pytest.raises(GearError, match="line 1: not JSON"):
        make_task("gsm8k", data=str(tmp_path)).rows("train", None)
    (tmp_path / "aime_1983_2023_train.json").write_text('[{"problem": ]')
    write(tmp_path / "all")
    (tmp_path / "all" / "math_eval" / "aime_1983_2023_train.json").write_text("[1]")
    with pytest.raises(GearError, match="item 0: must be an object"):
        make_task("dapo", data=str(tmp_path / "all")).rows("train", None)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published sets are not beside this checkout")
def test_published_sets_reference_by_math_verify():
    """References against themselves by math-verify alone, past what is_right sees at once."""
    for name, split, total in (("math", "math500", 500), ("olympiadbench", "test", 675), ("amc23", "test", 40)):
        task = make_task(name, data=str(PUBLISHED), judges=1)
        rows = task.rows(split, None)
        assert len(rows) == total
        for row in random.Random(0).sample(rows, 15):
            assert task.judge_process.score(reference=row["answer"], answer=row["answer"]) == 1.0, row["answer"]
        task.close()
