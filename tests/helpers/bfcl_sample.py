"""A tiny BFCL of our own making in the published layout, and mutations of answers, for test_bfcl.py.

`python tests/tasks/bfcl_sample.py DIR COUNT` compares our judge with the official functions on a whole data folder.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from function_schema import function

from gear_rl.chat.tool_calls import ToolCall, read_turn
from gear_rl.tasks.base import replay
from gear_rl.tasks.tools.bfcl import Bfcl
from gear_rl.tasks.tools.bfcl.data import MULTI_TURN, language_of

AREA = function(
    "shapes.area", "Area of a rectangle.", ["width", "height"], "dict",
    width={"type": "float", "description": "Width."},
    height={"type": "integer", "description": "Height."},
    unit={"type": "string", "description": "Unit."},
    tags={"type": "array", "items": {"type": "string"}, "description": "Labels."},
    style={"type": "dict", "properties": {"colour": {"type": "string"}}, "description": "Looks."},
)  # fmt: skip
COUNT = function("count_things", "Count.", ["kind"], "dict", kind="string")
JAVA = function(
    "Mixer.run", "Run.", ["loud", "times", "parts"], "dict",
    loud={"type": "boolean", "description": "Loud."},
    times={"type": "long", "description": "Times."},
    parts={"type": "ArrayList", "items": {"type": "String"}, "description": "Parts."},
    options={"type": "HashMap", "description": "Options."},
)  # fmt: skip
SCRIPT = function(
    "mix", "Mix.", ["speed", "names"], "dict",
    speed={"type": "float", "description": "Speed."},
    names={"type": "array", "items": {"type": "String"}, "description": "Names."},
    deep={"type": "dict", "description": "Settings."},
)  # fmt: skip
RECTANGLE = {"shapes.area": {"width": [2.5], "height": [4], "unit": ["cm", ""], "tags": [["a", "b"], ""]}}
STYLED = {"shapes.area": {"width": [3], "height": [1], "unit": [""], "style": [{"colour": ["red", "crimson"]}, ""]}}
SINGLE: dict[str, tuple[list[Any], list[Any] | None]] = {
    "simple": ([AREA], [RECTANGLE]),
    "multiple": ([AREA, COUNT], [{"count_things": {"kind": ["ants", "ant"]}}]),
    "parallel": ([AREA], [RECTANGLE, STYLED]),
    "parallel_multiple": ([AREA, COUNT], [STYLED, {"count_things": {"kind": ["bees"]}}]),
    "java": ([JAVA], [{"Mixer.run": {"loud": [True], "times": [7], "parts": [["x", "y"]], "options": [{"a": [1]}]}}]),
    "javascript": ([SCRIPT], [{"mix": {"speed": [1.5], "names": [["u", "v"]], "deep": [{"k": ["w"]}]}}]),
    "irrelevance": ([COUNT], None),
    "live_relevance": ([COUNT], None),
}
FILES = {
    "GorillaFileSystem": {
        "root": {
            "home": {
                "type": "directory",
                "contents": {
                    "notes.txt": {"type": "file", "content": "b\na"},
                    "old": {"type": "directory", "contents": {}},
                },
            }
        }
    }
}
DIALOGUE = [
    ["cd(folder='old')", "mkdir(dir_name='new')"],
    ["cd('..')", "mv(source='notes.txt', destination='old')"],
    ["power(base=2, exponent=3)"],
]
DOCUMENTS = {
    "gorilla_file_system.json": {
        "cd": {"folder": "string"},
        "mkdir": {"dir_name": "string"},
        "mv": {"source": "string", "destination": "string"},
        "ls": {"a": "boolean"},
        "sort": {"file_name": "string"},
    },
    "math_api.json": {"power": {"base": "float", "exponent": "float"}, "add": {"a": "float", "b": "float"}},
}


def write_sample(folder: Path) -> Path:
    (folder / "possible_answer").mkdir(parents=True)
    (folder / "multi_turn_func_doc").mkdir()
    for category, (functions, reference) in SINGLE.items():
        ask = [[{"role": "user", "content": f"Please, {category}."}]]
        _write(folder, category, {"id": f"{category}_0", "question": ask, "function": functions}, reference)
    for category, turns, reference in (
        ("multi_turn_base", ["Make it.", "Move it.", "Compute."], DIALOGUE),
        ("multi_turn_miss_func", ["Make it.", "Move it.", None, "Compute."], [DIALOGUE[0], [], *DIALOGUE[1:]]),
    ):
        entry = {
            "id": f"{category}_0",
            "question": [[{"role": "user", "content": text}] if text else [] for text in turns],
            "initial_config": FILES,
            "path": [],
            "involved_classes": ["GorillaFileSystem", "MathAPI"],
        }
        if "miss_func" in category:
            entry["missed_function"] = {"2": ["mv"]}
        _write(folder, category, entry, reference)
    for name, functions in DOCUMENTS.items():
        lines = [
            {
                "name": function,
                "description": f"{function}.",
                "parameters": {"type": "dict", "properties": {k: {"type": v} for k, v in keys.items()}, "required": []},
            }
            for function, keys in functions.items()
        ]
        (folder / "multi_turn_func_doc" / name).write_text("\n".join(map(json.dumps, lines)))
    return folder


def _write(folder: Path, category: str, entry: dict[str, Any], reference: Any) -> None:
    name = f"BFCL_v3_{category}.json"
    (folder / name).write_text(json.dumps(entry) + "\n")
    if reference is not None:
        answer = {"id": entry["id"], "ground_truth": reference}
        (folder / "possible_answer" / name).write_text(json.dumps(answer) + "\n")


# ------------------------------------------------------------------------------------------------ mutated answers
def mutate_value(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool):
        return rng.choice([not value, str(value), int(value)])
    if isinstance(value, int | float):
        return rng.choice([value + 1, float(value), str(value), [value], -value, None])
    if isinstance(value, str):
        return rng.choice([value.upper(), value + " ", value.replace(" ", "_"), value[::-1], "", [value], 3])
    if isinstance(value, list):
        return rng.choice(
            [value[::-1], value[:-1], value + value[:1], str(value), [mutate_value(v, rng) for v in value]]
        )
    if isinstance(value, dict) and value:
        key = rng.choice(sorted(value))
        rest = {k: v for k, v in value.items() if k != key}
        return rng.choice([rest, {**value, key: mutate_value(value[key], rng)}, {**value, "more": 1}])
    return "something"


def mutate_calls(calls: list[ToolCall], rng: random.Random) -> list[ToolCall]:
    """One or two small changes: to an argument, a name, the order or the number of calls."""
    calls = list(calls)
    for _ in range(rng.choice([1, 1, 2])):
        if not calls:
            return [ToolCall("made_up", {"x": 1})]
        at = rng.randrange(len(calls))
        name, arguments = calls[at].name, dict(calls[at].arguments)
        what = rng.choice(["value", "value", "value", "drop", "add", "name", "shuffle", "twice", "less", "invent"])
        if what in ("value", "drop") and arguments:
            key = rng.choice(sorted(arguments))
            value = arguments.pop(key)
            if what == "value":
                arguments[key] = mutate_value(value, rng)
            calls[at] = ToolCall(name, arguments)
        elif what == "add":
            calls[at] = ToolCall(name, {**arguments, "extra": rng.choice([1, "x", True])})
        elif what == "name":
            calls[at] = ToolCall(rng.choice([name + "x", name.replace("_", "."), "made_up"]), arguments)
        elif what == "shuffle":
            rng.shuffle(calls)
        elif what == "twice":
            calls.insert(at, calls[at])
        elif what == "less":
            del calls[at]
        elif what == "invent":
            calls.insert(at, ToolCall("made_up", {}))
    return calls


# ---------------------------------------------------------------------------------- the official functions, directly
def official() -> SimpleNamespace:
    stub = ModuleType("bfcl_eval.constants.model_config")
    flags = SimpleNamespace(underscore_to_dot=True)
    stub.MODEL_CONFIG_MAPPING = {"direct": flags}  # type: ignore[attr-defined]
    sys.modules["bfcl_eval.constants.model_config"] = stub
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    return SimpleNamespace(ast=ast_checker, turns=multi_turn_checker, numbers=itertools.count())


def official_single(direct: SimpleNamespace, row: dict[str, Any], calls: list[ToolCall]) -> bool:
    if row["category"].endswith("relevance"):
        return bool(calls) == (row["category"] == "live_relevance")
    decoded = [{call.name: call.arguments} for call in calls]
    try:
        return direct.ast(
            json.loads(row["entry"])["functions"],
            decoded,
            json.loads(row["answer"]),
            language_of(row["category"]),
            row["category"],
            "direct",
        )["valid"]
    except Exception:  # the official code raises on some answers: such an answer is wrong
        return False


def official_dialogue(direct: SimpleNamespace, row: dict[str, Any], turns: list[list[list[ToolCall]]]) -> bool:
    """`turns`: calls by user turn and step, strings as the benchmark's own handlers make them."""
    entry, reference = json.loads(row["entry"]), json.loads(row["answer"])
    decoded = [
        [[f"{c.name}({','.join(f'{k}={v!r}' for k, v in c.arguments.items())})" for c in step] for step in turn]
        for turn in turns
    ]
    return direct.turns(decoded, reference, entry, row["category"], f"direct{next(direct.numbers)}")["valid"]


