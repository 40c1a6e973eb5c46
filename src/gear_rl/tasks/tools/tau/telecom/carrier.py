"""τ²-bench telecom, the carrier's side: customers, lines, bills and plans, and the agent's tools for them.

Written from the benchmark's database, rules and reference calls. What the tools do not check (whether a bill is overdue, or a
contract has ended) is for the agent to know: the rules say so.
"""

from __future__ import annotations

import copy
from typing import Any

from gear_rl.chat.tool_calls import Refused

Record = dict[str, Any]
TODAY = "2025-02-25"
ENDED = "2025-02-01"
"""The end of a contract that is over."""
TABLES = {
    "customers": "customer_id",
    "lines": "line_id",
    "bills": "bill_id",
    "plans": "plan_id",
    "devices": "device_id",
}
"""Table → the key of its records."""


class Carrier:
    """Every public method is a tool of the agent; its first line tells the agent what it does."""

    def __init__(self, tables: dict[str, list[Record]]) -> None:
        self._tables = {
            name: {record[key]: copy.deepcopy(record) for record in tables[name]} for name, key in TABLES.items()
        }

    def get_customer_by_phone(self, phone_number: str) -> Any:
        """Find the customer who has a phone number, as a contact or on a line."""
        return self._customer_with(phone_number)

    def get_customer_by_id(self, customer_id: str) -> Any:
        """Get a customer's record."""
        return self._get("customers", customer_id)

    def get_customer_by_name(self, full_name: str, dob: str) -> Any:
        """Find customers by full name and date of birth (YYYY-MM-DD)."""
        found = [
            customer
            for customer in self._tables["customers"].values()
            if customer["full_name"].lower() == full_name.lower() and customer["date_of_birth"] == dob
        ]
        return {"customers": found}

    def get_details_by_id(self, id: str) -> Any:
        """Get the record of a customer (C…), line (L…), bill (B…), plan (P…) or device (D…) by its id."""
        table = {"C": "customers", "L": "lines", "B": "bills", "P": "plans", "D": "devices"}.get(id[:1])
        if table is None:
            raise Refused(f"{id!r} is no id of a customer, line, bill, plan or device")
        return self._get(table, id)

    def get_bills_for_customer(self, customer_id: str, limit: int = 12) -> Any:
        """Get a customer's bills, the latest first."""
        bills = [self._get("bills", key) for key in self._get("customers", customer_id)["bill_ids"]]
        return {"bills": sorted(bills, key=lambda bill: bill["issue_date"], reverse=True)[: max(0, limit)]}

    def send_payment_request(self, customer_id: str, bill_id: str) -> Any:
        """Ask the customer to pay a bill. Only one bill at a time can await payment."""
        bill = self._bill(customer_id, bill_id)
        waiting = [b["bill_id"] for b in self._bills(customer_id) if b["status"] == "Awaiting Payment"]
        if waiting:
            raise Refused(f"bill {waiting[0]} awaits payment already")
        bill["status"] = "Awaiting Payment"
        return {"done": f"a payment request for bill {bill_id} was sent"}

    def get_data_usage(self, customer_id: str, line_id: str) -> Any:
        """Get what a line has used, may use and was refuelled with in this period, in GB."""
        line = self._line(customer_id, line_id)
        return {
            "line_id": line_id,
            "data_used_gb": line["data_used_gb"],
            "data_limit_gb": self._get("plans", line["plan_id"])["data_limit_gb"],
            "data_refueling_gb": line["data_refueling_gb"],
        }

    def refuel_data(self, customer_id: str, line_id: str, gb_amount: float) -> Any:
        """Add data to a line, at its plan's price per GB."""
        line = self._line(customer_id, line_id)
        if not 0 < gb_amount < 1000:
            raise Refused("the amount must be above 0 GB")
        line["data_refueling_gb"] += gb_amount
        charge = gb_amount * self._get("plans", line["plan_id"])["data_refueling_price_per_gb"]
        return {"done": f"{gb_amount} GB were added to line {line_id}", "charge": charge}

    def enable_roaming(self, customer_id: str, line_id: str) -> Any:
        """Let a line use data in other networks, abroad."""
        self._line(customer_id, line_id)["roaming_enabled"] = True
        return {"done": f"roaming is enabled for line {line_id}"}

    def disable_roaming(self, customer_id: str, line_id: str) -> Any:
        """Stop a line from using data in other networks, abroad."""
        self._line(customer_id, line_id)["roaming_enabled"] = False
        return {"done": f"roaming is disabled for line {line_id}"}

    def suspend_line(self, customer_id: str, line_id: str, reason: str) -> Any:
        """Suspend an active line."""
        line = self._line(customer_id, line_id)
        if line["status"] != "Active":
            raise Refused(f"line {line_id} is not active")
        line["status"], line["suspension_start_date"] = "Suspended", TODAY
        return {"done": f"line {line_id} is suspended"}

    def resume_line(self, customer_id: str, line_id: str) -> Any:
        """Lift a line's suspension. The phone must be rebooted to get service again."""
        line = self._line(customer_id, line_id)
        if line["status"] not in ("Suspended", "Pending Activation"):
            raise Refused(f"line {line_id} is not suspended")
        line["status"], line["suspension_start_date"] = "Active", None
        return {"done": f"line {line_id} is active"}

    def transfer_to_human_agents(self, summary: str) -> Any:
        """Hand the case over to a human agent, with a summary. This ends your part."""
        return {"done": "transferred"}

    # ------------------------------------------------------------------------------------ what the phone and the judge see
    def _get(self, table: str, key: str) -> Record:
        record = self._tables[table].get(key)
        if record is None:
            raise Refused(f"there is no {table.removesuffix('s')} {key!r}")
        return record

    def _bills(self, customer_id: str) -> list[Record]:
        return [self._get("bills", key) for key in self._get("customers", customer_id)["bill_ids"]]

    def _bill(self, customer_id: str, bill_id: str) -> Record:
        if bill_id not in self._get("customers", customer_id)["bill_ids"]:
            raise Refused(f"customer {customer_id} has no bill {bill_id!r}")
        return self._get("bills", bill_id)

    def _line(self, customer_id: str, line_id: str) -> Record:
        if line_id not in self._get("customers", customer_id)["line_ids"]:
            raise Refused(f"customer {customer_id} has no line {line_id!r}")
        return self._get("lines", line_id)

    def _customer_with(self, phone_number: str) -> Record:
        for customer in self._tables["customers"].values():
            numbers = [
                customer["phone_number"],
                *(self._get("lines", key)["phone_number"] for key in customer["line_ids"]),
            ]
            if _digits(phone_number) in map(_digits, numbers):
                return customer
        raise Refused(f"no customer has the number {phone_number!r}")

    def _line_with(self, phone_number: str) -> Record:
        for line in self._tables["lines"].values():
            if _digits(line["phone_number"]) == _digits(phone_number):
                return line
        raise Refused(f"no line has the number {phone_number!r}")

    def _used_up(self, line: Record) -> bool:
        return line["data_used_gb"] >= self._get("plans", line["plan_id"])["data_limit_gb"] + line["data_refueling_gb"]


def _digits(phone_number: str) -> str:
    """However it is written, it is the same number."""
    return "".join(sign for sign in phone_number if sign.isdigit())
