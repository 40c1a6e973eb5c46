"""τ-bench against what its authors recorded: only where the benchmark's data lies beside the checkout."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from pathlib import Path

import pytest

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.tasks.base import Transcript, replay
from gear_rl.tasks.tools.tau import Tau2Airline, Tau2Retail, TauAirline, TauRetail
from gear_rl.tasks.tools.tau.episode import TauEpisode
from gear_rl.tasks.tools.tau.records import Database
from gear_rl.tasks.tools.tau.world import World

SHARED = Path(__file__).parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(not (SHARED / "tau_bench").is_dir(), reason="the data is not beside the checkout")


@pytest.fixture(scope="module")
def airline() -> TauAirline:
    task = TauAirline(data=str(SHARED / "tau_bench"))
    for user in task._world.tables["users"].values():  # the recordings are older than a renamed field
        user["address"] = {{"state": "province"}.get(key, key): value for key, value in user["address"].items()}
    task._reference = {key: task._fresh_world().after(problem.actions) for key, problem in task._problems.items()}
    return task


class RecordedUser:
    def __init__(self, messages: list[str]) -> None:
        self.messages = messages

    def reply(self, message: str) -> str:
        return self.messages.pop(0)


def test_the_recorded_airline_dialogues_recur(airline):
    """Every call gives the recorded output and every dialogue its recorded reward, all 100 of them."""
    with gzip.open(SHARED / "tau_bench" / "recorded" / "gpt-4o-airline.trials-0-1.json.gz") as file:
        records = json.load(file)
    rows = {row["id"]: row for row in airline.rows("test", None)}
    outputs = rewards = 0
    for record in records:
        row, messages = rows[f"test_{record['task_id']}"], record["traj"]
        user = RecordedUser([message["content"] for message in messages[2:] if message["role"] == "user"])
        episode = TauEpisode(airline._fresh_world(), user)
        for said, heard in zip(messages, [*messages[1:], None], strict=True):
            if said["role"] != "assistant":
                continue
            calls = said.get("tool_calls") or []
            turn = said["content"]
            if calls:
                turn = str(ToolCall(calls[0]["function"]["name"], json.loads(calls[0]["function"]["arguments"])))
            reply = episode.reply(turn)
            if heard is not None and heard["role"] == "tool" and reply is not None:
                assert reply[0]["content"] == heard["content"], (record["task_id"], turn)
                outputs += 1
            elif calls:
                assert reply is None and heard["content"] == "Transfer successful"
                outputs += 1
        verdict = airline.verdict(row, Transcript("", [], episode))
        assert verdict.reward == record["reward"], record["task_id"]
        rewards += 1
    assert (outputs, rewards) == (572, 100)


def test_the_hashes_of_reference_databases_are_the_recorded_ones(airline):
    """A few, since hashing a whole airline is slow: the canonical form is the benchmark's."""
    with gzip.open(SHARED / "tau_bench" / "recorded" / "gpt-4o-airline.trials-0-1.json.gz") as file:
        records = [record for record in json.load(file) if "gt_data_hash" in str(record["info"].get("reward_info"))]
    for record in records[:60:12]:
        world = airline._fresh_world()
        world.after(airline._problems[f"test_{record['task_id']}"].actions)
        assert world.database.hash() == record["info"]["reward_info"]["info"]["gt_data_hash"]


@pytest.mark.parametrize(
    "kind, data, split, count, changed, trivial",
    [
        (TauAirline, "tau_bench", "test", 50, 30, 19),
        (TauRetail, "tau_bench", "test", 115, 104, 7),
        (TauRetail, "tau_bench", "train", 500, 495, 5),
        (Tau2Airline, "tau2_bench", "base", 50, 26, 23),
        (Tau2Retail, "tau2_bench", "base", 114, 103, 11),
    ],
)
def test_reference_scores_one_on_every_task(kind, data, split, count, changed, trivial):
    task = kind(data=str(SHARED / data))
    rows = task.rows(split, None)
    reference = [replay(task, row, task.reference(row)) for row in rows]
    empty = [replay(task, row, task.empty(row)) for row in rows]
    assert len(rows) == count and all(verdict.success for verdict in reference)
    assert sum(bool(task._reference[row["id"]]) for row in rows) == changed
    assert [verdict.success for verdict in empty] == [verdict.trivially_passable for verdict in empty]
    assert sum(verdict.success for verdict in empty) == trivial


def test_orders_printed_in_the_example_dialogues_recur():
    """The retail examples show outcomes without calls: work out the call from the outcome, and make it."""
    task = TauRetail(data=str(SHARED / "tau_bench"))
    found: dict[str, int] = {}
    for line in (SHARED / "tau_bench/few_shot_data/MockRetailDomainEnv-few_shot.jsonl").read_text().splitlines():
        shown = re.findall(r'^tool: (\{"order_id.*)$', json.loads(line)["messages_display"], re.M)
        made: list[ToolCall] = []
        for text in shown:
            world = _after(task, made)
            order = json.loads(text)
            if json.dumps(world.database.read("orders", order["order_id"])) == text:
                continue
            for call in _candidates(world.database, order):
                if _after(task, made).call(call) == text:
                    made.append(call)
                    found[call.name] = found.get(call.name, 0) + 1
                    break
            else:
                pytest.fail(f"no call leads to {text[:300]}")
    assert found == {
        "return_delivered_order_items": 20,
        "modify_pending_order_items": 19,
        "cancel_pending_order": 18,
        "exchange_delivered_order_items": 14,
        "modify_pending_order_address": 12,
        "modify_pending_order_payment": 1,
    }


def _after(task: TauRetail, calls: list[ToolCall]) -> World:
    world = task._fresh_world()
    for call in calls:
        world.call(call)
    return world


def _candidates(database: Database, order: dict):
    before, key = database.read("orders", order["order_id"]), {"order_id": order["order_id"]}
    history = order["payment_history"]
    if order["status"] == "cancelled":
        yield ToolCall("cancel_pending_order", {**key, "reason": order["cancel_reason"]})
    elif order["status"] == "return requested":
        items = {"item_ids": order["return_items"], "payment_method_id": order["return_payment_method_id"]}
        yield ToolCall("return_delivered_order_items", {**key, **items})
    elif order["status"] == "exchange requested":
        for new in itertools.permutations(order["exchange_new_items"]):
            items = {"item_ids": order["exchange_items"], "new_item_ids": list(new)}
            method = {"payment_method_id": order["exchange_payment_method_id"]}
            yield ToolCall("exchange_delivered_order_items", {**key, **items, **method})
    elif order["status"] == "pending (item modified)":
        pairs = [(a["item_id"], b["item_id"]) for a, b in zip(before["items"], order["items"], strict=True) if a != b]
        for chosen in itertools.permutations(pairs):
            items = {"item_ids": [a for a, _ in chosen], "new_item_ids": [b for _, b in chosen]}
            method = {"payment_method_id": history[-1]["payment_method_id"]}
            yield ToolCall("modify_pending_order_items", {**key, **items, **method})
    elif order["address"] != before["address"]:
        yield ToolCall("modify_pending_order_address", {**key, **order["address"]})
    else:
        method = {"payment_method_id": history[-2]["payment_method_id"]}
        yield ToolCall("modify_pending_order_payment", {**key, **method})
