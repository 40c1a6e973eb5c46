"""No lone surrogate in a model's turn, in its calls or in its answer ends a run, in any task.

τ² telecom and ACEBench's agents have the same test beside their samples.
"""

import json

import bfcl_sample
import maths_sample
import pytest
import surrogate_turns
import tau_sample
from chat_server import message, serving
from function_schema import function

from gear_rl.chat.endpoint import Endpoint
from gear_rl.chat.messages import well_formed
from gear_rl.chat.tool_calls import read_turn
from gear_rl.tasks import make_task
from gear_rl.tasks.tools.tau.airline import AirlineTools
from gear_rl.tasks.tools.tau.retail import RetailTools


def options(name, folder):
    if name == "gsm8k":
        return {"data": str(maths_sample.write(folder)), "judges": 1}
    if name == "reasoning_gym":
        return {"dataset": "gcd,string_insertion", "judges": 1}
    if name == "bfcl":
        categories = ",".join([*bfcl_sample.SINGLE, "multi_turn_base"])
        return {"data": str(bfcl_sample.write_sample(folder / "data")), "category": categories}
    if name.startswith("tau_"):
        return {"data": str(tau_sample.write_sample(folder, {"retail": RetailTools, "airline": AirlineTools}))}
    if name == "toolrl":
        row = {
            "prompt": [{"role": "user", "content": "do"}],
            "ground_truth": "<think> so </think>\n<response> x </response>",
        }
        (folder / "rlla_4k_test_80.jsonl").write_text(json.dumps(row) + "\n")
        return {"data": str(folder)}
    if name == "acebench":
        (folder / "possible_answer").mkdir()
        order = function("Shop.order", "Order.", ["what"], what="string")
        entry = {"id": "normal_atom_bool_0", "question": "user: Tea.\n", "function": [order], "time": ""}
        (folder / "data_normal_atom_bool.json").write_text(json.dumps(entry) + "\n")
        answer = {"id": entry["id"], "ground_truth": {"Shop.order": {"what": "tea"}}}
        (folder / "possible_answer" / "data_normal_atom_bool.json").write_text(json.dumps(answer) + "\n")
        return {"data": str(folder), "category": "normal_atom_bool"}
    return {}


@pytest.mark.parametrize(
    "name",
    ["workshop", "workshop_words", "gsm8k", "reasoning_gym", "toolrl", "bfcl", "tau_retail", "tau_airline", "acebench"],
)
def test_no_rollout_raises(tmp_path, name):
    if name == "bfcl":
        pytest.importorskip("bfcl_eval")
    task = make_task(name, **options(name, tmp_path))
    for row in task.rows("test", None if name == "bfcl" else 2):
        assert surrogate_turns.play_all(task, row) >= 5
    task.close()


def test_own_problems(tmp_path):
    (tmp_path / "own.jsonl").write_text(json.dumps({"prompt": "\ud800?", "answer": "no"}) + "\n")
    task = make_task(str(tmp_path / "own.jsonl"))
    for row in task.rows("train", 1):
        surrogate_turns.play_all(task, row)
    task.close()


def test_what_an_endpoint_says_has_none():
    with serving(lambda request: message("a\ud800b")) as server:
        assert Endpoint(server.url, "m").chat([{"role": "user", "content": "x"}]).text == "a\ufffdb"


def test_only_lone_ones_are_replaced():
    assert well_formed("a\ud83d\ude00\ud800") == "a\U0001f600\ufffd" and well_formed({"\udc00": ["é"]}) == {
        "\ufffd": ["é"]
    }
    call = read_turn('<tool_call>{"name": "f", "arguments": {"\\ud800": "\\ud83d\\ude00"}}</tool_call>').calls[0]
    assert call.arguments == {"\ufffd": "\U0001f600"}
