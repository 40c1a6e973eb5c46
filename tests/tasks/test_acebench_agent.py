"""ACEBench's agent categories: the simulated apps, starting states out of end states, and the judge, on problems of our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import surrogate_turns
from chat_server import message, serving

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.errors import GearError
from gear_rl.evaluation.task_check import check_split
from gear_rl.tasks.base import replay
from gear_rl.tasks.tools.acebench import AceBench
from gear_rl.tasks.tools.acebench.agent_world import AgentWorld
from gear_rl.tasks.tools.acebench.apps import MOST_MESSAGES, PEOPLE
from gear_rl.tasks.tools.acebench.milestones import CORRECTED, matched, read_milestones, read_step
from gear_rl.tasks.tools.tau.user import STOP

SHARED = Path(__file__).parents[3] / "shared" / "data" / "acebench_en"
PARAMETERS = {
    "turn_on_wifi": {}, "login_device": {}, "get_latest_message_id": {}, "get_earliest_message_id": {},
    "send_message": {"sender_name": "string", "receiver_name": "string", "message": "string"},
    "delete_message": {"message_id": "integer"},
    "view_messages_between_users": {"sender_name": "string", "receiver_name": "string"},
    "search_messages": {"user_name": "string", "keyword": "string"},
    "add_reminder": {"title": "string", "description": "string", "time": "string"},
    "view_reminder_by_title": {"title": "string"}, "search_reminders": {"keyword": "string"},
    "login_food_platform": {"username": "string", "password": "string"},
    "check_balance": {"user_name": "string"}, "get_products": {"merchant_name": "string"},
    "add_food_delivery_order": {"username": "string", "merchant_name": "string", "items": "list"},
}  # fmt: skip
FLIGHTS = {
    "get_flight_details": ({}, {"origin": "string", "destination": "string"}),
    "find_transfer_flights": ({"origin_city": "string", "transfer_city": "string", "destination_city": "string"}, {}),
    "get_user_details": ({"user_id": "string", "password": "string"}, {}),
    "get_reservation_details": ({}, {"reservation_id": "string", "user_id": "string"}),
    "reserve_flight": (
        {
            "user_id": "string",
            "password": "string",
            "flight_no": "string",
            "cabin": "string",
            "baggage_count": "integer",
        },
        {"payment_method": "string"},
    ),
    "modify_flight": (
        {"user_id": "string", "reservation_id": "string"},
        {"new_flight_no": "string", "new_cabin": "string", "add_baggage": "integer", "new_payment_method": "string"},
    ),
    "cancel_reservation": ({"user_id": "string", "reservation_id": "string", "reason": "string"}, {}),
}
NOTES = {
    str(i + 1): {"sender_id": f"USR{100 + i}", "receiver_id": f"USR{101 + i}", "message": f"note {i}", "time": time}
    for i, time in enumerate(["2024-01-05", "2024-01-03", "2024-01-01", "2024-01-09", "2024-01-02"])
} | {"6": {"sender_id": "USR105", "receiver_id": "USR100", "message": "Call Ann's", "time": "2024-01-04"}}
LIST = {"reminder_id": 1001, "title": "List", "description": "Buy rice.", "time": "2024-01-01 10:00", "notified": False}
DINERS = {name: {"user_id": f"U{i}", "password": "pw", "balance": 200.0} for i, name in enumerate(PEOPLE)}
FLYER = {
    "user_name": "Eve",
    "password": "pw",
    "cash_balance": 500.0,
    "bank_balance": 9000.0,
    "membership_level": "regular",
}
BOOKED = {
    "reservation_id": "res_1", "user_id": "user1", "flight_no": "MU5678", "payment_method": "bank",
    "cabin": "Business Class", "baggage": 1, "origin": "Shanghai", "destination": "Beijing",
}  # fmt: skip


def document(name: str, required: dict, optional: dict | None = None) -> dict:
    properties = {key: {"type": kind} for key, kind in (required | (optional or {})).items()}
    # As published, the document of reserve_flight demands a parameter under a name that it does not describe.
    names = [*required, "payment_methods"] if name == "reserve_flight" else list(required)
    return {
        "name": name,
        "description": name,
        "parameters": {"type": "dict", "required": names, "properties": properties},
    }


PHONE_TOOLS = [document(name, required) for name, required in PARAMETERS.items()]
TRAVEL_TOOLS = [document(name, *both) for name, both in FLIGHTS.items()]


def inbox(without: str, sent: dict) -> dict:
    return {"inbox": {key: note for key, note in NOTES.items() if key != without} | {"7": sent}}


def spent(name: str, amount: float) -> dict:
    return DINERS | {name: {**DINERS[name], "balance": 200.0 - amount}}


ON = {"wifi": True, "logged_in": True}
ORDER = {
    "user_name": "Eve", "merchant_name": "Domino's", "total_price": 136.0,
    "items": [{"product": "Margherita Pizza", "quantity": 2, "price_per_unit": 68.0}],
}  # fmt: skip
STEP = [
    (
        "I am Eve. Tell Jack 'It's done', and delete the newest message if you must.",
        {"BaseApi": {"wifi": False, "logged_in": False}}, ["BaseApi", "MessageApi"],
        [{"BaseApi": ON}, {"MessageApi": inbox("4", {"sender_id": "USR100", "receiver_id": "USR105", "message": "It's done"})}],
        ["[login_device()]", "[turn_on_wifi()]", "[get_latest_message_id()]", "[delete_message(message_id=4)]",
         "[send_message(sender_name='Eve', receiver_name='Jack', message='It's done')]"],
    ),
    (
        "I am Eve, password pw. Order two Margherita Pizzas at Domino's and set a reminder 'Pay' for 136.0.",
        {"BaseApi": {"wifi": True, "logged_in": True}}, ["BaseApi", "FoodPlatform", "ReminderApi"],
        [{"BaseApi": ON}, {"FoodPlatform": {"users": spent("Eve", 136.0), "logged_in_users": ["Eve"], "orders": [ORDER]}},
         # A misspelt name, and a list from another beginning: the benchmark does not compare it.
         {"ReminderAPI": {"reminder_list": {"1": LIST, "9": {**LIST, "reminder_id": 9}}}}],
        [["[add_reminder(title='Pay', description='136.0', time='2024-01-01 10:00'), turn_on_wifi()]"],
         ["[login_food_platform(username='Eve', password='pw')]",
          "[add_food_delivery_order(username='Eve', merchant_name='Domino's', "
          "items=[{'product': 'Margherita Pizza', 'quantity': 2}])]",
          "[add_reminder(title='Pay', description='136.0', time='2024-01-01 10:00')]"]],
    ),
]  # fmt: skip
TURN = [
    (
        "You are Frank. You want a reminder 'Rice' at 2024-02-02 12:00 that says 'Cook'.",
        {"BaseApi": {"wifi": False, "logged_in": True}}, ["BaseApi", "ReminderApi"],
        [{"BaseApi": {"wifi": False, "logged_in": True}},
         {"ReminderApi": {"reminder_list": {"1": LIST, "2": {
             "reminder_id": 2, "title": "Rice", "description": "Cook", "time": "2024-02-02 12:00", "notified": False}}}}],
        ['[add_reminder(title="Rice", description="Cook", time="2024-02-02 12:00")]'],
    ),
    (
        "You are Eve (user1, pw). You want your flight of July 16th on the 17th, in economy, with two more bags.",
        {}, ["Travel"],
        [{"Travel": {"users": {"user1": {**FLYER, "bank_balance": 9000.0 + 1100 - 100}},
                     "reservations": [{**BOOKED, "flight_no": "CZ4352", "cabin": "Economy Class", "baggage": 3}]}}],
        ["[modify_flight(user_id='user1', reservation_id='res_1', new_flight_no='CZ4352', new_cabin='Economy Class', "
         "add_baggage=2)]"],
    ),
    *((f"You are Eve (user1, pw) and pay trip {n} by bank, economy, one bag.", {}, ["Travel"],
       [{"Travel": {"users": {"user1": FLYER}, "reservations": [BOOKED]}}],
       ["[get_user_details(user_id='user1', password='pw')]"])
      for n in range(2)),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ace")
    (folder / "possible_answer").mkdir()
    for category, problems in (("agent_multi_step", STEP), ("agent_multi_turn", TURN)):
        entries, answers = [], []
        for i, (question, config, classes, state, milestones) in enumerate(problems):
            tools = TRAVEL_TOOLS if "Travel" in classes else PHONE_TOOLS
            key = f"own_{category}_{i}"
            entry = {"id": key, "question": question, "initial_config": config, "involved_classes": classes}
            entries.append({**entry, "path": [], "function": tools})
            answers.append({"id": key, "ground_truth": state, "mile_stone": milestones})
        # The end states of the file must show every message once: one more problem, which nobody plays.
        answers.append(
            {"id": "other", "ground_truth": [{"MessageApi": {"inbox": NOTES}}], "mile_stone": ["[turn_on_wifi()]"]}
        )
        answers.append(
            {"id": "more", "ground_truth": [{"ReminderApi": {"reminder_list": {"1": LIST}}}], "mile_stone": []}
        )
        for place, rows in ((folder, entries), (folder / "possible_answer", answers)):
            (place / f"data_{category}.json").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return folder


@pytest.fixture(scope="module")
def task(folder) -> AceBench:
    return AceBench(data=str(folder), category="agent")


def row_of(task: AceBench, key: str) -> dict:
    return next(row for row in task.rows("test", None) if row["id"] == key)


def world(task: AceBench, key: str) -> AgentWorld:
    return task.episode(row_of(task, key)).world


def call(world: AgentWorld, name: str, **arguments):
    return json.loads(world.call(ToolCall(name, arguments)))


def test_reference_passes_and_nothing_fails(task):
    rows = {row["id"]: row for row in task.rows("test", None)}
    assert rows["own_agent_multi_step_0"]["prompt"][1]["content"].startswith("I am Eve.")
    assert rows["own_agent_multi_turn_0"]["prompt"][1]["content"].startswith("I am Frank.")  # the scripted user's words
    assert task.max_turns == 20 and AceBench(category="normal").max_turns == 1
    for key in ("own_agent_multi_step_0", "own_agent_multi_turn_0", "own_agent_multi_turn_1"):
        reference = replay(task, rows[key], task.reference(rows[key]))
        assert (
            reference.success
            and reference.reward == 1
            and sum(reference.turn_rewards) == pytest.approx(1)
            and reference.first_wrong is None
        )
        assert reference.channels == dict.fromkeys(("accepted", "exact", "end_to_end", "process"), 1.0)
        empty = replay(task, rows[key], task.empty(rows[key]))
        assert not empty.success and empty.reward == 0 and empty.channels["process"] == 0


def test_the_end_state_decides_and_milestones_give_part(task):
    row = row_of(task, "own_agent_multi_step_1")
    second = [str(read_step(text, "")[0]) for text in STEP[1][4][1]]
    assert replay(task, row, [*second, "Done."]).success, "the other accepted list of calls"
    no_reminder = replay(task, row, [*second[:2], "Done."])
    assert no_reminder.channels["end_to_end"] == 1, "a misspelt class is not compared by the benchmark's rule"
    assert no_reminder.reward == 0 and not no_reminder.success
    one = replay(task, row, [second[0], "<tool_call>{</tool_call>", "Done."])
    assert one.reward == 0 and one.channels["process"] == pytest.approx(1 / 3) and one.malformed == 1
    assert one.turn_rewards == pytest.approx([1 / 3, 0, 0]) and one.first_wrong is None, "missing, not wrong"
    beef = ToolCall("add_food_delivery_order", {
        "username": "Eve", "merchant_name": "Haidilao", "items": [{"product": "Beef Rolls", "quantity": 1}]})  # fmt: skip
    wrong = replay(task, row, [second[0], str(beef), *second[1:], "Done."])
    assert wrong.reward == 0 and wrong.first_wrong == 1 and wrong.channels["process"] == 1


def test_more_than_the_reference_state_is_accepted_but_not_exact(task):
    row = row_of(task, "own_agent_multi_turn_0")
    extra = str(ToolCall("add_reminder", {"title": "More", "description": "x", "time": "2024-02-02 12:00"}))
    verdict = replay(task, row, [*task.reference(row)[:1], extra, "Done."])
    assert verdict.reward == 1 and not verdict.success and verdict.first_wrong == 1


def test_messages_and_reminders(task):
    phone = world(task, "own_agent_multi_step_0")
    assert "logged in" in call(phone, "get_latest_message_id")["error"]
    assert call(phone, "search_messages", user_name="Eve", keyword="ANN")["messages"][0]["sender"] == "Jack"
    call(phone, "login_device")
    assert "Wi-Fi" in call(phone, "send_message", sender_name="Eve", receiver_name="Jack", message="x")["error"]
    call(phone, "turn_on_wifi")
    assert "full" in call(phone, "send_message", sender_name="Eve", receiver_name="Jack", message="x")["error"]
    assert call(phone, "get_latest_message_id") == {"message_id": 4}
    assert call(phone, "get_earliest_message_id") == {"message_id": 3}
    assert [
        m["id"]
        for m in call(phone, "view_messages_between_users", sender_name="Eve", receiver_name="Frank")["messages"]
    ] == [1]
    assert (
        "no such message"
        in call(phone, "view_messages_between_users", sender_name="Eve", receiver_name="Jack")["error"]
    )
    assert "no message 12" in call(phone, "delete_message", message_id=12)["error"]
    assert "integer" in call(phone, "delete_message", message_id="4")["error"]
    call(phone, "delete_message", message_id=6)
    assert "no user 'Zoe'" in call(phone, "send_message", sender_name="Zoe", receiver_name="Jack", message="x")["error"]
    assert call(phone, "send_message", sender_name="Eve", receiver_name="Jack", message="x")["message_id"] == 7
    assert (
        call(phone, "get_latest_message_id") == {"message_id": 7}
        and len(phone.state()["MessageApi"]["inbox"]) == MOST_MESSAGES
    )
    assert "out of order" in call(phone, "view_reminder_by_title", title="List")["error"], (
        "not among the involved classes"
    )
    assert "Did you mean 'send_message'" in call(phone, "send_mesage")["error"]
    desk = world(task, "own_agent_multi_turn_0")
    assert call(desk, "view_reminder_by_title", title="List")["reminder"]["description"] == "Buy rice."
    assert "no reminder" in call(desk, "view_reminder_by_title", title="list")["error"]
    assert len(call(desk, "search_reminders", keyword="RICE")["reminders"]) == 1
    assert "no such" in call(desk, "search_reminders", keyword="beans")["error"]
    for i in range(5):
        call(desk, "add_reminder", title=f"{i}", description="", time="2024-02-02 12:00")
    assert "no room" in call(desk, "add_reminder", title="x", description="", time="2024-02-02 12:00")["error"]


def test_food(task):
    shop = world(task, "own_agent_multi_step_1")
    order = {"username": "Eve", "merchant_name": "Domino's", "items": [{"product": "Margherita Pizza", "quantity": 1}]}
    assert "not logged in" in call(shop, "add_food_delivery_order", **order)["error"]
    assert "password" in call(shop, "login_food_platform", username="Eve", password="x")["error"]
    assert "no user" in call(shop, "login_food_platform", username="Eva", password="pw")["error"]
    call(shop, "login_food_platform", username="Eve", password="pw")
    assert "already" in call(shop, "login_food_platform", username="Eve", password="pw")["error"]
    assert call(shop, "check_balance", user_name="Eve") == {"balance": 200.0}
    assert {"product": "Beef Rolls", "price": 68.0} in call(shop, "get_products", merchant_name="Haidilao")["products"]
    assert "no merchant" in call(shop, "get_products", merchant_name="Haidi")["error"]
    for items, problem in [
        ([{"product": "Rice", "quantity": 1}], "has no 'Rice'"),
        ([{"product": "Margherita Pizza", "quantity": 0}], "no quantity"),
        ([{"product": "Margherita Pizza", "quantity": 3}], "204.0 yuan"),
    ]:
        assert problem in call(shop, "add_food_delivery_order", **{**order, "items": items})["error"]
    assert shop.state()["FoodPlatform"]["orders"] == []
    assert call(shop, "add_food_delivery_order", **order)["total_price"] == 68.0
    assert shop.state()["FoodPlatform"]["users"]["Eve"]["balance"] == 132.0


def test_travel(task):
    desk = world(task, "own_agent_multi_turn_2")
    assert call(desk, "get_user_details", user_id="user1", password="pw") == {
        k: v for k, v in FLYER.items() if k != "password"
    }
    assert "password" in call(desk, "get_user_details", user_id="user1", password="x")["error"]
    assert len(call(desk, "get_flight_details", origin="Shanghai", destination="Beijing")["flights"]) == 3
    assert "no direct flight" in call(desk, "get_flight_details", origin="Rome")["error"]
    pairs = call(
        desk, "find_transfer_flights", origin_city="Beijing", transfer_city="Nanjing", destination_city="Shenzhen"
    )
    assert [(p["first"]["flight_no"], p["second"]["depart_time"]) for p in pairs["connections"]] == [
        ("MU3561", "2024-07-18 12:30:00")
    ]
    assert call(desk, "get_reservation_details", user_id="user1")["reservations"][0]["flight"]["origin"] == "Shanghai"
    assert "name a" in call(desk, "get_reservation_details")["error"]
    book = {"user_id": "user1", "password": "pw", "flight_no": "CA1234", "cabin": "Economy Class", "baggage_count": 3}
    assert "payment_method" in call(desk, "reserve_flight", **book)["error"], (
        "the document's misnamed parameter is required"
    )
    for change, problem in [
        ({"payment_method": "card"}, "cash or bank"), ({"payment_method": "cash"}, "cash balance"),
        ({"cabin": "First"}, "Economy Class"), ({"flight_no": "XX1"}, "no flight"), ({"baggage_count": -1}, "number of bags"),
    ]:  # fmt: skip
        assert problem in call(desk, "reserve_flight", **{"payment_method": "bank", **book, **change})["error"]
    made = call(desk, "reserve_flight", **book, payment_method="bank")
    assert made["reservation_id"] == "res_2" and made["total_cost"] == 1200 + 2 * 50
    change = {"user_id": "user1", "reservation_id": "res_2"}
    assert "another city" in call(desk, "modify_flight", **change, new_flight_no="MU5678")["error"]
    assert call(desk, "modify_flight", **change, new_cabin="Business Class", new_flight_no=None)["paid"] == 1800
    assert "no reservation" in call(desk, "modify_flight", user_id="user1", reservation_id="res_9")["error"]
    assert call(desk, "cancel_reservation", **change, reason="other")["refund"] == 3000, "more than a day before"
    assert len(desk.state()["Travel"]["reservations"]) == 1


def test_milestones():
    assert read_step("[f(a='Domino's', b=[{'c': 'x, y'}], d=\"it's\"), g()]", "") == [
        ToolCall("f", {"a": "Domino's", "b": [{"c": "x, y"}], "d": "it's"}),
        ToolCall("g", {}),
    ]
    assert read_milestones([["[f()]"], ["[g()]", "[f()]"]], "")[1] == [[ToolCall("g", {})], [ToolCall("f", {})]]
    for text in ("[f(", "[f(1)]", "[f(a=open('x'))]", "[1]"):
        with pytest.raises(GearError, match=r"file, id: the milestone .* cannot be read"):
            read_step(text, "file, id")
    a, b, c = ([ToolCall(name, {})] for name in "abc")
    assert matched([a, c, b, a], [a, b]) == [0, 2] and matched([b, a], [a, b]) == [1] and matched([b], [a, b]) == []


def test_a_user_behind_an_endpoint(folder):
    said = iter(["At noon, please.", f"{STOP}"])
    with serving(lambda body: message(next(said))) as server:
        task = AceBench(data=str(folder), category="agent_multi_turn", user=server.url, user_model="m")
        row = task.rows("test", None)[0]
        assert row["prompt"][1]["content"].startswith("Hello")
        episode = task.episode(row)
        assert (
            episode.reply("When?") == [{"role": "user", "content": "At noon, please."}]
            and episode.reply("Done.") is None
        )
        assert "You are Frank" in server.requests[0]["messages"][0]["content"] and task.concurrent_replies > 1


def test_malformed_data_is_named(folder, tmp_path):
    (tmp_path / "possible_answer").mkdir()
    name = "data_agent_multi_step.json"
    entry = json.loads((folder / name).read_text().splitlines()[0])
    answer = json.loads((folder / "possible_answer" / name).read_text().splitlines()[0])

    def load(entry, answer):
        (tmp_path / name).write_text(json.dumps(entry) + "\n")
        (tmp_path / "possible_answer" / name).write_text(json.dumps(answer) + "\n")
        AceBench(data=str(tmp_path), category="agent_multi_step").rows("test", None)

    with pytest.raises(GearError, match=r"data_agent_multi_step\.json, line 1: the row has no 'involved_classes'"):
        load({k: v for k, v in entry.items() if k != "involved_classes"}, answer)
    with pytest.raises(GearError, match="no simulated API Weather; there are BaseApi"):
        load({**entry, "involved_classes": ["Weather"]}, answer)
    with pytest.raises(GearError, match="has no answer for own_agent_multi_step_0"):
        load(entry, {**answer, "id": "another"})
    with pytest.raises(GearError, match="the end states are not in ACEBench's layout"):
        load(entry, {**answer, "ground_truth": [{"MessageApi": {"inbox": 3}}]})
    with pytest.raises(GearError, match=r"cannot be read"):
        load(entry, {**answer, "mile_stone": ["[f("]})


@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark's data is not beside the checkout")
def test_the_benchmarks_reference_calls_lead_to_its_end_states():
    task = AceBench(data=str(SHARED), category="agent")
    check = check_split(task, "test", None)
    assert check.passed and (check.problems, check.reference_right, check.empty_right) == (50, 50, 0)
    assert set(check.corrected) == set(CORRECTED)
    published = json.loads(
        "[" + ",".join((SHARED / "possible_answer" / "data_agent_multi_step.json").read_text().splitlines()) + "]"
    )
    wrong = []
    for answer in published:  # without what was corrected: some list of published calls leads there, in all but these
        row = row_of(task, answer["id"])
        lists = read_milestones(answer["mile_stone"], "")
        said = [["\n".join(map(str, step)) for step in steps] + ["Done."] for steps in lists]
        if not any(replay(task, row, turns).success for turns in said):
            wrong.append(answer["id"])
    assert wrong == [key for key in CORRECTED if "multi_step" in key]


def test_lone_surrogates_end_no_run(task):
    for row in task.rows("test", 2):
        assert surrogate_turns.play_all(task, row) > 20
