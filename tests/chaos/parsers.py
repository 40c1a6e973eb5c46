"""Parsers of text that comes from outside: command lines, tool calls, answers, replies of endpoints."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["x"], "properties": {
        "x": {"type": "integer"}, "y": {"type": ["string", "null"]}, "z": {"type": "array", "items": {"enum": [1, "a"]}}}}}},
]  # fmt: skip
CALL = '{"name": "f", "arguments": {"x": 1, "y": "a", "z": [1, "a"]}}'
REPLY = {
    "choices": [{"message": {"content": "hi", "reasoning_content": "hm", "tool_calls": [
        {"id": "1", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}, "finish_reason": "stop"}],
    "usage": {"completion_tokens": 3},
}  # fmt: skip
PLAIN_REPLY = {"choices": [{"message": {"content": "x"}}]}


@dataclass(frozen=True)
class Target:
    """A parser under test. `allowed`: what its documentation lets it raise beside GearError."""

    read: Callable[[bytes], Any]
    seeds: list[bytes]
    allowed: tuple[type[BaseException], ...] = ()
    share: float = 1.0
    """Of the inputs; slow ones get fewer."""
    seconds: float = 1.0
    """Of computing, for one input."""
    model_output: bool = False
    """What a model may say must not even raise GearError: that would end the whole run."""


def text_of(data: bytes) -> str:
    """As Python gets words of the command line; lone surrogates included."""
    return data.decode("utf-8", "surrogateescape")


def text_targets() -> dict[str, Target]:
    from gear_rl.chat.endpoint import Endpoint
    from gear_rl.chat.hints import check_template, hinted_prompt
    from gear_rl.chat.tool_calls import problem_with, read_turn
    from gear_rl.cli.main import parse
    from gear_rl.cli.settings import parse_settings
    from gear_rl.planning.model_shapes import find_shape
    from gear_rl.tasks.base import Transcript
    from gear_rl.tasks.maths import answers
    from gear_rl.tasks.tools.bfcl.calls import executable, read_executable
    from gear_rl.tasks.tools.tau.calculator import calculate
    from gear_rl.tasks.tools.toolrl import ToolRL
    from gear_rl.tasks.workshop.environment import spoken, tools_used
    from gear_rl.tasks.workshop.task import Workshop
    from gear_rl.tasks.workshop_words.language import kinds_of, read_answer, read_call, values_in

    workshop_task = Workshop(steps=4)
    order = workshop_task.rows("test", 1)[0]
    toolrl_row = {"answer": json.dumps([{"name": "f", "parameters": {"x": 1}}]), "has_response": False}
    parameters = CALL.replace("arguments", "parameters")

    def settings(data: bytes) -> None:
        parse_settings("gear train", text_of(data).split("\n"), ("train", "task", "credit"), keys=("model", "seed"))

    def command_line(data: bytes) -> None:
        parse(["train", *text_of(data).split()])

    def tool_calls(data: bytes) -> None:
        turn = read_turn(text_of(data))
        for call in turn.calls:
            problem_with(call, TOOLS)
            executable(call, frozenset({"f"}))
            str(call)
        [item.reply() for item in turn.items if not hasattr(item, "arguments")]

    def calculator(data: bytes) -> None:
        calculate(text_of(data))

    def maths_answers(data: bytes) -> None:
        text = answers.after_thought(text_of(data))
        answers.last_number(text)
        answers.plain_number(text)
        answers.same_text("\\frac{1}{2}", answers.last_boxed(text) or text)
        answers.fingerprint(text)

    def bfcl_reference(data: bytes) -> None:
        read_executable(text_of(data), {"f": ["x", "y"]}, "row 0")

    def workshop(data: bytes) -> None:
        turns, episode = [], workshop_task.episode(order)
        for turn in text_of(data).split("|")[:8]:
            turns.append(spoken(turn))
            if episode.reply(turns[-1]) is None:
                break
        workshop_task.verdict(order, Transcript("\n".join(turns), turns))
        tools_used(text_of(data))

    def workshop_words(data: bytes) -> None:
        turn = text_of(data)
        read_call(turn), read_answer(turn), values_in(turn), kinds_of(turn)

    def toolrl(data: bytes) -> None:
        judge_toolrl(toolrl_row, text_of(data))

    def hints(data: bytes) -> None:
        template, _, prompt = text_of(data).partition("|")
        check_template(template)
        hinted_prompt([{"role": "user", "content": prompt}], "h", template)

    judge_toolrl = ToolRL.judge.__get__(object.__new__(ToolRL))
    call = f"<think>t</think>hi <tool_call>{CALL}</tool_call>".encode()
    several = f"<tool_call>[{CALL}, {CALL}]</tool_call> <tool_call>\n{CALL}\n{CALL}\n</tool_call>".encode()
    words = b'I use the torque wrench. <tool_call>{"name": "repair", "arguments": {"part": "pump", "tool": "weld"}}</tool_call>'
    boxed = rb"so $\boxed{\frac{1}{2}}$, or \fbox{-1,234.5} and \boxed 7. Answer: 12."
    thought = f"<think>a</think>\n<tool_call>\n{parameters}\n</tool_call>".encode()
    command, sizes = b"--set train.steps=3 --out x --seed 1 --credit gear", b"hidden=64,layers=2,heads=4,intermediate=128"
    spoken_by = {
        "tool calls": Target(tool_calls, [call, several], share=2.0),
        "maths answers": Target(maths_answers, [boxed, b"<think>x</think> the answer is 5"], share=2.0),
        "calculator": Target(calculator, [b"(2 + 3) * 4 / 7", b"-2 ** 3.5 // (1 - 0.5)"], (ValueError,), 2.0),
        "workshop rollouts": Target(workshop, [b"well weld valve|so grease pump|weld gear <bot> hint|answer yes"]),
        "workshop in words": Target(workshop_words, [words, b"The answer is yes."]),
        "toolrl answers": Target(toolrl, [thought]),
    }
    return {name: replace(target, model_output=True) for name, target in spoken_by.items()} | {
        "--set": Target(settings, [b"train.steps=3\ntask.steps=4", b'credit.alpha=1e-3\nseed=7\ntrain.teacher="ema"']),
        "command line": Target(command_line, [command, b"--resume x"], (SystemExit,), 0.05),
        "reference calls": Target(bfcl_reference, [b"f(1, y='a')", b"f(x=[1, {'a': (2, None)}])"]),
        "endpoint replies": Target(_endpoint(Endpoint), [json.dumps(REPLY).encode(), json.dumps(PLAIN_REPLY).encode()]),
        "hint templates": Target(hints, [b"{prompt} hint {hint}|fix the pump"]),
        "model dimensions": Target(lambda data: find_shape(text_of(data)), [sizes, b"Qwen3-4B"], (OSError,)),
    }


class _Response(io.BytesIO):
    """An HTTP answer without HTTP."""

    status, reason, headers = 200, "OK", {}

    def read1(self, size: int = -1) -> bytes:
        return super().read1(size)


def _endpoint(endpoint_class: Any) -> Callable[[bytes], Any]:
    endpoint = endpoint_class("http://localhost:1", "m", retries=0)

    def replies(data: bytes) -> None:
        endpoint._opener = type("Opener", (), {"open": lambda self, request, timeout: _Response(data)})()
        endpoint.chat([{"role": "user", "content": "x"}])

    return replies
