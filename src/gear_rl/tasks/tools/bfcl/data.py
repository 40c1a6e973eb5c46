"""BFCL v3 in its published layout → rows.

BFCL_v3_<category>.json, possible_answer/BFCL_v3_<category>.json        one JSON object a line
multi_turn_func_doc/<api>.json                                          the simulated APIs' documents
"""

from __future__ import annotations

import importlib.util
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.errors import GearError, unknown_name
from gear_rl.tasks.base import Row
from gear_rl.tasks.schemas import as_tool
from gear_rl.tasks.tools.bfcl.calls import read_executable, reference_call, tool_name
from gear_rl.tasks.upstream import read_rows

SINGLE_TURN = (
    "simple", "multiple", "parallel", "parallel_multiple", "java", "javascript", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance",
)  # fmt: skip
MULTI_TURN = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
CATEGORIES = SINGLE_TURN + MULTI_TURN
GROUPS = {
    "all": CATEGORIES,
    "single_turn": SINGLE_TURN,
    "multi_turn": MULTI_TURN,
    "live": tuple(name for name in SINGLE_TURN if name.startswith("live_")),
    "non_live": tuple(name for name in SINGLE_TURN if not name.startswith("live_")),
}
API_DOCUMENTS = {
    "GorillaFileSystem": "gorilla_file_system.json", "MathAPI": "math_api.json", "MessageAPI": "message_api.json",
    "TwitterAPI": "posting_api.json", "TicketAPI": "ticket_api.json", "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json", "VehicleControlAPI": "vehicle_control.json",
}  # fmt: skip
GET_IT = (
    "It comes with the official package (pip install --no-deps bfcl-eval==2025.8.6; leave --data out), and lies in "
    "github.com/ShishirPatil/gorilla under berkeley-function-call-leaderboard/bfcl_eval/data."
)
NEW_TOOLS = "These functions are available now as well:\n{tools}\nPlease go on with what I asked for."
REFERENCE_TURNS_OF_ONE_USER_TURN = {"multi_turn_base_154": 1}
"""Its reference has six turns for five of the user's, so the official runner can never pass it. Turns 1 and 2 of the
reference answer the user's turn 1, as in the long-context version of the problem; so they are joined."""

UNPASSABLE = {
    "java_36": "the checker reads every element of a list of any type as text, and the reference has a number and a boolean",
    "java_65": "as java_36, with booleans",
    "java_64": "accepted values of the map are written as text, of which the checker accepts single letters only",
    "live_simple_106-63-0": "required lists have no accepted value at all",
    "live_simple_112-68-0": "required lists have no accepted value at all",
    "live_multiple_862-181-3": "a parameter is demanded that the function does not have",
    "live_multiple_964-207-0": "the reference parameter and the function's required one have different names",
}
"""Entries that no sensible answer passes by the official checker. They stay in, as in the benchmark: its own score counts
them, and its ceiling is below 100 %."""


def packaged_data() -> str:
    """The data folder of the installed official package, or ""."""
    found = importlib.util.find_spec("bfcl_eval")
    folders = list(found.submodule_search_locations or []) if found else []
    return str(Path(folders[0]) / "data") if folders else ""


def language_of(category: str) -> str:
    return {"java": "Java", "javascript": "JavaScript"}.get(category, "Python")


def no_call_wanted(category: str) -> bool:
    return category.endswith("irrelevance")


def load_category(folder: Path, category: str) -> list[Row]:
    path = folder / f"BFCL_v3_{category}.json"
    entries = read_rows(path, ("id", "question"))
    answers: dict[str, Any] = {}
    if not category.endswith("relevance"):
        for answer in read_rows(folder / "possible_answer" / path.name, ("id", "ground_truth")):
            answers[answer["id"]] = answer["ground_truth"]
        for entry in entries:
            if entry["id"] not in answers:
                raise GearError(f"{folder / 'possible_answer' / path.name} has no answer for {entry['id']}.")
    make = _multi_turn_row if category in MULTI_TURN else _single_turn_row
    rows = []
    for entry in entries:
        try:
            rows.append(make(folder, category, entry, answers.get(entry["id"], [])))
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise GearError(f"{path}, {entry['id']}: the entry is not in BFCL v3's layout ({error!r}).") from None
    return rows


def _row(category: str, entry: dict[str, Any], prompt: Any, tools: Any, reference: Any, hint: str, world: Any) -> Row:
    return {
        "prompt": prompt,
        "hint": hint,
        "answer": json.dumps(reference),
        "id": entry["id"],
        "category": category,
        "tools": json.dumps(tools),
        "entry": json.dumps(world),
        "problem": _problem(category, entry["id"]),
    }


