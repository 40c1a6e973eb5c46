"""ToolRL (2504.13958): one turn of tool use, its data layout and its reward (seen).

    <think> … </think>
    <tool_call>
    {"name": …, "parameters": {…}}          a line per call
    </tool_call>
    <response> … </response>                either, or both, as the ground truth has them

reward = format {0, 1} + correctness [−3, 3];   correctness = 6 · score / max − 3, for reference calls G and written calls P
    score = J(names of G, names of P) + Σ_g [ J(parameter names of g, of its match) + number of equal values ]
    max   = 1 + Σ_g [ 1 + number of parameters of g ]            J: shared / all, with repetitions
Each g takes the best unused call of its name. Unreadable or missing calls: −3. No reference calls: correctness 0, so such a
problem is judged by its format alone.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from gear_rl.chat.hints import DEFAULT_TEMPLATE
from gear_rl.chat.tool_calls import CLOSE, OPEN, Unreadable, read_json
from gear_rl.errors import GearError, unknown_name
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Row, SingleTurn, Verdict, choose
from gear_rl.tasks.maths.answers import after_thought
from gear_rl.tasks.sources import Record, Source, load

_HOME = "https://github.com/qiancheng0/ToolRL"
SOURCES = {
    "train": [Source("toolrl train", ("train.parquet", "rlla_4k/train.parquet", "dataset/rlla_4k/train.parquet",
                                      "rlla_sft.json", "rlla_sft_400.json", "toolrl/rlla_sft_400.json"), _HOME)],
    "test": [Source("toolrl test", ("test.parquet", "rlla_4k/test.parquet", "dataset/rlla_4k/test.parquet",
                                    "rlla_4k_test_80.jsonl", "toolrl/rlla_4k_test_80.jsonl"), _HOME)],
    "api_bank": [
        Source(f"API-Bank level {n}", tuple(f"{place}/level-{n}-api_processed.json" for place in
                                            ("api_bank", "benchmarks/API-Bank", "toolrl/api_bank", ".")), _HOME)
        for n in (1, 2, 3)
    ],
}  # fmt: skip
"""Split → files. The training split is the 4k set for RL; where it is not there, the 400 for supervised learning."""
THOUGHT = "<think> I should use the appropriate tool with proper parameters to respond to the user's need. </think>"
_LAYOUT = {
    (True, True): re.compile(
        r"<think>.*?</think>\n<tool_call>\n.*?\n</tool_call>\n<response>.*?</response>", re.DOTALL
    ),
    (True, False): re.compile(r"<think>.*?</think>\n<tool_call>\n.*?\n</tool_call>", re.DOTALL),
    (False, True): re.compile(r"<think>.*?</think>\n<response>.*?</response>", re.DOTALL),
    (False, False): re.compile(r"<think>.*?</think>", re.DOTALL),
}
"""(has calls, has a response) → what a whole turn looks like."""
Call = dict[str, Any]


@dataclass
class ToolRL(SingleTurn):
    name: ClassVar[str] = "toolrl"
    summary: ClassVar[str] = "one turn of tool use with a graded reward: 4k or 400 train, 80 test, API-Bank"
    splits: ClassVar[tuple[str, ...]] = tuple(SOURCES)
    hint_forms: ClassVar[tuple[str, ...]] = ("gold_calls", "solution")

    data: str | None = None
    """Folder with ToolRL's files."""
    hint: str = option("gold_calls", choices=hint_forms)
    """gold_calls: calls and response; solution: with the thought before them."""
    max_turn_tokens: int = option(1024, at_least=1)

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        self.hint_template = DEFAULT_TEMPLATE
        self._loaded: dict[str, list[Row]] = {}

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if split not in SOURCES:
            raise unknown_name("split of task toolrl", split, SOURCES)
        if split not in self._loaded:
            records = [(source, record) for source in SOURCES[split] for record in load(source, self.data)]
            self._loaded[split] = [self._row(s.name, record, f"{split}-{i}") for i, (s, record) in enumerate(records)]
        return choose(self._loaded[split], split, count, seed)

    def _row(self, source: str, record: Record, id: str) -> Row:
        messages, truth = _read(record)
        act = after_thought(truth).strip()  # a thought may speak of "<tool_call>"; that is not one
        try:
            calls = _calls(act) if OPEN in act else []
            correctness(calls, [])  # touches every name and parameter
        except (Unreadable, KeyError, TypeError, AttributeError) as error:
            raise record.fail(f"the reference tool call cannot be read: {error}") from None
        has_response = "<response>" in act
        kind = source.split(" ", 1)[1] if source.startswith("API") else "calls" if calls else "response"
        return {
            "prompt": messages,
            "hint": act if self.hint == "gold_calls" else truth,
            "answer": json.dumps(calls),
            "reference": act,
            "has_response": has_response,
            "id": id,
            "category": f"{kind} and response" if calls and has_response else kind,
        }

    def judge(self, row: Row, completion: str) -> Verdict:
        said, reference = completion.strip(), json.loads(row["answer"])
        layout = (bool(reference), row["has_response"])
        in_form = bool(_LAYOUT[layout].fullmatch(said)) and all(
            said.count(f"<{tag}>") == said.count(f"</{tag}>") == 1
            for tag, wanted in zip(("tool_call", "response"), layout, strict=True)
            if wanted
        )
        correct, malformed = 0.0, 0
        if reference:
            try:
                correct = correctness(reference, _calls(said))
            except (Unreadable, KeyError, TypeError, AttributeError):
                correct, malformed = -3.0, int(OPEN in said)
        success = in_form and correct == (3.0 if reference else 0.0)
        channels = {"format": float(in_form), "correctness": correct}
        first_wrong = None if success else 0
        return Verdict(in_form + correct, success, channels=channels, first_wrong=first_wrong, malformed=malformed)

    def reference(self, row: Row) -> str:
        return f"{THOUGHT}\n{row['reference']}"


