"""The shop's tools, written from the benchmark's schemas, rules and example dialogues.

No recorded calls are at hand for this domain; what stands behind it: every reference action list leaves the database changed
where the benchmark says so, and the orders printed in the 69 example dialogues recur when their calls are worked out from
the outcome (tests/tasks/test_tau.py).
"""

from __future__ import annotations

import json
from collections import Counter

from gear_rl.chat.tool_calls import Refused
from gear_rl.tasks.tools.tau.records import Record
from gear_rl.tasks.tools.tau.service import ServiceTools

REASONS = ("no longer needed", "ordered by mistake")


class RetailTools(ServiceTools):
    domain = "retail"
    tables = ("orders", "products", "users")

    def find_user_id_by_email(self, email: str) -> str:
        for user_id, user in self._each_user():
            if user["email"].lower() == email.lower():
                return user_id
        raise Refused("user not found")

    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        for user_id, user in self._each_user():
            name = user["name"]
            same = (name["first_name"].lower(), name["last_name"].lower()) == (first_name.lower(), last_name.lower())
            if same and user["address"]["zip"] == zip:
                return user_id
        raise Refused("user not found")

    def get_user_details(self, user_id: str) -> str:
        return json.dumps(self._read("users", user_id, "user not found"))

    def get_order_details(self, order_id: str) -> str:
        return json.dumps(self._read("orders", order_id, "order not found"))

    def get_product_details(self, product_id: str) -> str:
        return json.dumps(self._read("products", product_id, "product not found"))

    def list_all_product_types(self) -> str:
        products = {product["name"]: product["product_id"] for product in self._db.each("products")}
        return json.dumps(dict(sorted(products.items())))

    def cancel_pending_order(self, order_id: str, reason: str) -> str:
        order = self._order(order_id, "pending", "cancelled")
        if reason not in REASONS:
            raise Refused("invalid reason")
        order = self._db.edit("orders", order_id)
        for paid in list(order["payment_history"]):
            self._pay(order["user_id"], paid["payment_method_id"], -paid["amount"])
            order["payment_history"].append(_transaction("refund", paid["amount"], paid["payment_method_id"]))
        order["status"] = "cancelled"
        order["cancel_reason"] = reason
        return json.dumps(order)

    def modify_pending_order_address(
        self, order_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
    ) -> str:
        self._order(order_id, "pending", "modified")
        order = self._db.edit("orders", order_id)
        order["address"] = _address(address1, address2, city, state, country, zip)
        return json.dumps(order)

    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> str:
        order = self._order(order_id, "pending", "modified")
        method = self._method(order["user_id"], payment_method_id)
        history = order["payment_history"]
        if len(history) != 1 or history[0]["transaction_type"] != "payment":
            raise Refused("there should be exactly one payment for a pending order")
        before, amount = history[0]["payment_method_id"], history[0]["amount"]
        if before == payment_method_id:
            raise Refused("the new payment method should be different from the current one")
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise Refused("insufficient gift card balance to pay for the order")
        self._pay(order["user_id"], payment_method_id, amount)
        self._pay(order["user_id"], before, -amount)
        order = self._db.edit("orders", order_id)
        order["payment_history"] += [
            _transaction("payment", amount, payment_method_id), _transaction("refund", amount, before)
        ]  # fmt: skip
        return json.dumps(order)

    def modify_pending_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> str:
        order = self._order(order_id, "pending", "modified")
        owed = self._price_difference(order, item_ids, new_item_ids)
        self._afford(order["user_id"], payment_method_id, owed)
        self._pay(order["user_id"], payment_method_id, owed)
        order = self._db.edit("orders", order_id)
        kind = "payment" if owed > 0 else "refund"
        order["payment_history"].append(_transaction(kind, abs(owed), payment_method_id))
        for old, new in zip(item_ids, new_item_ids, strict=True):
            item = next(item for item in order["items"] if item["item_id"] == old)
            variant = self._variant(item["product_id"], new)
            item.update(item_id=new, price=variant["price"], options=dict(variant["options"]))
        order["status"] = "pending (item modified)"
        return json.dumps(order)

    def exchange_delivered_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> str:
        order = self._order(order_id, "delivered", "exchanged")
        owed = round(self._price_difference(order, item_ids, new_item_ids), 2)
        self._afford(order["user_id"], payment_method_id, owed)
        order = self._db.edit("orders", order_id)
        order["status"] = "exchange requested"
        order["exchange_items"] = sorted(item_ids)
        order["exchange_new_items"] = sorted(new_item_ids)
        order["exchange_payment_method_id"] = payment_method_id
        order["exchange_price_difference"] = owed
        return json.dumps(order)

    def return_delivered_order_items(self, order_id: str, item_ids: list[str], payment_method_id: str) -> str:
        order = self._order(order_id, "delivered", "returned")
        method = self._method(order["user_id"], payment_method_id)
        original = order["payment_history"][0]["payment_method_id"]
        if method["source"] != "gift_card" and payment_method_id != original:
            raise Refused("payment method should be either the original payment method or a gift card")
        if Counter(item_ids) - Counter(item["item_id"] for item in order["items"]):
            raise Refused("some item not found")
        order = self._db.edit("orders", order_id)
        order["status"] = "return requested"
        order["return_items"] = sorted(item_ids)
        order["return_payment_method_id"] = payment_method_id
        return json.dumps(order)

    def modify_user_address(
        self, user_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
    ) -> str:
        self._read("users", user_id, "user not found")
        user = self._db.edit("users", user_id)
        user["address"] = _address(address1, address2, city, state, country, zip)
        return json.dumps(user)

    def _each_user(self) -> list[tuple[str, Record]]:
        return list(zip(self._db.tables["users"], self._db.each("users"), strict=True))

    def _order(self, order_id: str, status: str, done: str) -> Record:
        order = self._read("orders", order_id, "order not found")
        if order["status"] != status:
            raise Refused(f"non-{status} order cannot be {done}")
        return order

    def _method(self, user_id: str, payment_method_id: str) -> Record:
        method = self._read("users", user_id, "user not found")["payment_methods"].get(payment_method_id)
        if method is None:
            raise Refused("payment method not found")
        return method

    def _variant(self, product_id: str, item_id: str) -> Record:
        variant = self._read("products", product_id, "product not found")["variants"].get(item_id)
        if variant is None or not variant["available"]:
            raise Refused(f"new item {item_id} not found or available")
        return variant

    def _price_difference(self, order: Record, item_ids: list[str], new_item_ids: list[str]) -> float:
        """What the new items cost more, one by one in the order given, not rounded: the benchmark keeps 17.98999…"""
        held = Counter(item["item_id"] for item in order["items"])
        for item_id in item_ids:
            if held[item_id] < item_ids.count(item_id):
                raise Refused(f"{item_id} not found")
        if len(item_ids) != len(new_item_ids):
            raise Refused("the number of items to be exchanged should match")
        difference = 0.0
        for old, new in zip(item_ids, new_item_ids, strict=True):
            item = next(item for item in order["items"] if item["item_id"] == old)
            difference += self._variant(item["product_id"], new)["price"] - item["price"]
        return difference

    def _afford(self, user_id: str, payment_method_id: str, amount: float) -> None:
        method = self._method(user_id, payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise Refused("insufficient gift card balance to pay for the price difference")

    def _pay(self, user_id: str, payment_method_id: str, amount: float) -> None:
        """Gift cards pay, and are paid back, at once; other methods take days and change nothing here."""
        if self._method(user_id, payment_method_id)["source"] == "gift_card":
            card = self._db.edit("users", user_id)["payment_methods"][payment_method_id]
            card["balance"] = round(card["balance"] - amount, 2)


def _transaction(kind: str, amount: float, payment_method_id: str) -> Record:
    return {"transaction_type": kind, "amount": amount, "payment_method_id": payment_method_id}


def _address(address1: str, address2: str, city: str, state: str, country: str, zip: str) -> Record:
    return {
        "address1": address1, "address2": address2, "city": city, "state": state, "country": country, "zip": zip
    }  # fmt: skip
