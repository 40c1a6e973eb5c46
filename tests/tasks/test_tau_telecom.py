"""τ²-bench telecom: carrier and phone on cases of our own; on the benchmark's where its data is at hand."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import surrogate_turns
from chat_server import message, serving

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.errors import GearError
from gear_rl.evaluation.task_check import check_split
from gear_rl.tasks.base import Transcript, replay
from gear_rl.tasks.tools.tau import Tau2Telecom
from gear_rl.tasks.tools.tau.telecom.world import TelecomWorld
from gear_rl.tasks.tools.tau.user import STOP

SHARED = Path(__file__).parents[3] / "shared" / "data" / "tau2_bench"
DB = """
[[plans]]
plan_id = "P1"
name = "Small"
data_limit_gb = 5.0
price_per_month = 10.0
data_refueling_price_per_gb = 2.0
[[devices]]
device_id = "D1"
model = "Brick"
[[lines]]
line_id = "L1"
phone_number = "555-1"
status = "Active"
plan_id = "P1"
device_id = "D1"
data_used_gb = 1.0
data_refueling_gb = 0.0
roaming_enabled = false
contract_end_date = "2026-01-01"
[[customers]]
customer_id = "C1"
full_name = "Ann Lee"
date_of_birth = "1990-01-01"
phone_number = "555-9"
line_ids = ["L1"]
bill_ids = ["B1"]
[[bills]]
bill_id = "B1"
customer_id = "C1"
issue_date = "2025-01-05"
total_due = 10.0
status = "Paid"
"""
PHONE = """
[device]
sim_card_status = "active"
sim_card_missing = false
airplane_mode = false
network_signal_strength = "good"
network_technology_connected = "5G"
network_connection_status = "connected"
battery_level = 50
data_enabled = true
roaming_enabled = false
network_mode_preference = "4g_5g_preferred"
wifi_enabled = false
wifi_connected = false
wifi_signal_strength = "none"
wifi_calling_enabled = false
wifi_calling_mms_over_wifi = false
data_saver_mode = false
vpn_enabled_setting = false
vpn_connected = false
[device.active_apn_settings]
apn_name = "net"
mmsc_url = "http://mms.example"
[device.app_statuses.messaging]
app_name = "messaging"
[device.app_statuses.messaging.permissions]
sms = true
storage = true
"""
LINE = {"customer_id": "C1", "line_id": "L1"}
OVERDUE = {**LINE, "new_bill_id": "B2"}
CASES = {  # what is out of order → the calls that fix it, each of them needed
    "turn_airplane_mode_on": ({}, [("toggle_airplane_mode", {})]),
    "unseat_sim_card": ({}, [("reseat_sim_card", {})]),
    "break_apn_settings": ({}, [("reset_apn_settings", {}), ("reboot_device", {})]),
    "break_apn_mms_setting": ({}, [("reset_apn_settings", {}), ("reboot_device", {})]),
    "turn_data_off": ({}, [("toggle_data", {})]),
    "turn_data_saver_mode_on": ({}, [("toggle_data_saver_mode", {})]),
    "break_vpn": ({}, [("disconnect_vpn", {})]),
    "set_network_mode_preference": (
        {"mode": "2g_only"}, [("set_network_mode_preference", {"mode": "4g_5g_preferred"})]),
    "set_wifi_calling": ({"enabled": True, "mms_over_wifi": True}, [("toggle_wifi_calling", {})]),
    "remove_app_permission": (
        {"app_name": "messaging", "permission": "sms"},
        [("grant_app_permission", {"app_name": "messaging", "permission": "sms"})]),
    "set_data_usage": ({**LINE, "data_used_gb": 5.5}, [("refuel_data", {**LINE, "gb_amount": 2.0})]),
    "set_user_location": ({"abroad": True}, [("toggle_roaming", {}), ("enable_roaming", LINE)]),
    "suspend_line_for_overdue_bill": (
        {**OVERDUE, "contract_ended": False},
        [("send_payment_request", {"customer_id": "C1", "bill_id": "B2"}), ("make_payment", {}),
         ("resume_line", LINE), ("reboot_device", {})]),
}  # fmt: skip
WELL = [
    ("assert_service_status", {"expected_status": "connected"}),
    ("assert_mobile_data_status", {"expected_status": True}),
    ("assert_internet_speed", {"expected_speed": 200, "expected_desc": "excellent"}),
    ("assert_can_send_mms", {"expected_status": True}),
    ("assert_no_overdue_bill", {"overdue_bill_id": "B2"}),
]


def case(name: str, beginning: list, actions: list, assertions: list, basis: list | None = None) -> dict:
    first = ("set_user_info", {"name": "Ann Lee", "phone_number": "555-1"})
    last = ("simulate_network_search", {})
    steps = [{"env_type": "user", "func_name": n, "arguments": a} for n, a in (first, *beginning, last)]
    wish = {"reason_for_call": "Your phone fails you.", "known_info": "You are Ann.", "task_instructions": "Be kind."}
    return {
        "id": f"[{name}]own", "ticket": f"Ann Lee, 555-1: {name}.", "user_scenario": {"instructions": wish},
        "initial_state": {"initialization_actions": steps},
        "evaluation_criteria": {
            "actions": [{"name": n, "arguments": a, "compare_args": [] if "transfer" in n else None} for n, a in actions],
            "env_assertions": [{"func_name": n, "arguments": a, "assert_value": True} for n, a in assertions],
            "reward_basis": basis or ["ENV_ASSERTION"],
        },
    }  # fmt: skip


HAND_OVER = case(
    "contract",
    [("suspend_line_for_overdue_bill", {**OVERDUE, "contract_ended": True}), ("lock_sim_card", {"mode": "pin"})],
    [("transfer_to_human_agents", {"summary": "no"})],
    [("assert_service_status", {"expected_status": "no_service"})],
    ["ENV_ASSERTION", "ACTION"],
)
TASKS = [case(name, [(name, given)], mend, WELL) for name, (given, mend) in CASES.items()] + [HAND_OVER]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    domain = tmp_path_factory.mktemp("tau2") / "telecom"
    domain.mkdir()
    texts = {
        "db.toml": DB,
        "user_db.toml": PHONE,
        "tasks.json": json.dumps(TASKS),
        "tasks_small.json": json.dumps(TASKS[:2]),
    }
    for name in ("main_policy", "main_policy_solo", "tech_support_manual", "tech_support_workflow_solo"):
        texts[f"{name}.md"] = f"Rules: {name}."
    for name, text in texts.items():
        (domain / name).write_text(text)
    return domain.parent


@pytest.fixture(scope="module")
def task(folder) -> Tau2Telecom:
    return Tau2Telecom(data=str(folder))


def world(task: Tau2Telecom, name: str) -> TelecomWorld:
    return task.episode(next(row for row in task.rows("test", None) if row["category"] == name)).world


def call(world: TelecomWorld, name: str, **arguments):
    answer = world.call(ToolCall(name, arguments))
    return json.loads(answer) if answer.startswith("{") else answer


def test_every_fault_is_mended_by_its_calls_and_by_no_fewer(task):
    rows = task.rows("test", None)
    assert len(rows) == len(TASKS) and rows[0]["prompt"][1]["content"] == "Ann Lee, 555-1: turn_airplane_mode_on."
    for row in rows:
        reference = task.reference(row)
        verdict = replay(task, row, reference)
        assert verdict.success and verdict.channels == {"assertions": 1.0, "actions": 1.0, "ended": 1.0}, row["id"]
        assert not replay(task, row, task.empty(row)).success, row["id"]
        if row["category"] != "contract":
            for left_out in range(len(reference) - 1):
                assert not replay(task, row, reference[:left_out] + reference[left_out + 1 :]).success, (row["id"], left_out)


def test_a_case_to_hand_over(task):
    row = next(row for row in task.rows("test", None) if row["category"] == "contract")
    other_words = str(ToolCall("transfer_to_human_agents", {"summary": "The contract has ended."}))
    assert replay(task, row, [other_words]).success, "compare_args leaves the summary out"
    forced = [str(ToolCall("resume_line", LINE)), str(ToolCall("reboot_device", {})), other_words]
    assert replay(task, row, forced).success, "the SIM card is still locked"
    silent = replay(task, row, ["I cannot help."])
    assert not silent.success and silent.channels["actions"] == 0.0 and silent.channels["assertions"] == 1.0


def test_the_carriers_tools(task):
    desk = world(task, "suspend_line_for_overdue_bill")
    assert call(desk, "get_customer_by_phone", phone_number="55 51")["customer_id"] == "C1"
    assert (
        call(desk, "get_customer_by_name", full_name="ann lee", dob="1990-01-01")["customers"][0]["customer_id"] == "C1"
    )
    assert call(desk, "get_customer_by_id", customer_id="C1")["bill_ids"] == ["B1", "B2"]
    assert [b["bill_id"] for b in call(desk, "get_bills_for_customer", customer_id="C1", limit=1)["bills"]] == ["B1"]
    assert call(desk, "get_details_by_id", id="L1")["status"] == "Suspended"
    assert call(desk, "get_details_by_id", id="P1")["name"] == "Small" and "no id" in call(
        desk, "get_details_by_id", id="X"
    )
    assert call(desk, "get_data_usage", **LINE)["data_limit_gb"] == 5.0
    assert call(desk, "refuel_data", **LINE, gb_amount=2)["charge"] == 4.0
    assert "above 0" in call(desk, "refuel_data", **LINE, gb_amount=-2)
    assert "not active" in call(desk, "suspend_line", **LINE, reason="x")
    assert "no bill" in call(desk, "send_payment_request", customer_id="C1", bill_id="B9")
    call(desk, "send_payment_request", customer_id="C1", bill_id="B2")
    assert "awaits payment already" in call(desk, "send_payment_request", customer_id="C1", bill_id="B1")
    assert call(desk, "check_payment_request")["payment_request"] == {"bill_id": "B2", "total_due": 10.0}
    assert call(desk, "make_payment")["amount"] == 10.0 and "no payment request" in call(desk, "make_payment")
    call(desk, "resume_line", **LINE)
    assert "not suspended" in call(desk, "resume_line", **LINE)
    assert (
        "no service" not in str(call(desk, "reboot_device")) and call(desk, "suspend_line", **LINE, reason="x")["done"]
    )
    assert "no customer 'C7'" in call(desk, "get_customer_by_id", customer_id="C7")
    assert "no customer has" in call(desk, "get_customer_by_phone", phone_number="0")
    assert "no line" in call(desk, "disable_roaming", customer_id="C1", line_id="L7")


def test_the_phone(task):
    phone = world(task, "turn_airplane_mode_on")
    assert call(phone, "check_status_bar")["status_bar"][0] == "Airplane Mode"
    assert "Airplane Mode is on" in call(phone, "toggle_wifi")
    assert call(phone, "toggle_airplane_mode")["network_connection_status"] == "connected"
    assert call(phone, "check_status_bar")["status_bar"][:2] == ["signal good", "5G"]
    assert call(phone, "toggle_wifi") == {"wifi_enabled": True}
    assert call(phone, "check_wifi_status")["wifi_connected"] is False
    assert call(phone, "run_speed_test")["result"] == "excellent"
    for mode, speed in (("4g_only", "good"), ("3g_only", "poor"), ("2g_only", "very poor")):
        call(phone, "set_network_mode_preference", mode=mode)
        assert call(phone, "run_speed_test")["result"] == speed
    assert call(phone, "can_send_mms") == {"can_send_mms": False} and "the modes are" in call(
        phone, "set_network_mode_preference", mode="6g"
    )
    assert call(phone, "check_network_mode_preference") == {"network_mode_preference": "2g_only"}
    assert call(phone, "connect_vpn") == {"vpn_connected": True} and "already" in call(phone, "connect_vpn")
    assert call(phone, "check_vpn_status")["vpn_performance"] == "excellent"
    assert "VPN connected" in call(phone, "check_status_bar")["status_bar"]
    call(phone, "disconnect_vpn")
    assert "no VPN" in call(phone, "disconnect_vpn")
    assert call(phone, "set_apn_settings", apn_name="other", mmsc_url="")["apn_settings"]["apn_name"] == "other"
    assert call(phone, "reboot_device")["network_connection_status"] == "no_service"
    assert (
        call(phone, "run_speed_test") == {"result": "no connection"}
        and "no signal" in call(phone, "check_status_bar")["status_bar"]
    )
    assert call(phone, "check_apn_settings")["apn_settings"]["mmsc_url"] == ""
    assert call(phone, "check_installed_apps") == {"apps": ["messaging"]}
    assert call(phone, "check_app_permissions", app_name="messaging")["permissions"]["sms"] is True
    assert call(phone, "check_app_status", app_name="messaging")["app_name"] == "messaging"
    assert "no app" in call(phone, "check_app_status", app_name="maps")
    assert "asks for" in call(phone, "grant_app_permission", app_name="messaging", permission="camera")
    assert (
        call(phone, "check_sim_status") == {"sim_card": "active"}
        and call(phone, "check_network_status")["sim_card"] == "active"
    )
    assert call(phone, "check_data_restriction_status") == {"data_saver_mode": False}
    assert call(phone, "check_wifi_calling_status") == {"wifi_calling_enabled": False}
    assert call(phone, "check_payment_request") == {"payment_request": None}
    assert "Known" in call(phone, "fly")


def test_no_call_can_end_a_run(task):
    rng, junk = random.Random(0), (None, True, -1, 10**30, "", "L1", [], {}, [{}])
    row = task.rows("test", None)[-2]
    for _ in range(1000):
        desk = task.episode(row).world
        function = rng.choice(task.tools)["function"]
        arguments = {key: rng.choice(("C1", "L1", "B2", 2.0, *junk)) for key in function["parameters"]["properties"]}
        assert isinstance(desk.call(ToolCall(function["name"], arguments)), str)


def test_a_user_who_has_the_phone(folder):
    """The agent only talks; the user's model reads the status bar and turns Airplane Mode off by itself."""
    use = [{"id": f"u{i}", "type": "function", "function": {"name": name, "arguments": "{}"}}
           for i, name in enumerate(("check_status_bar", "toggle_airplane_mode", "fly"))]  # fmt: skip
    script = iter(
        [message("", tool_calls=use[:1]), message("", tool_calls=use[1:]), message("It is off now."), message(STOP)]
    )
    with serving(lambda body: next(script)) as server:
        task = Tau2Telecom(data=str(folder), user=server.url, user_model="m")
        row = task.rows("test", None)[0]
        assert row["prompt"][0]["content"] == "Rules: main_policy.\n\nRules: tech_support_manual."
        assert {t["function"]["name"] for t in task.tools}.isdisjoint({"toggle_airplane_mode"})
        episode = task.episode(row)
        assert "Known" in episode.reply(str(ToolCall("toggle_airplane_mode", {})))[0]["content"], (
            "not the agent's to use"
        )
        assert episode.reply("Is Airplane Mode on?") == [{"role": "user", "content": "It is off now."}]
        assert episode.reply("Good bye.") is None
        assert task.verdict(row, Transcript("", [""], episode)).success
        last = server.requests[2]["messages"]
        assert [m.get("tool_call_id") for m in last if m["role"] == "tool"] == ["u0", "u1", "u2"]
        assert "Airplane Mode" in last[-4]["content"] and "unknown tool" in last[-1]["content"]
        with pytest.raises(GearError, match="leave the option user out"):
            task.reference(row)
    for user in ("script", "gpt"):
        with pytest.raises(GearError, match="must be none, or an endpoint"):
            Tau2Telecom(data=str(folder), user=user)