def correctness(reference: list[Call], written: list[Call]) -> float:
    """In [−3, 3]; the formula above."""
    if reference == written:
        return 3.0
    score = _shared([call["name"] for call in reference], [call["name"] for call in written])
    most, used = 1.0, set[int]()
    for call in reference:
        most += 1.0 + len(call["parameters"])
        best, best_index = 0.0, None
        for i, other in enumerate(written):
            if i in used or other["name"] != call["name"]:
                continue
            wanted, given = call["parameters"], other["parameters"]
            value = _shared(list(wanted), list(given)) + sum(k in given and given[k] == v for k, v in wanted.items())
            if value > best:
                best, best_index = value, i
        if best_index is not None:
            used.add(best_index)
            score += best
    return 6.0 * score / most - 3.0


def _shared(reference: list[str], written: list[str]) -> float:
    if reference == written:
        return 1.0
    shared = (Counter(reference) & Counter(written)).total()
    return shared / (len(reference) + len(written) - shared)


def _calls(text: str) -> list[Call]:
    """The calls in the first tag, one JSON object a line, as ToolRL reads them."""
    _, opened, rest = text.partition(OPEN)
    inside, closed, _ = rest.partition(CLOSE)
    if not (opened and closed):
        raise Unreadable("no <tool_call> … </tool_call>")
    return [read_json(line) for line in inside.strip().split("\n")]


def _read(record: Record) -> tuple[list[dict[str, str]], str]:
    """Messages and ground truth of any of ToolRL's layouts: for RL, for supervised learning, API-Bank."""
    values = record.values
    if "instruction" in values:
        system, user, truth = record.text("instruction"), record.text("input"), record.text("output")
    elif "prompt" in values:
        given_messages = values["prompt"]
        if not isinstance(given_messages, list) or not all(
            isinstance(m, dict) and isinstance(m.get("content"), str) for m in given_messages
        ):
            raise record.fail("prompt must be a list of messages")
        judged_by = values.get("reward_model") or {}
        reference = judged_by.get("ground_truth") if isinstance(judged_by, dict) else None
        messages = [{"role": str(m.get("role")), "content": m["content"]} for m in given_messages]
        return messages, reference if isinstance(reference, str) else record.text("ground_truth")
    else:
        system, user, truth = record.text("system"), record.text("user"), _api_bank_truth(record)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}], truth


def _api_bank_truth(record: Record) -> str:
    answer = record.values.get("answer")
    try:
        calls = ast.literal_eval(answer) if isinstance(answer, str) else answer  # a Python literal, nothing is run
        lines = [json.dumps(call) for call in (calls if isinstance(calls, list) else [calls])]
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise record.fail(f"the answer is no literal: {error}") from None
    if not lines:
        raise GearError(f"{record.where}: the answer holds no call.")
    return "\n".join([f"{THOUGHT}\n{OPEN}", *lines, CLOSE])
