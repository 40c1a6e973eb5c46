"""ACEBench's simulated food delivery. Accounts come from the data; menus and prices are facts of the official simulation."""

from __future__ import annotations

from gear_rl.chat.tool_calls import Refused
from gear_rl.tasks.tools.acebench.apps import App, State

MENUS: dict[str, dict[str, float]] = {
    "Domino's": {"Margherita Pizza": 68.0, "Super Supreme Pizza": 88.0},
    "Rice Village Bibimbap": {"Stone Pot Bibimbap": 35.0, "Korean Beef Bibimbap": 45.0},
    "Haidilao": {"Beef Rolls": 68.0, "Seafood Platter": 88.0},
    "Heytea": {"Cheese Milk Tea": 25.0, "Four Seasons Spring Milk Tea": 22.0},
    "Hema Fresh": {"Organic Vegetable Pack": 15.0, "Fresh Gift Pack": 99.0},
    "Jiutian BBQ": {"Korean Grilled Beef": 128.0, "Grilled Pork Belly": 78.0},
}


class Food(App):
    """users: {name: {user_id, password, balance}}, logged_in_users, orders."""

    def login_food_platform(self, username: str, password: str) -> State:
        self._needs_wifi()
        if self._user(username)["password"] != password:
            raise Refused("the password is wrong")
        if username in self.state["logged_in_users"]:
            raise Refused(f"{username} is logged in already")
        self.state["logged_in_users"].append(username)
        return {"done": f"{username} is logged in to the food platform"}

    def check_balance(self, user_name: str) -> State:
        return {"balance": self._user(user_name)["balance"]}

    def get_products(self, merchant_name: str) -> State:
        return {"products": [{"product": name, "price": price} for name, price in _menu(merchant_name).items()]}

    def add_food_delivery_order(self, username: str, merchant_name: str, items: list[State]) -> State:
        if username not in self.state["logged_in_users"]:
            raise Refused(f"{username} is not logged in to the food platform")
        menu, ordered = _menu(merchant_name), []
        for item in items:
            product, quantity = item.get("product"), item.get("quantity", 1)
            if product not in menu:
                raise Refused(f"{merchant_name} has no {product!r}")
            if isinstance(quantity, bool) or not isinstance(quantity, int) or quantity < 1:
                raise Refused(f"{quantity!r} is no quantity")
            ordered.append({"product": product, "quantity": quantity, "price_per_unit": menu[product]})
        total = sum((item["price_per_unit"] * item["quantity"] for item in ordered), 0.0)
        user = self._user(username)
        if total > user["balance"]:
            raise Refused(f"the order costs {total} yuan, more than the balance")
        user["balance"] -= total
        self.state["orders"].append(
            {"user_name": username, "merchant_name": merchant_name, "items": ordered, "total_price": total}
        )
        return {"done": f"ordered from {merchant_name}", "total_price": total}

    def _user(self, name: str) -> State:
        if name not in self.state["users"]:
            raise Refused(f"there is no user {name!r}")
        return self.state["users"][name]


def _menu(merchant: str) -> dict[str, float]:
    if merchant not in MENUS:
        raise Refused(f"there is no merchant {merchant!r}")
    return MENUS[merchant]
