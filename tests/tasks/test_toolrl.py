"""ToolRL's reward by its formula, and its three file layouts."""

import json
from pathlib import Path

import pytest

from gear_rl.errors import GearError
from gear_rl.tasks import make_task, replay
from gear_rl.tasks.tools.toolrl import THOUGHT, correctness

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "toolrl"
NEWS = {"name": "news", "parameters": {"page": "1", "topic": "x"}}
TIME = {"name": "time", "parameters": {}}
CALLS = f"<tool_call>\n{json.dumps(NEWS)}\n</tool_call>"


@pytest.fixture
def task(tmp_path):
    """One row of each layout, and of each kind of ground truth."""
    asked = [{"role": "system", "content": "tools"}, {"role": "user", "content": "do"}]
    test = [
        {"prompt": asked, "ground_truth": f"{THOUGHT}\n{CALLS}"},
        {"prompt": asked, "reward_model": {"ground_truth": f"{THOUGHT}\n<response> ask back </response>"}},
        {"prompt": asked, "ground_truth": f"{THOUGHT}\n{CALLS}\n<response> and talk </response>"},
    ]
    (tmp_path / "rlla_4k_test_80.jsonl").write_text("".join(json.dumps(row) + "\n" for row in test))
    tricky = f"<think> inside <tool_call> tags </think>\n{CALLS}"
    (tmp_path / "rlla_sft.json").write_text(json.dumps([{"instruction": "tools", "input": "do", "output": tricky}]))
    for level, answer in ((1, repr([NEWS])), (2, repr(NEWS)), (3, repr([NEWS, TIME]))):
        (tmp_path / f"level-{level}-api_processed.json").write_text(
            json.dumps([{"system": "tools", "user": "do", "answer": answer, "other": "{}"}])
        )
    return make_task("toolrl", data=str(tmp_path))


def test_all_layouts_reference_and_nothing(task):
    assert [len(task.rows(split, None)) for split in task.splits] == [1, 3, 3]
    for split in task.splits:
        for row in task.rows(split, None):
            reference, empty = replay(task, row, task.reference(row)), replay(task, row, task.empty(row))
            calls = bool(json.loads(row["answer"]))
            assert reference.success and reference.reward == (4.0 if calls else 1.0)
            assert not empty.success and empty.reward == (-3.0 if calls else 0.0) and empty.first_wrong == 0


def written(*calls):
    return f"<think> so </think>\n<tool_call>\n{chr(10).join(map(json.dumps, calls))}\n</tool_call>"


@pytest.mark.parametrize(
    ("reference", "calls", "value"),
    [  # max = 1 + Σ (1 + parameters), by hand
        ([NEWS], [NEWS], 3),
        ([NEWS], [{"name": "news", "parameters": {"page": "2", "topic": "x"}}], 6 * 3 / 4 - 3),
        ([NEWS], [{"name": "news", "parameters": {"page": "1"}}], 6 * (1 + 1 / 2 + 1) / 4 - 3),
        ([NEWS], [{"name": "other", "parameters": NEWS["parameters"]}], -3),
        ([NEWS], [NEWS, NEWS], 6 * (1 / 2 + 3) / 4 - 3),
        ([NEWS, TIME], [TIME, NEWS], 3),
        ([NEWS, TIME], [NEWS], 6 * (1 / 2 + 3) / 5 - 3),
        ([NEWS, NEWS], [NEWS, {"name": "news", "parameters": {}}], 6 * (1 + 3) / 7 - 3),
    ],
)
def test_correctness_by_hand(reference, calls, value):
    assert correctness(reference, calls) == pytest.approx(value)


def test_format_and_correctness_are_apart(task):
    row, response, both = task.rows("test", None)
    assert task.judge(row, written(NEWS)).channels == {"format": 1.0, "correctness": 3.0}
    unformed = task.judge(row, f"<tool_call>{json.dumps(NEWS)}</tool_call>")
    assert unformed.channels == {"format": 0.0, "correctness": 3.0} and not unformed.success
    half = task.judge(row, written({"name": "news", "parameters": {}}))
    assert half.channels["format"] == 1.0 and -3 < half.channels["correctness"] < 3 and not half.success
    assert task.judge(response, "<think> . </think>\n<response> anything </response>").success
    assert not task.judge(response, written(NEWS)).success
    assert not task.judge(both, written(NEWS)).success
    assert task.judge(both, f"{written(NEWS)}\n<response> done </response>").success


@pytest.mark.parametrize(
    "inside",
    ["not json", "{'name': 'news'}", "[1]", '"news"', '{"name": "news"}', "[" * 50_000, '{"parameters": {}}', ""],
)
def test_unreadable_calls_are_the_worst_and_are_counted(task, inside):
    row = task.rows("test", None)[0]
    verdict = task.judge(row, f"<think> . </think>\n<tool_call>\n{inside}\n</tool_call>")
    assert verdict.channels["correctness"] == -3 and verdict.malformed == 1 and not verdict.success
    assert task.judge(row, "<think> . </think>").malformed == 0


def test_hints(task):
    assert task.rows("train", 1)[0]["hint"] == CALLS
    whole = make_task("toolrl", data=task.data, hint="solution").rows("train", 1)[0]["hint"]
    assert whole.startswith("<think> inside <tool_call> tags")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "text", "ground_truth": "x"}, "prompt must be a list of messages"),
        ({"prompt": [{"role": "user", "content": "x"}]}, "no text in 'ground_truth'"),
        ({"prompt": [], "ground_truth": "<tool_call>\nx\n</tool_call>"}, "reference tool call cannot be read"),
        ({"prompt": [], "ground_truth": '<tool_call>\n{"name": "f"}\n</tool_call>'}, "reference tool call cannot be read"),
        ({"system": "s", "user": "u", "answer": "f(x)"}, "the answer is no literal"),
        ({"system": "s", "user": "u", "answer": "[]"}, "holds no call"),
    ],
)
def test_malformed_rows_are_named(tmp_path, row, says):
    (tmp_path / "rlla_4k_test_80.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(GearError, match=f"rlla_4k_test_80.jsonl, line 1: .*{says}"):
        make_task("toolrl", data=str(tmp_path)).rows("test", None)


def test_without_data_the_repository_is_named():
    with pytest.raises(
        GearError, match=r"name a folder.*--data DIR.*test.parquet: https://github.com/qiancheng0/ToolRL"
    ):
        make_task("toolrl").rows("test", None)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published set is not beside this checkout")
def test_published_reference():
    task = make_task("toolrl", data=str(PUBLISHED))
    for split, n in (("train", 400), ("test", 80), ("api_bank", 597)):
        rows = task.rows(split, None)
        assert len(rows) == n and all(replay(task, row, task.reference(row)).success for row in rows)
