"""τ-bench: databases, tools, users and reward, on a small world of our own; on recorded dialogues where they are at hand."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import pytest
import tau_sample

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.errors import GearError
from gear_rl.tasks.base import Transcript, replay
from gear_rl.tasks.tools.tau import Tau2Retail, TauAirline, TauRetail
from gear_rl.tasks.tools.tau.airline import AirlineTools
from gear_rl.tasks.tools.tau.calculator import calculate
from gear_rl.tasks.tools.tau.records import Database
from gear_rl.tasks.tools.tau.retail import RetailTools
from gear_rl.tasks.tools.tau.world import World
from gear_rl.tasks.upstream import split_rows

KINDS = {"retail": RetailTools, "airline": AirlineTools}
TASKS = {"retail": TauRetail, "airline": TauAirline}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tau_sample.write_sample(tmp_path_factory.mktemp("tau"), KINDS)


def shop() -> World:
    return World(RetailTools, tau_sample.RETAIL, tau_sample.schemas(RetailTools))


def airline() -> World:
    return World(AirlineTools, tau_sample.AIRLINE, tau_sample.schemas(AirlineTools))


def call(world: World, name: str, **arguments):
    answer = world.call(ToolCall(name, arguments))
    return json.loads(answer) if answer.startswith("{") else answer


# ------------------------------------------------------------------------------------------------------- the task
@pytest.mark.parametrize("domain", TASKS)
def test_reference_scores_one_and_nothing_scores_what_is_trivial(folder, domain):
    task = TASKS[domain](data=str(folder))
    changing, trivial = task.rows("test", None)
    assert replay(task, changing, task.reference(changing)).success
    empty = replay(task, changing, task.empty(changing))
    assert not empty.success and not empty.trivially_passable
    nothing = replay(task, trivial, task.empty(trivial))
    assert nothing.success and nothing.trivially_passable


def test_reward_needs_the_database_the_words_and_an_end(folder):
    task = TauRetail(data=str(folder))
    row = task.rows("test", 2)[0]
    cancel = str(ToolCall("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"}))
    assert replay(task, row, [cancel, "You get 1,020.1 back."]).reward == 1.0  # commas of numbers do not count
    silent = replay(task, row, [cancel, "Done."])
    assert silent.reward == 0 and silent.channels == {"database": 1.0, "outputs": 0.0, "ended": 1.0}
    unended = replay(task, row, [cancel, "You get 1020.1 back. Anything else I can confirm?"])
    assert unended.reward == 0 and unended.channels["ended"] == 0
    mistake = str(ToolCall("cancel_pending_order", {"order_id": "#W1", "reason": "ordered by mistake"}))
    wrong = replay(task, row, ["<think>hm</think>", mistake, "1020.1"][1:])
    assert wrong.reward == 0 and wrong.first_wrong == 0
    episode = task.episode(row)
    episode.reply(cancel)
    assert episode.reply("1020.1") is None
    assert task.verdict(row, Transcript("", [], episode)).success
    assert not task.verdict(row, Transcript("", [], episode, cut_off=True)).success
    with pytest.raises(GearError, match="episode it was played in"):
        task.verdict(row, Transcript("", [""]))


def test_a_turn_is_one_call_or_one_message(folder):
    task = TauAirline(data=str(folder))
    row = task.rows("test", None)[0]
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert row["prompt"][1]["content"] == "I am bob_2 and I want to cancel RES1."
    episode = task.episode(row)
    read = str(ToolCall("get_reservation_details", {"reservation_id": "RES1"}))
    two = episode.reply("Let me see." + read + str(ToolCall("cancel_reservation", {"reservation_id": "RES1"})))
    assert json.loads(two[0]["content"])["reservation_id"] == "RES1" and "one tool call at a time" in two[1]["content"]
    assert episode.said == []  # words beside a call are not heard
    assert "malformed" in episode.reply("<tool_call>[[[</tool_call>")[0]["content"] and episode.malformed == 1
    assert episode.reply("Shall I go ahead?") == [{"role": "user", "content": "Yes, please go ahead."}]
    assert "Known" in episode.reply(str(ToolCall("fly", {})))[0]["content"] and episode.malformed == 2
    assert episode.reply(str(ToolCall("transfer_to_human_agents", {"summary": "x"}))) is None and episode.ended


def test_splits(folder):
    retail = TauRetail(data=str(folder))
    assert len(retail.rows("train", 5)) == 5 and len(retail.rows("dev", None)) == 2
    with pytest.raises(GearError, match="split"):
        retail.rows("trian", 1)
    with pytest.raises(GearError, match="no training set"):
        TauAirline(data=str(folder)).rows("train", 1)
    rows = [{"id": f"test_{number}"} for number in range(200)]
    train, test = (split_rows("x", rows, split, None, 0, 0.3) for split in ("train", "test"))
    assert 30 < len(train) < 90 and sorted(r["id"] for r in train + test) == sorted(r["id"] for r in rows)


# ------------------------------------------------------------------------------------------------------ the tools
def test_shop_orders():
    world = shop()
    assert call(world, "find_user_id_by_email", email="ANN@example.com") == "ann_1"
    assert call(world, "find_user_id_by_name_zip", first_name="ann", last_name="lee", zip="00100") == "ann_1"
    assert (
        call(world, "find_user_id_by_name_zip", first_name="ann", last_name="lee", zip="1") == "Error: user not found"
    )
    assert call(world, "list_all_product_types") == {"Lamp": "p1"}
    change = dict(order_id="#W1", item_ids=["i1"], payment_method_id="gift_card_1")
    wrong = call(world, "modify_pending_order_items", new_item_ids=["i3"], **change)
    assert wrong == "Error: new item i3 not found or available"
    assert "should match" in call(world, "modify_pending_order_items", new_item_ids=["i2", "i2"], **change)
    order = call(world, "modify_pending_order_items", new_item_ids=["i2"], **change)
    assert order["status"] == "pending (item modified)" and order["items"][0]["price"] == 35.3
    assert order["payment_history"][-1]["amount"] == 35.3 - 20.1  # not rounded
    assert world.database.read("users", "ann_1")["payment_methods"]["gift_card_1"]["balance"] == 34.8
    assert "non-pending" in call(world, "cancel_pending_order", order_id="#W1", reason="no longer needed")
    back = dict(order_id="#W2", item_ids=["i1"])
    assert "original payment" in call(world, "return_delivered_order_items", payment_method_id="credit_card_1", **back)
    assert "some item" in call(
        world, "return_delivered_order_items", **{**back, "item_ids": ["i1"] * 2, "payment_method_id": "paypal_1"}
    )
    exchanged = call(world, "exchange_delivered_order_items", new_item_ids=["i2"], payment_method_id="paypal_1", **back)
    assert exchanged["status"] == "exchange requested" and exchanged["exchange_price_difference"] == 15.2
    assert "non-delivered" in call(world, "return_delivered_order_items", payment_method_id="gift_card_1", **back)


def test_shop_payments_and_addresses():
    world = shop()
    assert "different" in call(world, "modify_pending_order_payment", order_id="#W3", payment_method_id="gift_card_1")
    order = call(world, "modify_pending_order_payment", order_id="#W3", payment_method_id="paypal_1")
    assert [t["transaction_type"] for t in order["payment_history"]] == ["payment", "payment", "refund"]
    assert world.database.read("users", "ann_1")["payment_methods"]["gift_card_1"]["balance"] == 80.0
    assert "exactly one payment" in call(
        world, "modify_pending_order_payment", order_id="#W3", payment_method_id="paypal_1"
    )
    refunded = call(world, "cancel_pending_order", order_id="#W3", reason="ordered by mistake")
    assert refunded["status"] == "cancelled" and len(refunded["payment_history"]) == 6
    address = dict(address1="2 Oak", address2="", city="Oslo", state="OS", country="NO", zip="1")
    assert call(world, "modify_user_address", user_id="ann_1", **address)["address"]["city"] == "Oslo"
    assert call(world, "modify_pending_order_address", order_id="#W1", **address)["address"]["city"] == "Oslo"


def test_airline_bookings():
    world = airline()
    trip = dict(
        user_id="bob_2", origin="JFK", destination="SEA", flight_type="one_way", cabin="economy",
        flights=[{"flight_number": "HAT1", "date": "2024-05-20"}],
        passengers=[{"first_name": "Bob", "last_name": "Ray", "dob": "1990-01-01"}],
        total_baggages=2, nonfree_baggages=1, insurance="yes",
    )  # fmt: skip
    short = call(world, "book_reservation", payment_methods=[{"payment_id": "gift_card_2", "amount": 100}], **trip)
    assert short == "Error: payment amount does not add up, total price is 180, but paid 100"
    paid = [{"payment_id": "certificate_2", "amount": 60}, {"payment_id": "gift_card_2", "amount": 120}]
    booked = call(world, "book_reservation", payment_methods=paid, **trip)
    assert booked["reservation_id"] == "HATHAT" and booked["created_at"].startswith("2024-05-15")
    methods = world.database.read("users", "bob_2")["payment_methods"]
    assert "certificate_2" not in methods and methods["gift_card_2"]["amount"] == 380
    assert world.database.read("users", "bob_2")["reservations"] == ["RES1", "HATHAT"]
    crowd = {**trip, "passengers": trip["passengers"] * 3}
    assert "not enough seats" in call(world, "book_reservation", payment_methods=paid, **crowd)
    gone = {**trip, "flights": [{"flight_number": "HAT1", "date": "2024-05-14"}]}
    assert "not available on date" in call(world, "book_reservation", payment_methods=paid, **gone)


def test_a_certificate_pays_once():
    world = airline()
    trip = dict(
        user_id="bob_2", origin="JFK", destination="SEA", flight_type="one_way", cabin="economy",
        flights=[{"flight_number": "HAT1", "date": "2024-05-20"}],
        passengers=[{"first_name": "Bob", "last_name": "Ray", "dob": "1990-01-01"}],
        total_baggages=0, nonfree_baggages=0, insurance="no",
    )  # fmt: skip
    paid = [{"payment_id": "certificate_2", "amount": 50}, {"payment_id": "certificate_2", "amount": 50}]
    answer = call(world, "book_reservation", payment_methods=paid, **trip)
    assert answer == "Error: 'certificate_2'"  # the benchmark's own tool: the second finds nothing, the first is spent
    user = world.database.read("users", "bob_2")
    assert "certificate_2" not in user["payment_methods"] and user["reservations"] == ["RES1"]
    assert world.database.read("reservations", "HATHAT") is None
    again = call(world, "book_reservation", payment_methods=paid[:1], **trip)
    assert again == "Error: payment method certificate_2 not found"


def test_airline_changes():
    world = airline()
    kept = [{"flight_number": "HAT1", "date": "2024-05-20"}]
    change = dict(reservation_id="RES1", cabin="economy", payment_id="gift_card_2")
    assert call(world, "update_reservation_flights", flights=kept, **change)["payment_history"][1:] == []
    later = call(
        world, "update_reservation_flights", flights=[{"flight_number": "HAT1", "date": "2024-05-21"}], **change
    )
    assert later["flights"][0]["price"] == 100 and later["payment_history"][-1]["amount"] == 20
    richer = call(world, "update_reservation_flights", flights=kept, **{**change, "cabin": "business"})
    assert richer["cabin"] == "economy" and richer["flights"][0]["price"] == 300  # as the recordings have it
    refused = call(world, "update_reservation_flights", flights=kept, **{**change, "payment_id": "certificate_2"})
    assert refused == "Error: certificate cannot be used to update reservation"
    bags = dict(reservation_id="RES1", total_baggages=2, nonfree_baggages=1, payment_id="gift_card_2")
    assert call(world, "update_reservation_baggages", **bags)["payment_history"][-1]["amount"] == 50
    assert "does not match" in call(world, "update_reservation_passengers", reservation_id="RES1", passengers=[])
    assert "certificate_3221322" in call(world, "send_certificate", user_id="bob_2", amount=100)
    assert call(world, "cancel_reservation", reservation_id="RES1")["status"] == "cancelled"
    direct = json.loads(call(world, "search_direct_flight", origin="JFK", destination="SEA", date="2024-05-20"))
    stop = json.loads(call(world, "search_onestop_flight", origin="JFK", destination="SEA", date="2024-05-20"))
    assert [f["flight_number"] for f in direct] == ["HAT1"] and "dates" not in direct[0]
    assert [f["flight_number"] for f in stop[0]] == ["HAT2", "HAT3"] and stop[0][1]["date"] == "2024-05-20"


@pytest.mark.parametrize(
    "name, arguments, said",
    [
        ("fly", {}, "unknown tool 'fly'"),
        ("cancel_reservation", {}, "'reservation_id' is missing"),
        ("cancel_reservation", {"reservation_id": ["RES1"]}, "must be of type string"),
        ("cancel_reservation", {"reservation_id": "RES1", "why": 1}, "unknown argument 'why'"),
        ("send_certificate", {"user_id": "bob_2", "amount": "100"}, "must be of type number"),
        ("__init__", {"database": {}}, "unknown tool"),
        ("_charge", {}, "unknown tool"),
    ],
)  # fmt: skip
def test_bad_calls_are_answered_and_change_nothing(name, arguments, said):
    world = airline()
    answer = world.call(ToolCall(name, arguments))
    assert answer.startswith("Error") and said in answer and world.database.changes() == {}


def test_the_calculator_is_bounded():
    assert calculate("(2 + 3) * 4 / 8") == "2.5" and calculate("-7 // 2") == "-4.0" and calculate("2 ** 3") == "8.0"
    hostile = ("9**9**9**9", "1/0", "(" * 300 + ")", "__import__('os')", "1" * 500, "2**0.5**", "(-8)**0.5", "10**40")
    for expression in hostile:
        with pytest.raises(ValueError):
            calculate(expression)


def test_equal_changes_are_equal_hashes_and_the_shared_tables_stay():
    """Over random calls: comparing changes says the same as the benchmark's hash of everything."""
    rng, before = random.Random(0), copy.deepcopy(tau_sample.RETAIL)
    address = dict(address1="2 Oak", address2="", city="Oslo", state="OS", country="NO", zip="1")
    moves = [
        ("modify_user_address", {"user_id": "ann_1", **address}),
        ("modify_user_address", {"user_id": "ann_1", **tau_sample.HOME}),  # back to what it was
        ("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"}),
        ("modify_pending_order_payment", {"order_id": "#W3", "payment_method_id": "paypal_1"}),
        ("get_user_details", {"user_id": "ann_1"}),
    ]
    worlds = []
    for _ in range(40):
        world = shop()
        for name, arguments in rng.choices(moves, k=3):
            world.call(ToolCall(name, arguments))
        worlds.append(world.database)
    for one in worlds:
        for other in worlds:
            assert (one.changes() == other.changes()) == (one.hash() == other.hash())
    assert len({database.hash() for database in worlds}) > 5 and before == tau_sample.RETAIL
    integer, number = Database(tau_sample.AIRLINE), Database(tau_sample.AIRLINE)
    integer.edit("users", "bob_2")["dob"], number.edit("users", "bob_2")["dob"] = 250, 250.0
    assert integer.changes() != number.changes() and integer.hash() != number.hash()


