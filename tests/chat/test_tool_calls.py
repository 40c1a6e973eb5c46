"""Tool calls as models write them: both families read, everything else named, nothing that hangs or crashes."""

import json
import time

import pytest
from function_schema import function
from hypothesis import given, settings
from hypothesis import strategies as st

from gear_rl.chat.tool_calls import DEEPEST, LARGEST_CALL, MOST_CALLS, Malformed, ToolCall, problem_with, read_turn

WEATHER = ToolCall("weather", {"city": "Oslo", "days": 2})
WEATHER_TOOL = function(
    "weather", "The weather.", ["city"],
    city="string",
    days="integer",
    unit={"type": ["string", "null"], "enum": ["C", "F", None]},
    spots={"type": "array", "items": {"type": "object", "properties": {"lat": {"type": "number"}}}},
)  # fmt: skip
TOOLS = [{"type": "function", "function": WEATHER_TOOL}]


@pytest.mark.parametrize(
    ("turn", "calls"),
    [
        (f"Let me see.\n{WEATHER}", [WEATHER]),  # Qwen: a tag per call
        (f"{WEATHER}\n{ToolCall('time', {})}", [WEATHER, ToolCall("time", {})]),
        ('<tool_call>[{"name": "time", "arguments": {}}, {"name": "f", "arguments": {"x": [1]}}]</tool_call>',
         [ToolCall("time", {}), ToolCall("f", {"x": [1]})]),  # SmolLM2: a list
        ('<tool_call>\n{"name": "f", "parameters": {"x": 1}}\n{"name": "g", "parameters": {}}\n</tool_call>',
         [ToolCall("f", {"x": 1}), ToolCall("g", {})]),  # ToolRL: a line per call
        ('<tool_call>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_call>', [ToolCall("f", {"x": 1})]),  # OpenAI
        ('<tool_call>{"type": "function", "function": {"name": "f", "arguments": {}}}</tool_call>', [ToolCall("f", {})]),
        ('<tool_call>{"name": "f", "arguments": {"x": "a } \\" ] b"}}', [ToolCall("f", {"x": 'a } " ] b'})]),  # never closed
        (f"<think>maybe {WEATHER}</think>no call", []),
        (f"<think>never ends {WEATHER}", []),
        ("no call at all", []),
    ],
)  # fmt: skip
def test_reads_what_models_write(turn, calls):
    read = read_turn(turn)
    assert read.items == calls and read.calls == calls and read.malformed == 0


def test_the_text_beside_calls_is_kept():
    assert read_turn(f"<think>hm</think>I look.\n{WEATHER}\nDone.").text == "I look.\n\nDone."


@pytest.mark.parametrize(
    ("inside", "says"),
    [
        ("", "empty"),
        ("[]", "empty"),
        ("{'name': 'f'}", "not JSON"),
        ('{"name": "f", "arguments": {"x": 1}', "not JSON"),
        ('"f"', 'a call is an object {"name"'),
        ('{"arguments": {}}', 'no "name"'),
        ('{"name": 3}', 'no "name"'),
        ('{"name": "f", "arguments": [1]}', "must be an object, not [1]"),
        ('{"name": "f", "arguments": "x=1"}', 'the "arguments" of f: not JSON'),
        ('{"name": "f", "arguments": {"x": NaN}}', "NaN is not a JSON number"),
        ('{"name": "f", "arguments": {"x": 1e999}}', "too large"),
        ('{"name": "f", "arguments": {"x": ' + "9" * 5000 + "}}", "not JSON"),
        ("[" * 100_000, f"at most {LARGEST_CALL} are read"),
        ('{"name": "f", "arguments": ' + '{"a":' * 40 + "1" + "}" * 41, f"deeper than {DEEPEST}"),
        ("x" * (LARGEST_CALL + 1), f"{LARGEST_CALL + 1} characters"),
    ],
)
def test_what_cannot_be_read_is_said(inside, says):
    (item,) = read_turn(f"<tool_call>{inside}</tool_call>").items
    assert isinstance(item, Malformed) and says in item.problem
    assert "malformed tool call" in json.loads(item.reply())["error"] and len(item.reply()) < 500


def test_good_and_bad_calls_keep_their_order():
    items = read_turn(f"{WEATHER}<tool_call>oops</tool_call>{WEATHER}").items
    assert [type(item) for item in items] == [ToolCall, Malformed, ToolCall]


def test_calls_without_end_are_counted_and_cut():
    for turn in (
        "<tool_call>" * 100_000,
        str(WEATHER) * 1000,
        f"<tool_call>{json.dumps([{'name': 'f'}] * 3000)}</tool_call>",
    ):
        began = time.perf_counter()
        items = read_turn(turn).items
        assert len(items) <= MOST_CALLS + 1 and isinstance(items[-1], Malformed)
        assert time.perf_counter() - began < 2


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='<tool_cal>/{}[]":,\\ nxe1', max_size=80))
def test_nothing_raises(text):
    read_turn(f"<tool_call>{text}")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"city": "Oslo", "days": 2, "unit": None, "spots": [{"lat": 1}, {"lat": 1.5}]}, None),
        ({"city": "Oslo", "days": 2.0}, None),
        ({"days": 2}, "required argument 'city' is missing"),
        ({"city": 5}, "argument 'city' must be of type string, not 5"),
        ({"city": "Oslo", "days": True}, "must be of type integer, not true"),
        ({"city": "Oslo", "days": 1.5}, "must be of type integer, not 1.5"),
        ({"city": "Oslo", "unit": "K"}, "must be one of"),
        ({"city": "Oslo", "spots": [{"lat": 1}, {"lat": "x"}]}, "'spots'[1].lat must be of type number"),
        ({"city": "Oslo", "dais": 2}, "Did you mean 'days'"),
    ],
)
def test_calls_against_their_schema(arguments, says):
    problem = problem_with(ToolCall("weather", arguments), TOOLS)
    assert problem is None if says is None else says in problem


def test_objects_inside_must_be_whole_and_a_tool_without_parameters_takes_none():
    leg = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    schema = {"type": "object", "properties": {"legs": {"type": "array", "items": leg}}}
    tools = [
        {"function": {"name": "fly", "parameters": schema}},
        {"function": {"name": "land", "parameters": {"properties": {}}}},
    ]
    assert problem_with(ToolCall("fly", {"legs": [{"to": "Oslo"}]}), tools) is None
    assert "'legs'[1]: 'to' is missing" in problem_with(ToolCall("fly", {"legs": [{"to": "Oslo"}, {}]}), tools)
    assert "unknown argument 'now'" in problem_with(ToolCall("land", {"now": True}), tools)


def test_an_unknown_tool_gets_the_nearest():
    assert "Did you mean 'weather'" in problem_with(ToolCall("wether", {}), TOOLS)
