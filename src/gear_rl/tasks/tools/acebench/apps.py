"""ACEBench's simulated phone: Wi-Fi and log-in, messages, reminders; from the functions' documents and the reference states.

An app's `state` is what the benchmark compares, under the benchmark's names. What the documents leave open and these states do
not show (the six places of an inbox, who has which id, that the newest message is the one with the latest date) are facts of
the official simulation; its words and its code are not used.
"""

from __future__ import annotations

from typing import Any

from gear_rl.chat.tool_calls import Refused

State = dict[str, Any]
PEOPLE = ("Eve", "Frank", "Grace", "Helen", "Isaac", "Jack")
MOST_MESSAGES = MOST_REMINDERS = 6


class App:
    """Every public method is a tool: it returns what the agent reads (JSON), or raises `Refused` with nothing changed."""

    def __init__(self, state: State, device: State) -> None:
        self.state, self._device = state, device

    def _needs_login(self) -> None:
        if not self._device.get("logged_in", True):
            raise Refused("nobody is logged in to the device")

    def _needs_wifi(self) -> None:
        if not self._device.get("wifi", False):
            raise Refused("Wi-Fi is off")


class Device(App):
    """wifi, logged_in: the switches the other apps look at."""

    def turn_on_wifi(self) -> State:
        self.state["wifi"] = True
        return {"done": "Wi-Fi is on"}

    def login_device(self) -> State:
        self.state["logged_in"] = True
        return {"done": "the device is logged in"}


class Messages(App):
    """inbox: {number: {sender_id, receiver_id, message, time}}. One sent here has no time, and counts as the newest."""

    def send_message(self, sender_name: str, receiver_name: str, message: str) -> State:
        self._needs_login()
        self._needs_wifi()
        inbox = self.state["inbox"]
        if len(inbox) >= MOST_MESSAGES:
            raise Refused("the inbox is full: a message must be deleted first, and the user says which")
        sender, receiver = _person(sender_name), _person(receiver_name)
        # Numbers are never given twice: the start has 1 to 6, so the first message sent is 7, whatever was deleted.
        number = max([MOST_MESSAGES, *map(int, inbox)]) + 1
        inbox[str(number)] = {"sender_id": sender, "receiver_id": receiver, "message": message}
        return {"done": f"sent to {receiver_name}", "message_id": number}

    def delete_message(self, message_id: int) -> State:
        self._needs_login()
        if str(int(message_id)) not in self.state["inbox"]:
            raise Refused(f"there is no message {message_id}")
        del self.state["inbox"][str(int(message_id))]
        return {"done": f"message {message_id} is deleted"}

    def view_messages_between_users(self, sender_name: str, receiver_name: str) -> State:
        self._needs_login()
        pair = (_person(sender_name), _person(receiver_name))
        return self._listed(lambda m: (m["sender_id"], m["receiver_id"]) == pair)

    def search_messages(self, user_name: str, keyword: str) -> State:
        person = _person(user_name)
        return self._listed(
            lambda m: person in (m["sender_id"], m["receiver_id"]) and keyword.lower() in m["message"].lower()
        )

    def get_latest_message_id(self) -> State:
        return {"message_id": self._by_time()[-1]}

    def get_earliest_message_id(self) -> State:
        return {"message_id": self._by_time()[0]}

    def _by_time(self) -> list[int]:
        self._needs_login()
        if not self.state["inbox"]:
            raise Refused("there are no messages")
        return sorted(map(int, self.state["inbox"]), key=lambda n: (self.state["inbox"][str(n)].get("time", "9999"), n))

    def _listed(self, wanted: Any) -> State:
        names = {_person(name): name for name in PEOPLE}
        found = [
            {
                "id": int(number),
                "sender": names.get(m["sender_id"], m["sender_id"]),
                "receiver": names.get(m["receiver_id"], m["receiver_id"]),
                "message": m["message"],
            }
            for number, m in self.state["inbox"].items()
            if wanted(m)
        ]
        if not found:
            raise Refused("no such message")
        return {"messages": found}


class Reminders(App):
    """reminder_list: {number: {reminder_id, title, description, time, notified}}."""

    def add_reminder(self, title: str, description: str, time: str) -> State:
        self._needs_login()
        reminders = self.state["reminder_list"]
        if len(reminders) >= MOST_REMINDERS:
            raise Refused("there is no room for another reminder")
        number = max([0, *map(int, reminders)]) + 1
        reminders[str(number)] = {
            "reminder_id": number,
            "title": title,
            "description": description,
            "time": time,
            "notified": False,
        }
        return {"done": f"reminder {title!r} is set"}

    def view_reminder_by_title(self, title: str) -> State:
        self._needs_login()
        for reminder in self.state["reminder_list"].values():
            if reminder["title"] == title:
                return {"reminder": reminder}
        raise Refused(f"there is no reminder with the title {title!r}")

    def search_reminders(self, keyword: str) -> State:
        self._needs_login()
        found = [
            reminder
            for reminder in self.state["reminder_list"].values()
            if keyword.lower() in f"{reminder['title']}\n{reminder['description']}".lower()
        ]
        if not found:
            raise Refused("no such reminder")
        return {"reminders": found}


def _person(name: str) -> str:
    """Eve is USR100, Frank USR101, and so on."""
    if name not in PEOPLE:
        raise Refused(f"there is no user {name!r}")
    return f"USR{100 + PEOPLE.index(name)}"