JUNK = (None, True, -1, 10**30, 1e308, "", "RES1", "#W1", [], [None], [{}], {}, {"a": [1]}, "2024-05-20", "+" * 30)


@pytest.mark.parametrize("kind", KINDS)
def test_no_call_can_end_a_run(kind):
    """Schemas say less than the code needs: whatever fits one is answered, in words."""
    rng, make = random.Random(0), {"retail": shop, "airline": airline}[kind]
    flight = {"flight_number": "HAT1", "date": "2024-05-20"}
    sound = {
        "user_id": "bob_2", "reservation_id": "RES1", "order_id": "#W1", "cabin": "economy", "flights": [flight],
        "passengers": [{"first_name": "B"}], "payment_methods": [{"payment_id": "credit_card_2", "amount": 100}],
        "payment_id": "credit_card_2", "item_ids": ["i1"], "new_item_ids": ["i2"], "payment_method_id": "paypal_1",
    }  # fmt: skip
    answered = 0
    for _ in range(1500):
        world = make()
        function = rng.choice(world.schemas)["function"]
        arguments = {key: rng.choice([sound.get(key, "x"), *JUNK]) for key in function["parameters"]["properties"]}
        for value in arguments.values():
            if isinstance(value, list) and value and isinstance(value[0], dict) and rng.random() < 0.5:
                value[0] = {key: rng.choice(JUNK) for key in value[0] if rng.random() < 0.7}
        sound["flights"] = [dict(flight)]
        answered += not world.call(ToolCall(function["name"], copy.deepcopy(arguments))).startswith("Error")
    assert answered > 20, "not all of it is nonsense"


