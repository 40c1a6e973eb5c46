"""ACEBench's simulated airline. Accounts and reservations come from the data; flights, free baggage and fees are facts of the
official simulation.

What its reference states show: another flight number costs nothing, a change of cabin is priced by the flight that was booked
before, and a new reservation names neither origin nor destination.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from gear_rl.chat.tool_calls import Refused
from gear_rl.tasks.tools.acebench.apps import App, State

NOW = datetime(2024, 7, 14, 6)
BAG_PRICE = 50
CABINS = ("Economy Class", "Business Class")
FREE_BAGS = {"regular": (1, 2), "silver": (2, 3), "gold": (3, 3)}
"""Membership → pieces of baggage that cost nothing, by cabin."""
LATE_FEE = 0.1
"""Share of the price that is kept when a flight is cancelled on its last day."""
_FLIGHTS = (
    ("CA1234", "Beijing", "Shanghai", "2024-07-15 08:00:00", "2024-07-15 10:30:00", 5, 1200, 3000),
    ("MU5678", "Shanghai", "Beijing", "2024-07-16 09:00:00", "2024-07-16 11:30:00", 3, 1900, 3000),
    ("CZ4321", "Shanghai", "Beijing", "2024-07-16 20:00:00", "2024-07-16 22:00:00", 8, 2500, 4000),
    ("CZ4352", "Shanghai", "Beijing", "2024-07-17 20:00:00", "2024-07-17 22:00:00", 8, 1600, 2500),
    ("MU3561", "Beijing", "Nanjing", "2024-07-18 08:00:00", "2024-07-18 10:00:00", 8, 1500, 4000),
    ("MU1566", "Beijing", "Nanjing", "2024-07-18 20:00:00", "2024-07-18 22:00:00", 8, 1500, 4000),
    ("CZ1765", "Nanjing", "Shenzhen", "2024-07-17 20:30:00", "2024-07-17 22:00:00", 8, 1500, 2500),
    ("CZ1765", "Nanjing", "Shenzhen", "2024-07-18 12:30:00", "2024-07-18 15:00:00", 8, 1500, 2500),
    ("MH1765", "Xiamen", "Chengdu", "2024-07-17 12:30:00", "2024-07-17 15:00:00", 8, 1500, 2500),
    ("MH2616", "Chengdu", "Xiamen", "2024-07-18 18:30:00", "2024-07-18 21:00:00", 8, 1500, 2500),
    ("MH2616", "Chengdu", "Fuzhou", "2024-07-16 18:30:00", "2024-07-16 21:00:00", 8, 1500, 2500),
)
_COLUMNS = (
    "flight_no", "origin", "destination", "depart_time", "arrival_time", "seats_available", "economy_price",
    "business_price",
)  # fmt: skip


class Travel(App):
    """users: {id: {user_name, password, cash_balance, bank_balance, membership_level}}, reservations."""

    def __init__(self, state: State, device: State) -> None:
        super().__init__(state, device)
        self._flights: list[State] = [dict(zip(_COLUMNS, row, strict=True)) for row in _FLIGHTS]

    def get_user_details(self, user_id: str, password: str) -> State:
        return {key: value for key, value in self._signed_in(user_id, password).items() if key != "password"}

    def get_flight_details(self, origin: str = "", destination: str = "") -> State:
        found = [f for f in self._flights if origin in ("", f["origin"]) and destination in ("", f["destination"])]
        if not found:
            raise Refused("there is no direct flight")
        return {"flights": found}

    def find_transfer_flights(self, origin_city: str, transfer_city: str, destination_city: str) -> State:
        pairs = [
            {"first": first, "second": second}
            for first in self._flights
            for second in self._flights
            if (first["origin"], first["destination"]) == (origin_city, transfer_city)
            and (second["origin"], second["destination"]) == (transfer_city, destination_city)
            and first["arrival_time"] < second["depart_time"]
        ]
        if not pairs:
            raise Refused("there are no two flights that connect")
        return {"connections": pairs}

    def get_reservation_details(self, reservation_id: str = "", user_id: str = "") -> State:
        if not reservation_id and not user_id:
            raise Refused("name a reservation or a user")
        key, value = ("reservation_id", reservation_id) if reservation_id else ("user_id", user_id)
        found = [r for r in self.state["reservations"] if r[key] == value]
        return {"reservations": [{**r, "flight": self._flight_of(r["flight_no"])} for r in found]}

    def reserve_flight(
        self,
        user_id: str,
        password: str,
        flight_no: str,
        cabin: str,
        baggage_count: int,
        payment_method: str = "",
    ) -> State:
        user, flight = self._signed_in(user_id, password), self._flight(flight_no)
        if flight["seats_available"] < 1:
            raise Refused(f"flight {flight_no} is full")
        if baggage_count < 0:
            raise Refused(f"{baggage_count} is no number of bags")
        total = _price(flight, cabin) + BAG_PRICE * max(0, baggage_count - _free_bags(user, cabin))
        self._pay(user, payment_method, total)
        flight["seats_available"] -= 1
        reservations = self.state["reservations"]
        reservation = {
            "reservation_id": f"res_{1 + max(int(r['reservation_id'].removeprefix('res_')) for r in reservations)}",
            "user_id": user_id,
            "flight_no": flight_no,
            "payment_method": payment_method,
            "cabin": cabin,
            "baggage": baggage_count,
        }
        reservations.append(reservation)
        return {"done": "booked", "reservation_id": reservation["reservation_id"], "total_cost": total}

    def modify_flight(
        self,
        user_id: str,
        reservation_id: str,
        new_flight_no: str = "",
        new_cabin: str = "",
        add_baggage: int = 0,
        new_payment_method: str = "",
    ) -> State:
        reservation, user = self._reservation(user_id, reservation_id), self._user(user_id)
        before = self._flight(reservation["flight_no"])
        after = self._flight(new_flight_no) if new_flight_no else before
        if (after["origin"], after["destination"]) != (before["origin"], before["destination"]):
            raise Refused(f"flight {new_flight_no} goes from or to another city")
        if add_baggage < 0:
            raise Refused("bags can be added, not taken away")
        cabin, bags = new_cabin or reservation["cabin"], reservation["baggage"] + add_baggage
        owed = _price(before, cabin) - _price(before, reservation["cabin"])
        if add_baggage:
            owed += BAG_PRICE * max(0, bags - _free_bags(user, cabin))
        self._pay(user, new_payment_method or reservation["payment_method"], owed)
        reservation.update(flight_no=after["flight_no"], cabin=cabin, baggage=bags)
        return {"done": "changed", "paid": owed}

    def cancel_reservation(self, user_id: str, reservation_id: str, reason: str) -> State:
        reservation, user = self._reservation(user_id, reservation_id), self._user(user_id)
        flight = self._flight(reservation["flight_no"])
        left = datetime.fromisoformat(flight["depart_time"]) - NOW
        price = _price(flight, reservation["cabin"])
        free = left > timedelta(days=1) or "airline" in reason.lower()
        refund = price if free else price * (1 - LATE_FEE)
        user["cash_balance"] += refund
        self.state["reservations"].remove(reservation)
        return {"done": "cancelled", "refund": refund}

    def _user(self, user_id: str) -> State:
        if user_id not in self.state["users"]:
            raise Refused(f"there is no user {user_id!r}")
        return self.state["users"][user_id]

    def _signed_in(self, user_id: str, password: str) -> State:
        user = self._user(user_id)
        if user["password"] != password:
            raise Refused("the password is wrong")
        return user

    def _flight_of(self, flight_no: str) -> State | None:
        return next((flight for flight in self._flights if flight["flight_no"] == flight_no), None)

    def _flight(self, flight_no: str) -> State:
        flight = self._flight_of(flight_no)
        if flight is None:
            raise Refused(f"there is no flight {flight_no!r}")
        return flight

    def _reservation(self, user_id: str, reservation_id: str) -> State:
        for reservation in self.state["reservations"]:
            if (reservation["reservation_id"], reservation["user_id"]) == (reservation_id, user_id):
                return reservation
        raise Refused(f"{user_id} has no reservation {reservation_id!r}")

    def _pay(self, user: State, method: str, amount: float) -> None:
        """Take the amount, or give it back where it is negative."""
        if method not in ("cash", "bank"):
            raise Refused(f"one pays by cash or bank, not by {method!r}")
        if user[f"{method}_balance"] < amount:
            raise Refused(f"{amount} yuan are more than the {method} balance")
        user[f"{method}_balance"] -= amount


def _price(flight: State, cabin: str) -> Any:
    return flight[("economy_price", "business_price")[_cabin(cabin)]]


def _free_bags(user: State, cabin: str) -> int:
    return FREE_BAGS[user["membership_level"]][_cabin(cabin)]


def _cabin(name: str) -> int:
    if name not in CABINS:
        raise Refused(f"the cabins are {' and '.join(CABINS)}, not {name!r}")
    return CABINS.index(name)
