"""reasoning-gym through its adapter: same problems again, splits apart, verifiers in their process."""

import pytest

pytest.importorskip("reasoning_gym")

from gear_rl.errors import GearError
from gear_rl.tasks import make_task, replay


def test_rows_are_the_same_again_and_splits_share_none():
    task = make_task("reasoning_gym", dataset="polynomial_multiplication,leg_counting", judges=1)
    rows, again = task.rows("test", 7), make_task("reasoning_gym", dataset=task.dataset, judges=2)
    assert [r["category"] for r in rows[:4]] == ["polynomial_multiplication", "leg_counting"] * 2 and len(rows) == 7
    assert rows == again.rows("test", 7), "also in another process: polynomial_multiplication depends on its hash seed"
    prompts = [{r["prompt"][0]["content"] for r in task.rows(*split, 6)} for split in (("train",), ("test",))]
    other = {r["prompt"][0]["content"] for r in task.rows("train", 6, seed=1)}
    assert not prompts[0] & prompts[1] and not prompts[0] & other
    for row in rows:
        assert replay(task, row, task.reference(row)).success
        assert not replay(task, row, task.empty(row)).success
        assert not replay(task, row, "<answer>nothing</answer>").success
    task.close()
    again.close()


def test_only_a_tagged_answer_counts():
    task = make_task("reasoning_gym", dataset="leg_counting", config={"min_animals": 2, "max_animals": 2}, judges=1)
    row = task.rows("test", 1)[0]
    assert row["prompt"][0]["content"].endswith("</answer>.")
    right = task.judge(row, f"<think>x</think>so <answer>0</answer>, no: <answer> {row['answer']} </answer>")
    assert right.success and right.channels == {"score": 1.0, "format": 1.0}
    bare = task.judge(row, row["answer"])
    assert not bare.success and bare.channels["format"] == 0.0
    assert not task.judge(row, f"<think><answer>{row['answer']}</answer>").success
    task.close()


def test_an_answer_that_is_empty_by_right_must_be_given():
    """A program of `ab` may leave nothing."""
    task = make_task("reasoning_gym", dataset="ab", judges=1)
    rows = task.rows("train", 150)
    row = next(row for row in rows if not row["answer"])
    assert task.reference(row) == "<answer></answer>" and task.judge(row, task.reference(row)).success
    assert not task.judge(row, "").success and not task.judge(row, "<answer>A#</answer>").success
    other = next(row for row in rows if row["answer"])
    assert not task.judge(other, "<answer></answer>").success
    task.close()


def test_a_generator_without_a_reference_says_so():
    task = make_task("reasoning_gym", dataset="boxnet", judges=1)
    with pytest.raises(GearError, match="gives no answers"):
        task.reference(task.rows("train", 1)[0])
    task.close()


def test_refusals():
    def says(**options):
        with pytest.raises(GearError) as caught:
            make_task("reasoning_gym", **options).rows("test", 1)
        return str(caught.value)

    assert "needs the option dataset" in says()
    assert "Did you mean 'leg_counting'" in says(dataset="leg_count")
    assert "unknown generator" in says(dataset="composite")
    assert "unexpected keyword argument 'foo'" in says(dataset="leg_counting", config={"foo": 3})
    assert "min_animals must be positive" in says(dataset="leg_counting", config={"min_animals": -3})
    assert "goes with one generator" in says(dataset="leg_counting,gcd", config={"x": 1})
