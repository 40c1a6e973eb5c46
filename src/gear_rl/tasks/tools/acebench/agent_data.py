"""ACEBench's agent categories in their published layout → rows, starting states included.

The data holds the problems, the reference calls ("mile_stone") and the end states, but of the starting states only two
switches. The rest is recovered from the end states of the whole file: a message with a date was there before, as was a
reminder whose id is not its place; what a diner spent is added to the balance again; a traveller's account or reservation is
what most end states say it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.tasks.base import Row
from gear_rl.tasks.schemas import as_tool
from gear_rl.tasks.tools.acebench.agent_judge import MISSPELT
from gear_rl.tasks.tools.acebench.agent_world import APPS, AgentWorld
from gear_rl.tasks.tools.acebench.apps import State
from gear_rl.tasks.tools.acebench.milestones import Step, corrected, read_milestones
from gear_rl.tasks.upstream import read_rows

PHONE = """You act for the user on a phone: text messages, reminders and food delivery. It is 2024-06-11, 16:00.
Names are full names. Take texts as they were given to you. {way}"""
TRAVEL = """You act for the user at an airline: bookings and changes of bookings. It is 2024-07-15, 08:00.
Cabins are "Economy Class" and "Business Class"; one pays by "cash" or "bank". Checked bags cost 50 yuan each beyond the free
ones: 1 in economy and 2 in business for regular members, 2 and 3 for silver, 3 and 3 for gold. {way}"""
STEPS = "Make one call at a time and decide on the next by its answer. When everything is done, say so without a call."
DIALOGUE = """Make one call at a time and decide on the next by its answer. Ask the user for what you need to know and cannot
look up; a turn without a call is read by the user. If the inbox is full, ask which message may go."""

MISNAMED = {"payment_methods": "payment_method"}
"""Required parameters that a function's document names otherwise than it describes them."""


def load_agent(folder: Path, category: str, opening: Callable[[str], str]) -> list[Row]:
    """`opening`: from a dialogue's instruction to the user's first message."""
    path = folder / f"data_{category}.json"
    answers_path = folder / "possible_answer" / path.name
    entries = read_rows(path, ("id", "question", "function", "involved_classes", "initial_config"))
    answers = {row["id"]: row for row in read_rows(answers_path, ("id", "ground_truth", "mile_stone"))}
    rows = []
    try:
        truths = {key: _merged(answer["ground_truth"]) for key, answer in answers.items()}
        start = starting_state(truths.values())
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise GearError(f"{answers_path}: the end states are not in ACEBench's layout ({error!r}).") from None
    for entry in entries:
        if entry["id"] not in answers:
            raise GearError(f"{answers_path} has no answer for {entry['id']}.")
        try:
            steps = read_milestones(answers[entry["id"]]["mile_stone"], f"{answers_path}, {entry['id']}")
            rows.append(_row(category, entry, truths[entry["id"]], steps, start, opening))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise GearError(f"{path}, {entry['id']}: the entry is not in ACEBench's layout ({error!r}).") from None
    return rows


def _row(
    category: str,
    entry: dict[str, Any],
    truth: dict[str, State],
    steps: list[list[Step]],
    start: dict[str, State],
    opening: Callable[[str], str],
) -> Row:
    unknown = [name for name in entry["involved_classes"] if name not in APPS]
    if unknown:
        raise GearError(f"{entry['id']}: no simulated API {', '.join(unknown)}; there are {', '.join(APPS)}.")
    tools = [_tool(function) for function in entry["function"]]
    begin = {name: {**start[name], **entry["initial_config"].get(name, {})} for name in entry["involved_classes"]}
    reference = corrected(entry["id"], steps[0])
    if reference != steps[0]:
        steps = [reference, *steps]
    rules, way = TRAVEL if "Travel" in begin else PHONE, DIALOGUE if category == "agent_multi_turn" else STEPS
    asked = opening(entry["question"]) if category == "agent_multi_turn" else entry["question"]
    return {
        "prompt": [{"role": "system", "content": rules.format(way=way)}, {"role": "user", "content": asked}],
        "hint": "\n".join(f"{call.name}({json.dumps(call.arguments)})" for step in reference for call in step),
        "answer": json.dumps(
            {
                "state": truth,
                "exact": _exact(truth, begin, tools, reference),
                "steps": [[[asdict(call) for call in step] for step in one] for one in steps],
            }
        ),
        "id": entry["id"],
        "category": category,
        "tools": json.dumps(tools),
        "functions": "[]",
        "problem": f"{category}: {entry['question']}",
        "world": json.dumps({"start": begin, "instruction": entry["question"]}),
    }


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    tool = as_tool(function["name"], function.get("description", ""), function["parameters"])
    schema = tool["function"]["parameters"]
    names = [MISNAMED.get(name, name) for name in schema.get("required", [])]
    schema["required"] = [name for name in names if name in schema["properties"]]
    return tool


def _exact(
    truth: dict[str, State], start: dict[str, State], tools: list[Any], reference: list[Step]
) -> dict[str, State]:
    """The end state under the right names. A class whose name is misspelt in the data is what the reference calls leave: the
    benchmark never compared it, and two such states belong to another beginning (they lack a reminder that is there)."""
    world = AgentWorld(start, tools)
    for call in (call for step in reference for call in step):
        world.call(call)
    return {
        MISSPELT.get(name, name): world.state()[MISSPELT[name]] if name in MISSPELT else truth[name] for name in truth
    }


def _merged(ground_truth: list[dict[str, State]]) -> dict[str, State]:
    return {name: state for part in ground_truth for name, state in part.items()}


def starting_state(truths: Iterable[dict[str, State]]) -> dict[str, State]:
    """What every problem starts from, by class and attribute, out of the end states of all."""
    inbox: State = {}
    reminders: State = {}
    diners: State = {}
    travellers: dict[str, Counter[str]] = {}
    reservations: dict[str, Counter[str]] = {}
    for truth in truths:
        states = {MISSPELT.get(name, name): state for name, state in truth.items()}
        for number, message in states.get("MessageApi", {}).get("inbox", {}).items():
            if "time" in message:
                inbox[number] = message
        for number, reminder in states.get("ReminderApi", {}).get("reminder_list", {}).items():
            if reminder["reminder_id"] != int(number):
                reminders[number] = reminder
        food = states.get("FoodPlatform", {"users": {}, "orders": []})
        for name, user in food["users"].items():
            spent = sum(order["total_price"] for order in food["orders"] if order["user_name"] == name)
            diners[name] = {**user, "balance": user["balance"] + spent}
        travel = states.get("Travel", {"users": {}, "reservations": []})
        for key, user in travel["users"].items():
            travellers.setdefault(key, Counter())[json.dumps(user)] += 1
        for reservation in travel["reservations"]:
            if "origin" in reservation:
                reservations.setdefault(reservation["reservation_id"], Counter())[json.dumps(reservation)] += 1
    return {
        "BaseApi": {},
        "MessageApi": {"inbox": _in_order(inbox)},
        "ReminderApi": {"reminder_list": _in_order(reminders)},
        "FoodPlatform": {"users": diners, "logged_in_users": [], "orders": []},
        "Travel": {"users": _usual(travellers), "reservations": list(_usual(reservations).values())},
    }


def _usual(seen: dict[str, Counter[str]]) -> State:
    return {key: json.loads(counts.most_common(1)[0][0]) for key, counts in seen.items()}


def _in_order(records: State) -> State:
    return {number: records[number] for number in sorted(records, key=int)}
