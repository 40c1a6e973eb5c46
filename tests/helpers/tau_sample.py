"""A shop and an airline of our own making, small, in τ-bench's layouts, for test_tau.py."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

HOME = {"address1": "1 Elm", "address2": "", "city": "Rome", "country": "IT", "state": "LZ", "zip": "00100"}


def _method(source: str, key: str, **more: Any) -> dict[str, Any]:
    return {key: {"source": source, "id": key, **more}}


def _order(key: str, status: str, price: float, paid_by: str) -> dict[str, Any]:
    item = {"name": "Lamp", "product_id": "p1", "item_id": "i1", "price": price, "options": {"colour": "red"}}
    paid = {"transaction_type": "payment", "amount": price, "payment_method_id": paid_by}
    return {
        "order_id": key, "user_id": "ann_1", "address": dict(HOME), "items": [item], "fulfillments": [],
        "status": status, "payment_history": [paid],
    }  # fmt: skip


def _variant(key: str, price: float, available: bool = True) -> dict[str, Any]:
    return {"item_id": key, "options": {"colour": key}, "available": available, "price": price}


RETAIL = {
    "users": {
        "ann_1": {
            "name": {"first_name": "Ann", "last_name": "Lee"},
            "address": dict(HOME),
            "email": "ann@example.com",
            "payment_methods": _method("gift_card", "gift_card_1", balance=50.0)
            | _method("credit_card", "credit_card_1")
            | _method("paypal", "paypal_1"),
            "orders": ["#W1", "#W2"],
        }
    },
    "orders": {
        "#W1": _order("#W1", "pending", 20.1, "credit_card_1"),
        "#W2": _order("#W2", "delivered", 20.1, "paypal_1"),
        "#W3": _order("#W3", "pending", 30.0, "gift_card_1"),
    },
    "products": {
        "p1": {
            "name": "Lamp",
            "product_id": "p1",
            "variants": {"i1": _variant("i1", 20.1), "i2": _variant("i2", 35.3), "i3": _variant("i3", 9.9, False)},
        }
    },
}


def _flight(number: str, origin: str, destination: str, leaves: str, lands: str) -> dict[str, Any]:
    seats, prices = (
        {"basic_economy": 9, "economy": 2, "business": 1},
        {"basic_economy": 50, "economy": 100, "business": 300},
    )
    day = {"status": "available", "available_seats": seats, "prices": prices}
    return {
        "flight_number": number, "origin": origin, "destination": destination,
        "scheduled_departure_time_est": leaves, "scheduled_arrival_time_est": lands,
        "dates": {"2024-05-20": day, "2024-05-21": day, "2024-05-14": {"status": "landed"}},
    }  # fmt: skip


AIRLINE = {
    "flights": {
        "HAT1": _flight("HAT1", "JFK", "SEA", "08:00:00", "11:00:00"),
        "HAT2": _flight("HAT2", "JFK", "ATL", "07:00:00", "09:00:00"),
        "HAT3": _flight("HAT3", "ATL", "SEA", "10:00:00", "12:00:00"),
    },
    "users": {
        "bob_2": {
            "name": {"first_name": "Bob", "last_name": "Ray"},
            "address": dict(HOME),
            "email": "bob@example.com",
            "dob": "1990-01-01",
            "payment_methods": _method("gift_card", "gift_card_2", amount=500)
            | _method("certificate", "certificate_2", amount=60)
            | _method("credit_card", "credit_card_2"),
            "saved_passengers": [],
            "membership": "gold",
            "reservations": ["RES1"],
        }
    },
    "reservations": {
        "RES1": {
            "reservation_id": "RES1", "user_id": "bob_2", "origin": "JFK", "destination": "SEA", "flight_type": "one_way",
            "cabin": "economy",
            "flights": [
                {"origin": "JFK", "destination": "SEA", "flight_number": "HAT1", "date": "2024-05-20", "price": 80}
            ],
            "passengers": [{"first_name": "Bob", "last_name": "Ray", "dob": "1990-01-01"}],
            "payment_history": [{"payment_id": "credit_card_2", "amount": 80}],
            "created_at": "2024-05-01T00:00:00", "total_baggages": 1, "nonfree_baggages": 0, "insurance": "no",
        }
    },
}  # fmt: skip
RETAIL_TASKS = [
    {
        "user_id": "ann_1",
        "instruction": "You are Ann Lee in 00100. You want to cancel your order #W1, you no longer need it.",
        "actions": [
            {"name": "get_order_details", "kwargs": {"order_id": "#W1"}},
            {"name": "cancel_pending_order", "kwargs": {"order_id": "#W1", "reason": "no longer needed"}},
        ],
        "outputs": ["1,020.1".replace(",", "")],
        "annotator": "",
    },
    {"user_id": "ann_1", "instruction": "You only want to say hello.", "actions": [], "outputs": []},
]
AIRLINE_TASKS = [
    {
        "user_id": "bob_2",
        "instruction": "You are bob_2 and you want to cancel RES1.",
        "actions": [
            {"name": "cancel_reservation", "kwargs": {"reservation_id": "RES1"}},
            {"name": "transfer_to_human_agents", "kwargs": {"summary": "done"}},
        ],
        "outputs": [],
    },
    {"user_id": "bob_2", "instruction": "You want a refund you cannot get.", "actions": [], "outputs": []},
]
_TYPES = {"str": "string", "int": "integer", "float": "number", "list[str]": "array", "list[Record]": "array"}


def schemas(kind: type) -> list[dict[str, Any]]:
    """Schemas from the tools' own signatures; the benchmark's say more, and the same about types."""
    found = []
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            types = {key: str(value) for key, value in method.__annotations__.items() if key != "return"}
            properties = {key: {"type": _TYPES[value]} for key, value in types.items()}
            parameters = {"type": "object", "properties": properties, "required": list(properties)}
            found.append(
                {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}
            )
    return found


def write_sample(folder: Path, kinds: dict[str, type]) -> Path:
    """The JSON export of both domains."""
    for domain, tables, tasks in (("retail", RETAIL, RETAIL_TASKS), ("airline", AIRLINE, AIRLINE_TASKS)):
        (folder / domain / "data").mkdir(parents=True)
        for name, records in tables.items():
            (folder / domain / "data" / f"{name}.json").write_text(json.dumps(records))
        (folder / domain / "wiki.md").write_text(f"Rules of the {domain}.")
        (folder / domain / "tools_schema.json").write_text(json.dumps(schemas(kinds[domain])))
        for split in ("test", "train", "dev") if domain == "retail" else ("test",):
            (folder / domain / f"tasks_{split}.json").write_text(json.dumps(tasks))
    return folder


def write_clone(folder: Path, kinds: dict[str, type]) -> Path:
    """The airline as a clone of the repository has it: tasks and schemas inside Python files."""
    inner = write_sample(folder / "tau_bench" / "envs", kinds) / "airline"
    (inner / "tools_schema.json").unlink()
    (inner / "tasks_test.json").unlink()
    (inner / "tools").mkdir()
    for schema in schemas(kinds["airline"]):
        (inner / "tools" / f"{schema['function']['name']}.py").write_text(
            f"raise SystemExit('never run')\nclass X:\n    @staticmethod\n    def get_info():\n        return {schema!r}\n"
        )
    calls = [
        "Task(user_id={user_id!r}, instruction={instruction!r}, outputs={outputs!r}, actions=[{made}])".format(
            **task, made=", ".join(f"Action(name={a['name']!r}, kwargs={a['kwargs']!r})" for a in task["actions"])
        )
        for task in AIRLINE_TASKS
    ]
    (inner / "tasks_test.py").write_text("raise SystemExit('never run')\nTASKS = [" + ",\n".join(calls) + "]\n")
    return folder
