"""τ²-bench, as far as data without code goes: retail and airline on the tools of τ-bench.

What differs from τ-bench: rewritten tasks and rules, official train and test splits, one tool more (retail), and a cabin
that follows a change of flights (airline; recalled from the benchmark, not in its data). What is missing, and so not
claimed: the natural-language assertions, which need a judge model (40 of 114 retail tasks have some; the database decides
alone here). The telecom domain is in `telecom/`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gear_rl.chat.tool_calls import Refused
from gear_rl.errors import GearError
from gear_rl.tasks.tools.tau.airline import AirlineTools
from gear_rl.tasks.tools.tau.data import GET_IT as GET_TAU
from gear_rl.tasks.tools.tau.data import Domain, Problem, domain_folder, load_domain
from gear_rl.tasks.tools.tau.records import Record
from gear_rl.tasks.tools.tau.retail import RetailTools
from gear_rl.tasks.tools.tau.service import ServiceTools
from gear_rl.tasks.tools.tau.task import TauBench
from gear_rl.tasks.upstream import data_folder, read_document, read_text

GET_IT = "Clone github.com/sierra-research/tau2-bench (MIT) and give its folder data/tau2/domains."
ITEM_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_item_details",
        "description": "Get the options, availability and price of one item.",
        "parameters": {
            "type": "object",
            "properties": {"item_id": {"type": "string", "description": "The item id, such as '6086499569'."}},
            "required": ["item_id"],
        },
    },
}


class Retail2Tools(RetailTools):
    def get_item_details(self, item_id: str) -> str:
        for product in self._db.each("products"):
            if item_id in product["variants"]:
                return json.dumps(product["variants"][item_id])
        raise Refused("item not found")


class Airline2Tools(AirlineTools):
    def update_reservation_flights(
        self, reservation_id: str, cabin: str, flights: list[Record], payment_id: str
    ) -> str:
        super().update_reservation_flights(reservation_id, cabin, flights, payment_id)
        reservation = self._db.edit("reservations", reservation_id)
        reservation["cabin"] = cabin
        return json.dumps(reservation)


@dataclass
class Tau2Bench(TauBench):
    """Reward: the database is what the reference calls leave, and, where the task's reward basis says so, what had to be
    communicated was said."""

    tau_bench: str = ""
    """Folder of τ-bench, for the tools' schemas (and the airline's database where db.json is missing). Empty: a folder
    tau_bench beside `data`."""
    splits: ClassVar[tuple[str, ...]] = ("train", "test", "base")
    more_tools: ClassVar[tuple[dict[str, Any], ...]] = ()

    def _load(self) -> tuple[Domain, dict[str, list[Problem]]]:
        needs = [f"{self.kind.domain}/{name}" for name in ("tasks.json", "policy.md", "split_tasks.json")]
        folder = data_folder(self.name, self.data, needs, GET_IT, ("data/tau2/domains", "tau2_bench")) / self.kind.domain
        around = [folder.absolute().parents[1], Path(self.data or "").expanduser().absolute().parent]
        beside = self.tau_bench or str(next((place for place in around if (place / "tau_bench").is_dir()), around[0]))
        try:
            tau = load_domain(domain_folder(self.name, beside, self.kind.domain, self.kind.tables), self.kind.tables)
        except GearError as error:
            raise GearError(
                f"{error} τ²'s data has no tool schemas: --set task.tau_bench=DIR names τ-bench's. {GET_TAU}"
            ) from None
        tables = read_document(folder / "db.json", dict) if (folder / "db.json").exists() else tau.tables
        missing = [name for name in self.kind.tables if not isinstance(tables.get(name), dict)]
        if missing:
            raise GearError(f"{folder / 'db.json'} lacks the tables {', '.join(missing)}.")
        schemas = [schema for schema in tau.tools if schema["function"]["name"] != "think"]
        rules = read_text(folder / "policy.md")
        return Domain(tables, rules, [*schemas, *self.more_tools]), _problems(folder)


def _problems(folder: Path) -> dict[str, list[Problem]]:
    by_id: dict[str, Problem] = {}
    path = folder / "tasks.json"
    for number, item in enumerate(read_document(path, list)):
        try:
            judged = item["evaluation_criteria"]
            actions = [{"name": a["name"], "arguments": a["arguments"]} for a in judged.get("actions") or []]
            outputs = (judged.get("communicate_info") or []) if "COMMUNICATE" in judged["reward_basis"] else []
            wish = item["user_scenario"]["instructions"]
            parts = [wish.get(key) for key in ("known_info", "unknown_info", "reason_for_call", "task_instructions")]
            instruction = "\n".join(part for part in parts if part)
            by_id[str(item["id"])] = Problem(str(item["id"]), "", instruction, actions, outputs)
        except (KeyError, TypeError, AttributeError) as error:
            raise GearError(f"{path}, task {number}: not in τ²-bench's layout ({error!r}).") from None
    splits = read_document(folder / "split_tasks.json", dict)
    unknown = [key for keys in splits.values() for key in keys if str(key) not in by_id]
    if unknown:
        raise GearError(
            f"{folder / 'split_tasks.json'} names tasks that {path} lacks: {', '.join(map(str, unknown[:5]))}."
        )
    return {split: [by_id[str(key)] for key in keys] for split, keys in splits.items()}


@dataclass
class Tau2Retail(Tau2Bench):
    name: ClassVar[str] = "tau2_retail"
    summary: ClassVar[str] = "the shop with τ²-bench's tasks and splits; natural-language assertions are not judged"
    kind: ClassVar[type[ServiceTools]] = Retail2Tools
    more_tools: ClassVar[tuple[dict[str, Any], ...]] = (ITEM_TOOL,)


@dataclass
class Tau2Airline(Tau2Bench):
    name: ClassVar[str] = "tau2_airline"
    summary: ClassVar[str] = "the airline with τ²-bench's tasks and splits, on τ-bench's database"
    kind: ClassVar[type[ServiceTools]] = Airline2Tools