def _problem(category: str, entry_id: str) -> str:
    """What rows must share to be the same problem: the four multi-turn categories are variants of one set."""
    number = entry_id.rsplit("_", 1)[-1]
    return f"multi_turn_{number}" if category in MULTI_TURN else entry_id


def _single_turn_row(folder: Path, category: str, entry: dict[str, Any], reference: list[Any]) -> Row:
    functions = entry["function"]
    tools = [_tool(function, language_of(category)) for function in functions]
    world = {"functions": functions}
    hint = "\n".join(
        f"{call.name}({json.dumps(call.arguments)})" for call in reference_calls(category, functions, reference)
    )
    if no_call_wanted(category):
        hint = "None of the functions fits: call none and say so."
    return _row(category, entry, _messages(entry["question"][0]), tools, reference, hint, world)


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _tool(function: dict[str, Any], language: str) -> dict[str, Any]:
    parameters = function["parameters"]
    if language != "Python":  # every argument is a string of code
        properties = {
            key: {
                "type": "string",
                "description": f"{document.get('description', '')} ({language} source of type {document.get('type', 'any')}"
                + (f" of {document['items'].get('type', 'any')}" if isinstance(document.get("items"), dict) else "")
                + ")",
            }
            for key, document in parameters["properties"].items()
        }
        parameters = {**parameters, "properties": properties}
    return as_tool(tool_name(function["name"]), function.get("description", ""), parameters)


def reference_calls(category: str, functions: list[dict[str, Any]], reference: list[Any]) -> list[ToolCall]:
    """Calls the official checker accepts."""
    if category == "live_relevance":  # any call passes
        return [ToolCall(tool_name(functions[0]["name"]), {})]
    documents = {function["name"]: function["parameters"] for function in functions}
    calls = []
    for answer in reference:
        ((name, accepted),) = answer.items()
        if name not in documents and len(functions) == 1:  # two answers abbreviate it; the checker goes by the document
            name = functions[0]["name"]
        calls.append(reference_call(name, accepted, documents.get(name, {}), language_of(category)))
    return calls


@lru_cache(maxsize=64)
def _api(folder: Path, name: str) -> list[dict[str, Any]]:
    if name not in API_DOCUMENTS:
        raise unknown_name("simulated API", name, API_DOCUMENTS)
    return read_rows(folder / "multi_turn_func_doc" / API_DOCUMENTS[name], ("name", "parameters"))


def _multi_turn_row(folder: Path, category: str, entry: dict[str, Any], reference: list[list[str]]) -> Row:
    if entry["id"] in REFERENCE_TURNS_OF_ONE_USER_TURN and len(reference) == len(entry["question"]) + 1:
        at = REFERENCE_TURNS_OF_ONE_USER_TURN[entry["id"]]
        reference = [*reference[:at], reference[at] + reference[at + 1], *reference[at + 2 :]]
    if len(reference) != len(entry["question"]):
        raise GearError(f"{entry['id']}: {len(reference)} reference turns for {len(entry['question'])} user turns.")
    documents = [document for name in entry["involved_classes"] for document in _api(folder, name)]
    order = {document["name"]: list(document["parameters"]["properties"]) for document in documents}
    calls = [[read_executable(text, order, entry["id"]) for text in turn] for turn in reference]
    excluded = set(entry.get("excluded_function") or ())
    later = {turn: set(names) for turn, names in (entry.get("missed_function") or {}).items()}
    hidden = set().union(*later.values())
    tools = {document["name"]: _tool(document, "Python") for document in documents if document["name"] not in excluded}
    users = []
    for number, messages in enumerate(entry["question"]):
        new = [tools[name] for name in tools if name in later.get(str(number), ())]
        notice = [{"role": "user", "content": NEW_TOOLS.format(tools=json.dumps(new))}] if new else []
        users.append(_messages(messages) + notice)
    world = {
        "id": entry["id"],
        "initial_config": entry["initial_config"],
        "involved_classes": entry["involved_classes"],
        "users": users,
        "methods": sorted(tools),
        "calls": [[{"name": call.name, "arguments": call.arguments} for call in turn] for turn in calls],
    }
    hint = "\n".join(
        f"Turn {number}: " + ("; ".join(f"{c.name}({json.dumps(c.arguments)})" for c in turn) or "no call is possible")
        for number, turn in enumerate(calls, 1)
    )
    shown = [tool for name, tool in tools.items() if name not in hidden]
    return _row(category, entry, users[0], shown, reference, hint, world)