# ------------------------------------------------------------------------------------------------------- the data
def test_a_clone_is_read_without_being_run(folder, tmp_path):
    clone = TauAirline(data=str(tau_sample.write_clone(tmp_path, KINDS)))
    export = TauAirline(data=str(folder))
    assert clone.rows("test", None) == export.rows("test", None)
    assert {t["function"]["name"] for t in clone.tools} == {t["function"]["name"] for t in export.tools}


def test_bad_data_is_named(folder, tmp_path):
    with pytest.raises(GearError, match=r"needs its data: --data DIR.*tau-bench"):
        TauRetail()
    with pytest.raises(GearError, match=r"looked for retail/wiki\.md.*Clone"):
        TauRetail(data=str(tmp_path))
    broken = tau_sample.write_sample(tmp_path / "broken", KINDS)
    (broken / "airline" / "tasks_test.json").write_text(
        '[{"user_id": "x", "instruction": "y", "actions": [{"name": 1}]}]'
    )
    with pytest.raises(GearError, match=r"tasks_test\.json, task 0: not in τ-bench's layout"):
        TauAirline(data=str(broken))
    (broken / "airline" / "tools_schema.json").write_text('[{"name": "fly"}]')
    with pytest.raises(GearError, match=r"airline: tool schema 0 is none"):
        TauAirline(data=str(broken))
    (broken / "airline" / "data" / "users.json").write_text('{"a": 3}')
    with pytest.raises(GearError, match=r"users\.json: record 'a' must be an object, not int"):
        TauAirline(data=str(broken))
    (broken / "airline" / "data" / "users.json").write_text('{\n"a": }')
    with pytest.raises(GearError, match=r"users\.json, line 2: not JSON"):
        TauAirline(data=str(broken))
    clone = tau_sample.write_clone(tmp_path / "clone", KINDS)
    tasks = clone / "tau_bench" / "envs" / "airline" / "tasks_test.py"
    tasks.write_text("TASKS = [Task(user_id=open('x'), actions=[])]")
    with pytest.raises(GearError, match="line 1: expected a plain literal"):
        TauAirline(data=str(clone))
    with pytest.raises(GearError, match=r"retail/tasks\.json.*tau2-bench"):
        Tau2Retail(data=str(folder))