def said_dialogue(turns: list[list[list[ToolCall]]]) -> list[str]:
    return [text for turn in turns for text in (*("\n".join(map(str, step)) for step in turn), "Done.")]


def reference_dialogue(row: dict[str, Any]) -> list[list[list[ToolCall]]]:
    return [[[ToolCall(**call)] for call in turn] for turn in json.loads(row["entry"])["calls"]]


def mutate_dialogue(turns: list[list[list[ToolCall]]], rng: random.Random) -> list[list[list[ToolCall]]]:
    at = rng.randrange(len(turns))
    flat = [call for step in turns[at] for call in step]
    if rng.random() < 0.15 and at + 1 < len(turns):  # a turn too late
        return [*turns[:at], [], [*turns[at], *turns[at + 1]], *turns[at + 2 :]]
    return [*turns[:at], [[call] for call in mutate_calls(flat, rng)], *turns[at + 1 :]]


def agreement(task: Bfcl, count: int, seed: int = 0) -> dict[tuple[str, str], list[int]]:
    """{(category, kind): [agreed, compared, accepted]} on `count` mutated answers per category, reference and empty ones."""
    direct, rng, found = official(), random.Random(seed), dict[tuple[str, str], list[int]]()
    by_category: dict[str, list[Any]] = {}
    for row in task.rows("test", None):
        by_category.setdefault(row["category"], []).append(row)
    for category, rows in by_category.items():
        mutated = [rng.choice(rows) for _ in range(count)]
        for kind, chosen in (("reference", rows), ("empty", rows), ("mutated", mutated)):
            for row in chosen:
                if category in MULTI_TURN:
                    turns = reference_dialogue(row)
                    if kind == "empty":
                        turns = [[] for _ in turns]
                    elif kind == "mutated":
                        turns = mutate_dialogue(turns, rng)
                    if any(
                        len(turn) > 20 for turn in turns
                    ):  # the official runner would break these off before judging
                        turns = [turn if len(turn) <= 20 else [[c for step in turn for c in step]] for turn in turns]
                    said, expected = said_dialogue(turns), official_dialogue(direct, row, turns)
                else:
                    calls = [] if kind == "empty" else read_turn(task.reference(row)[0]).calls
                    calls = mutate_calls(calls, rng) if kind == "mutated" else calls
                    said, expected = ["\n".join(map(str, calls))], official_single(direct, row, calls)
                got = replay(task, row, said).success
                entry = found.setdefault((category, kind), [0, 0, 0])
                entry[0] += got == expected
                entry[1] += 1
                entry[2] += got
    return found


if __name__ == "__main__":
    whole = Bfcl(data=sys.argv[1])
    for (category, kind), (agreed, compared, accepted) in agreement(whole, int(sys.argv[2])).items():
        print(f"{category:28} {kind:8} agree {agreed}/{compared}   accepted {accepted}")
    whole.close()
