"""ACEBench (English): its rules on entries of our own; on the benchmark itself where its data is at hand."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from function_schema import function

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.errors import GearError
from gear_rl.tasks.base import replay
from gear_rl.tasks.tools.acebench import AceBench
from gear_rl.tasks.tools.acebench.data import conversation

SHARED = Path(__file__).parents[3] / "shared" / "data" / "acebench_en"
SHOP = function(
    "Shop.order", "Order.", ["what", "count"],
    what="string",
    count="integer",
    fast="boolean",
    tags={"type": "array", "items": {"type": "string"}},
    to={"type": "object", "properties": {"city": {"type": "string"}, "floor": {"type": "number"}}},
    weight="number",
)  # fmt: skip
REFERENCE = {"what": "green tea", "count": 2, "fast": True, "tags": ["Hot", "new"], "to": {"city": "Rome", "floor": 3}}
ENTRIES = {
    "normal_atom_bool": (SHOP, {"Shop.order": REFERENCE}),
    "normal_single_turn_parallel_function": (
        SHOP,
        {"Shop.order_1": REFERENCE, "Shop.order_2": {"what": "rice", "count": 1}},
    ),
    "normal_atom_list": (SHOP, [{"Shop.order": {"what": "a", "count": 1}}, {"Shop.order": {"what": "b", "count": 1}}]),
    "special_error_param": (SHOP, {"count": ["minus two"]}),
    "special_incomplete": (SHOP, {"Shop.order": ["what", "count"]}),
    "special_irrelevant": (SHOP, "Due to the limitations of the function, I cannot solve this problem."),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ace")
    (folder / "possible_answer").mkdir()
    for category, (tool, reference) in ENTRIES.items():
        asked = "user: I want tea.\nsystem: How much?\nuser: Two, quickly.\n"
        entry = {"id": f"{category}_0", "question": asked, "function": [tool], "time": "It is Monday."}
        (folder / f"data_{category}.json").write_text(json.dumps(entry) + "\n")
        answer = {"id": entry["id"], "ground_truth": reference}
        (folder / "possible_answer" / f"data_{category}.json").write_text(json.dumps(answer) + "\n")
    return folder


@pytest.fixture(scope="module")
def rows(folder):
    task = AceBench(data=str(folder), category=",".join(ENTRIES))
    return task, {row["category"]: row for row in task.rows("test", None)}


@pytest.mark.parametrize("category", ENTRIES)
def test_reference_passes_and_nothing_fails(rows, category):
    task, by_category = rows
    row = by_category[category]
    reference = replay(task, row, task.reference(row))
    assert reference.reward == 1.0 and reference.success
    assert replay(task, row, task.empty(row)).reward == 0.0


@pytest.mark.parametrize(
    "change, accepted, exact",
    [
        ({}, True, True),
        ({"what": "GREEN-TEA, loose"}, True, True),  # contains the reference text
        ({"what": "tea"}, False, False),
        ({"count": 5}, True, False),  # the benchmark compares numbers by type alone
        ({"count": "two"}, False, False),
        ({"fast": False}, True, False),  # and booleans
        ({"fast": "true"}, True, True),
        ({"tags": ["hot", "NEW"]}, True, True),
        ({"tags": ["new", "hot"]}, False, False),
        ({"tags": "hot"}, False, False),
        ({"to": {"city": "rome", "floor": 3}}, True, True),
        ({"to": {"city": "Rome"}}, False, False),
        ({"to": {"city": "Rome", "floor": 4}}, False, False),
        ({"weight": 1.5}, False, False),  # not in the reference answer
        ({"unheard": 1}, False, False),
        ({"fast": None}, False, False),
    ],
)
def test_arguments_by_the_benchmarks_rule_and_exactly(rows, change, accepted, exact):
    task, by_category = rows
    row = by_category["normal_atom_bool"]
    verdict = replay(task, row, [str(ToolCall("Shop_order", {**REFERENCE, **change}))])
    assert (verdict.reward == 1.0, verdict.success) == (accepted, exact)


def test_optional_arguments_names_and_numbers_of_calls(rows):
    task, by_category = rows
    row = by_category["normal_atom_bool"]
    short = {key: REFERENCE[key] for key in ("what", "count")}
    loose = replay(task, row, [str(ToolCall("Shop_order", short))])
    assert loose.reward == 1.0 and not loose.success  # left out what the schema does not require
    assert replay(task, row, [str(ToolCall("Shop_order", {"what": "green tea"}))]).reward == 0
    assert replay(task, row, [str(ToolCall("Shop_send", REFERENCE))]).reward == 0
    assert replay(task, row, [str(ToolCall("Shop_order", REFERENCE)) * 2]).reward == 0
    assert replay(task, row, ["<tool_call>{</tool_call>"]).malformed == 1
    pair = by_category["normal_single_turn_parallel_function"]
    calls = [str(ToolCall("Shop_order", {"what": "rice", "count": 1})), str(ToolCall("Shop_order", REFERENCE))]
    assert replay(task, pair, ["\n".join(calls)]).success  # in any order
    assert replay(task, pair, ["\n".join([calls[1], calls[1]])]).reward == 0
    either = by_category["normal_atom_list"]
    assert replay(task, either, [str(ToolCall("Shop_order", {"what": "b", "count": 1}))]).success


def test_special_answers_must_name_what_is_wrong(rows):
    task, by_category = rows
    said = "There is incorrect value (minus two) for the parameters (count) in the conversation history."
    assert replay(task, by_category["special_error_param"], [said]).reward == 1
    assert replay(task, by_category["special_error_param"], [said.replace("minus two", "three")]).reward == 0
    missing = "Missing necessary parameters (what) for the api (Shop.order)"
    assert replay(task, by_category["special_incomplete"], [missing]).reward == 0
    assert replay(task, by_category["special_irrelevant"], [str(ToolCall("Shop_order", REFERENCE))]).reward == 0


def test_prompts(rows):
    row = rows[1]["normal_atom_bool"]
    assert [message["role"] for message in row["prompt"]] == ["system", "user", "assistant", "user"]
    assert "It is Monday." in row["prompt"][0]["content"]
    assert json.loads(row["tools"])[0]["function"]["name"] == "Shop_order"
    assert conversation("Just a question") == [{"role": "user", "content": "Just a question"}]


def test_bad_data(folder, tmp_path):
    with pytest.raises(GearError, match="Did you mean 'normal_atom_bool'"):
        AceBench(data=str(folder), category="normal_atom_bol")
    with pytest.raises(GearError, match=r"data_normal_preference\.json.*ACEBench"):
        AceBench(data=str(folder), category="normal_preference").rows("test", None)
    with pytest.raises(GearError, match="no training set"):
        AceBench(data=str(folder), category="normal_atom_bool").rows("train", 1)
    (tmp_path / "possible_answer").mkdir()
    (tmp_path / "data_special_irrelevant.json").write_text('{"id": "a", "question": "q"}\n')
    (tmp_path / "possible_answer" / "data_special_irrelevant.json").write_text('{"id": "a", "ground_truth": "x"}\n')
    with pytest.raises(GearError, match=r"data_special_irrelevant\.json, line 1: the row has no 'function'"):
        AceBench(data=str(tmp_path), category="special_irrelevant").rows("test", None)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark's data is not beside the checkout")
def test_the_benchmark_itself():
    task = AceBench(data=str(SHARED))
    rows = task.rows("test", None)
    assert len(rows) == 1023 and sum(row["category"].startswith("agent") for row in rows) == 50
    for row in rows:
        reference, empty = replay(task, row, task.reference(row)), replay(task, row, task.empty(row))
        assert reference.reward == 1.0 and reference.success and empty.reward == 0.0, row["id"]


@pytest.mark.skipif(importlib.util.find_spec("tool_sandbox") is not None, reason="ToolSandbox is installed")
def test_toolsandbox_says_how_to_install():
    from gear_rl.tasks.tools.toolsandbox import ToolSandbox

    with pytest.raises(GearError, match=r"github\.com/apple/ToolSandbox"):
        ToolSandbox()