def test_tau2_reads_its_own_layout(folder, tmp_path):
    inner = tmp_path / "retail"
    inner.mkdir()
    (inner / "policy.md").write_text("Rules.")
    (inner / "db.json").write_text(json.dumps(tau_sample.RETAIL))
    criteria = {
        "actions": [{"name": "get_item_details", "arguments": {"item_id": "i2"}}],
        "communicate_info": ["35.3"],
        "reward_basis": ["DB", "COMMUNICATE"],
    }
    wish = {"known_info": "You are Ann.", "reason_for_call": "You want a price.", "task_instructions": None}
    tasks = [{"id": "7", "user_scenario": {"instructions": wish}, "evaluation_criteria": criteria}]
    (inner / "tasks.json").write_text(json.dumps(tasks))
    (inner / "split_tasks.json").write_text('{"train": ["7"], "test": [], "base": ["7"]}')
    task = Tau2Retail(data=str(tmp_path), tau_bench=str(folder))
    row = task.rows("base", None)[0]
    assert row["prompt"][1]["content"] == "I am Ann.\nI want a price." and "get_item_details" in str(task.tools)
    assert replay(task, row, task.reference(row)).success and not replay(task, row, ["It is 30."]).success
    with pytest.raises(GearError, match=r"tau_bench=DIR"):
        Tau2Retail(data=str(tmp_path))