def test_splits_and_bad_data(folder, tmp_path):
    assert len(Tau2Telecom(data=str(folder)).rows("small", None)) == 2
    with pytest.raises(GearError, match="no training set"):
        Tau2Telecom(data=str(folder)).rows("train", 1)
    with pytest.raises(GearError, match=r"looked for telecom/db\.toml.*tau2-bench"):
        Tau2Telecom(data=str(tmp_path))
    copy = tmp_path / "telecom"
    copy.mkdir()
    for file in (folder / "telecom").iterdir():
        (copy / file.name).write_text(file.read_text())
    (copy / "split_tasks.json").write_text(
        json.dumps({"train": [TASKS[0]["id"]], "test": [t["id"] for t in TASKS[1:]]})
    )
    split = Tau2Telecom(data=str(tmp_path))
    assert len(split.rows("train", 3)) == 3 and len(split.rows("test", None)) == len(TASKS) - 1
    for change, says in [
        (
            {"initial_state": {"initialization_actions": [{"func_name": "_search", "arguments": {}}]}},
            "no function '_search'",
        ),
        (
            {"initial_state": {"initialization_actions": [{"func_name": "set_user_location", "arguments": {"x": 1}}]}},
            "unexpected",
        ),
        ({"evaluation_criteria": {}}, "env_assertions"),
    ]:
        (copy / "tasks.json").write_text(json.dumps([TASKS[0], {**TASKS[1], **change}]))
        with pytest.raises(GearError, match=rf"tasks\.json, task 1: not in τ²-bench's layout .*{says}"):
            Tau2Telecom(data=str(tmp_path)).rows("test", None)
    (copy / "db.toml").write_text("[[plans]]\n")
    with pytest.raises(GearError, match=r"db\.toml lacks customers, lines"):
        Tau2Telecom(data=str(tmp_path))
    (copy / "db.toml").write_text("plans =")
    with pytest.raises(GearError, match=r"db\.toml: not TOML"):
        Tau2Telecom(data=str(tmp_path))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark's data is not beside the checkout")
def test_the_benchmark_itself():
    """Every reference list mends its case, and all but seven of its 521 calls are needed: the others are restarts that another
    restart, or putting the SIM card in again, makes up for."""
    task = Tau2Telecom(data=str(SHARED))
    for split, count in (("test", 114), ("small", 20)):
        check = check_split(task, split, None)
        assert check.passed and (check.problems, check.reference_right, check.empty_right) == (count, count, 0)
    needed, spare = 0, []
    for row in task.rows("test", None) + task.rows("small", None):
        reference = task.reference(row)
        for i in range(len(reference) - 1):
            if replay(task, row, reference[:i] + reference[i + 1 :]).success:
                spare.append(json.loads(row["answer"])["actions"][i]["name"])
            else:
                needed += 1
    assert needed == 514 and spare == ["reboot_device"] * 7


def test_lone_surrogates_end_no_run(task):
    for row in task.rows("test", 2):
        assert surrogate_turns.play_all(task, row) > 20
