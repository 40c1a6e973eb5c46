"""The airline's tools, written from the benchmark's schemas, rules and recorded dialogues (all 572 recorded outputs recur).

What the tools do *not* check is part of the task: cancelling and changing flights obey rules only the agent can apply.
Facts the recordings show: seats are never taken from a flight, changing flights leaves the reservation's cabin as it was,
and certificates sent by the agent have fixed ids.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from gear_rl.chat.tool_calls import Refused
from gear_rl.tasks.tools.tau.records import Record
from gear_rl.tasks.tools.tau.service import ServiceTools

NOW = "2024-05-15T15:00:00"
NEW_RESERVATIONS = ("HATHAT", "HATHAU", "HATHAV")
NEW_CERTIFICATES = ("certificate_3221322", "certificate_3221323", "certificate_3221324")
BAG_PRICE, INSURANCE_PRICE = 50, 30
AIRPORTS = {
    "SFO": "San Francisco", "JFK": "New York", "LAX": "Los Angeles", "ORD": "Chicago", "DFW": "Dallas", "DEN": "Denver",
    "SEA": "Seattle", "ATL": "Atlanta", "MIA": "Miami", "BOS": "Boston", "PHX": "Phoenix", "IAH": "Houston",
    "LAS": "Las Vegas", "MCO": "Orlando", "EWR": "Newark", "CLT": "Charlotte", "MSP": "Minneapolis", "DTW": "Detroit",
    "PHL": "Philadelphia", "LGA": "LaGuardia",
}  # fmt: skip


class AirlineTools(ServiceTools):
    domain = "airline"
    tables = ("flights", "reservations", "users")

    def get_user_details(self, user_id: str) -> str:
        return json.dumps(self._read("users", user_id, "user not found"))

    def get_reservation_details(self, reservation_id: str) -> str:
        return json.dumps(self._read("reservations", reservation_id, "reservation not found"))

    def list_all_airports(self) -> str:
        return json.dumps(AIRPORTS)

    def search_direct_flight(self, origin: str, destination: str, date: str) -> str:
        flights = [f for f in self._available(date) if f["origin"] == origin and f["destination"] == destination]
        return json.dumps([_offer(flight, date) for flight in flights])

    def search_onestop_flight(self, origin: str, destination: str, date: str) -> str:
        """Pairs of flights. An arrival marked "+1" continues on the next day of May 2024, the only month there is.
        Seats and prices of such a second flight are those of the first day: so the recordings have it, and so it stays.
        """
        pairs = []
        for first in self._each_flight():
            if first["origin"] != origin:
                continue
            for second in self._each_flight():
                if second["destination"] != destination or second["origin"] != first["destination"]:
                    continue
                overnight = "+1" in first["scheduled_arrival_time_est"]
                then = f"2024-05-{int(date[-2:]) + 1}" if overnight else date
                if first["scheduled_arrival_time_est"] > second["scheduled_departure_time_est"]:
                    continue
                if _status(first, date) == "available" and _status(second, then) == "available":
                    pairs.append([_offer(first, date, dated=date), _offer(second, date, dated=then)])
        return json.dumps(pairs)

    def book_reservation(
        self,
        user_id: str,
        origin: str,
        destination: str,
        flight_type: str,
        cabin: str,
        flights: list[Record],
        passengers: list[Record],
        payment_methods: list[Record],
        total_baggages: int,
        nonfree_baggages: int,
        insurance: str,
    ) -> str:
        user = self._read("users", user_id, "user not found")
        taken = self._db.read
        reservation_id = next((i for i in NEW_RESERVATIONS if taken("reservations", i) is None), NEW_RESERVATIONS[-1])
        booked = [self._priced(flight, cabin, len(passengers)) for flight in flights]
        total = sum(flight["price"] for flight in booked) * len(passengers)
        total += INSURANCE_PRICE * len(passengers) if insurance == "yes" else 0
        total += BAG_PRICE * nonfree_baggages
        for payment in payment_methods:
            method = user["payment_methods"].get(payment["payment_id"])
            if method is None:
                raise Refused(f"payment method {payment['payment_id']} not found")
            if method["source"] in ("gift_card", "certificate") and method["amount"] < payment["amount"]:
                raise Refused(f"not enough balance in payment method {payment['payment_id']}")
        paid = sum(payment["amount"] for payment in payment_methods)
        if paid != total:
            raise Refused(f"payment amount does not add up, total price is {total}, but paid {paid}")
        user = self._db.edit("users", user_id)
        for payment in payment_methods:
            method = user["payment_methods"].get(payment["payment_id"])
            if method is None:  # a certificate named twice: the benchmark's own tool fails here, when the first is spent
                raise Refused(repr(payment["payment_id"]))
            if method["source"] == "gift_card":
                method["amount"] -= payment["amount"]
            elif method["source"] == "certificate":
                del user["payment_methods"][payment["payment_id"]]
        reservation = {
            "reservation_id": reservation_id,
            "user_id": user_id,
            "origin": origin,
            "destination": destination,
            "flight_type": flight_type,
            "cabin": cabin,
            "flights": booked,
            "passengers": copy.deepcopy(passengers),
            "payment_history": copy.deepcopy(payment_methods),
            "created_at": NOW,
            "total_baggages": total_baggages,
            "nonfree_baggages": nonfree_baggages,
            "insurance": insurance,
        }
        self._db.add("reservations", reservation_id, reservation)
        user["reservations"].append(reservation_id)
        return json.dumps(reservation)

    def cancel_reservation(self, reservation_id: str) -> str:
        self._read("reservations", reservation_id, "reservation not found")
        reservation = self._db.edit("reservations", reservation_id)
        reservation["payment_history"] += [
            {"payment_id": paid["payment_id"], "amount": -paid["amount"]} for paid in reservation["payment_history"]
        ]
        reservation["status"] = "cancelled"
        return json.dumps(reservation)

    def update_reservation_flights(
        self, reservation_id: str, cabin: str, flights: list[Record], payment_id: str
    ) -> str:
        """The whole new list of flights. One kept in the same cabin keeps its price; the cabin field itself stays."""
        reservation = self._read("reservations", reservation_id, "reservation not found")
        people = len(reservation["passengers"])
        new = []
        for flight in flights:
            kept = [
                old
                for old in reservation["flights"]
                if (old["flight_number"], old["date"]) == (flight["flight_number"], flight["date"])
            ]
            if kept and cabin == reservation["cabin"]:
                places = {key: kept[0][key] for key in ("price", "origin", "destination")}
                new.append({**flight, **places})
            else:
                new.append(self._priced(flight, cabin, people))
        owed = (sum(f["price"] for f in new) - sum(f["price"] for f in reservation["flights"])) * people
        self._charge(reservation, payment_id, owed)
        reservation = self._db.edit("reservations", reservation_id)
        reservation["flights"] = new
        return json.dumps(reservation)

    def update_reservation_baggages(
        self, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
    ) -> str:
        reservation = self._read("reservations", reservation_id, "reservation not found")
        extra = max(0, nonfree_baggages - reservation["nonfree_baggages"])
        self._charge(reservation, payment_id, BAG_PRICE * extra)
        reservation = self._db.edit("reservations", reservation_id)
        reservation["total_baggages"] = total_baggages
        reservation["nonfree_baggages"] = nonfree_baggages
        return json.dumps(reservation)

    def update_reservation_passengers(self, reservation_id: str, passengers: list[Record]) -> str:
        reservation = self._read("reservations", reservation_id, "reservation not found")
        if len(passengers) != len(reservation["passengers"]):
            raise Refused("number of passengers does not match")
        reservation = self._db.edit("reservations", reservation_id)
        reservation["passengers"] = copy.deepcopy(passengers)
        return json.dumps(reservation)

    def send_certificate(self, user_id: str, amount: float) -> str:
        user = self._read("users", user_id, "user not found")
        free = [i for i in NEW_CERTIFICATES if i not in user["payment_methods"]]
        if not free:
            raise Refused("too many certificates")
        certificate = {"source": "certificate", "amount": amount, "id": free[0]}
        self._db.edit("users", user_id)["payment_methods"][free[0]] = certificate
        return f"Certificate {free[0]} added to user {user_id} with amount {amount}."

    def _each_flight(self) -> list[Record]:
        return list(self._db.each("flights"))

    def _available(self, date: str) -> list[Record]:
        return [flight for flight in self._each_flight() if _status(flight, date) == "available"]

    def _priced(self, wanted: Record, cabin: str, people: int) -> Record:
        """The flight with today's price, refused unless it can be booked for that many."""
        number, date = wanted["flight_number"], wanted["date"]
        flight = self._read("flights", number, f"flight {number} not found")
        day = flight["dates"].get(date)
        if day is None:
            raise Refused(f"flight {number} not found on date {date}")
        if day["status"] != "available":
            raise Refused(f"flight {number} not available on date {date}")
        if day["available_seats"][cabin] < people:
            raise Refused(f"not enough seats on flight {number}")
        return {
            **wanted,
            "price": day["prices"][cabin],
            "origin": flight["origin"],
            "destination": flight["destination"],
        }

    def _charge(self, reservation: Record, payment_id: str, amount: float) -> None:
        """Take (or give back) money and book it. Nothing is changed when it is refused."""
        user = self._read("users", reservation["user_id"], "user not found")
        method = user["payment_methods"].get(payment_id)
        if method is None:
            raise Refused("payment method not found")
        if method["source"] == "certificate":
            raise Refused("certificate cannot be used to update reservation")
        if method["source"] == "gift_card" and method["amount"] < amount:
            raise Refused("gift card balance is not enough")
        if method["source"] == "gift_card":
            self._db.edit("users", reservation["user_id"])["payment_methods"][payment_id]["amount"] -= amount
        if amount != 0:
            paid = {"payment_id": payment_id, "amount": amount}
            self._db.edit("reservations", reservation["reservation_id"])["payment_history"].append(paid)


def _status(flight: Record, date: str) -> Any:
    return flight["dates"].get(date, {}).get("status")


def _offer(flight: Record, date: str, dated: str | None = None) -> Record:
    offer = {key: value for key, value in flight.items() if key != "dates"} | flight["dates"].get(date, {})
    return offer | {"date": dated} if dated else offer
