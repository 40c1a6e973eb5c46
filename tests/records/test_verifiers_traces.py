"""verifiers' traces: read with every field checked, credited by any method, written with nothing else changed."""

from __future__ import annotations

import copy
import json
import re

import pytest
import torch
from verifiers_samples import lines, played_traces

from gear_rl.cli.main import main
from gear_rl.errors import GearError
from gear_rl.methods import method
from gear_rl.records.record import read_record
from gear_rl.records.verifiers_traces import filled, is_verifiers_traces, read_verifiers_traces
from gear_rl.tasks import make_task

COMPACT = {"separators": (",", ":")}


@pytest.fixture(scope="module")
def played():
    return played_traces()


def write(path, episodes, **style):
    path.write_bytes(lines(episodes, **style))
    return path


def sampled_values(path):
    """Per trace the advantages of its sampled tokens, in order."""
    found = []
    for trace in read_verifiers_traces(path):
        (branch,) = trace.branches
        found.append([a for a, sampled in zip(branch.advantages, branch.action_mask, strict=True) if sampled])
    return found


@pytest.mark.parametrize("style", [COMPACT, {}], ids=["as verifiers writes", "with spaces"])
def test_all_but_the_advantages_stays_byte_for_byte(played, tmp_path, style):
    episodes = copy.deepcopy(played[3])
    odd = {"tiny": 1e-7, "big": 12345678901234567890, "text": "ü\u2028", "again": {"nodes": [], "advantages": [1]}}
    for row in episodes:
        row["traces"][0]["info"] = odd
    episodes[1]["traces"][0]["nodes"][1]["advantages"] = None  # as `to_record` writes what was never assigned
    source = write(tmp_path / "traces.jsonl", episodes, **style)
    raw = source.read_bytes().replace(b"-0.12345678901234568", b"-1.2345678901234567890e-1")  # no float prints so
    source.write_bytes(raw)
    assert main(["credit", str(source), "--credit", "grpo"]) == 0
    out = (tmp_path / "traces.grpo.jsonl").read_bytes()
    written = re.compile(rb',? ?"advantages": ?\[[-0-9., e]+\](?=[,}])')
    assert len(written.findall(out)) > len(episodes)
    expected = raw.replace(b',"advantages":null', b"").replace(b', "advantages": null', b"")
    assert written.sub(b"", out).replace(b',"advantages":[1]', b"").replace(b', "advantages": [1]', b"") == written.sub(
        b"", expected
    )
    again = tmp_path / "again.jsonl"
    assert main(["credit", str(tmp_path / "traces.grpo.jsonl"), "--credit", "grpo", "-o", str(again)]) == 0
    assert again.read_bytes() == out


def test_gear_fills_what_the_same_rollouts_get_as_transcripts(played, tmp_path, capsys):
    rows, episodes = played[1], copy.deepcopy(played[3])
    task, model = make_task("workshop", steps=4), make_task("workshop").default_model()
    source = write(tmp_path / "traces.jsonl", episodes, **COMPACT)
    hint = ["--hint-template", task.hint_template]
    assert main(["credit", str(source), "--credit", "gear", "--model", model, *hint]) == 0
    assert "8 rollouts" in capsys.readouterr().out
    transcripts = [
        {
            "messages": [n["message"] for n in row["traces"][0]["nodes"]],
            "reward": row["traces"][0]["rewards"]["answer"]["score"],
            "hint": data["hint"],
        }
        for row, data in zip(episodes, rows, strict=True)
    ]
    for row in transcripts:
        for message in row["messages"]:
            words = message["content"].replace("<end>", "").replace("<bot>", "").split()
            message.update(content=" ".join(words))
    other = tmp_path / "transcripts.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in transcripts))
    assert main(["credit", str(other), "--credit", "gear", "--model", model, *hint]) == 0
    record = read_record(tmp_path / "transcripts.gear.jsonl").rollouts
    found = sampled_values(tmp_path / "traces.gear.jsonl")
    assert any(len(set(values)) > 2 for values in found)  # not one number per rollout
    for line, values in zip(record, found, strict=True):
        expected = [a for a, sampled in zip(line.advantages, line.action_mask, strict=True) if sampled]
        assert values == pytest.approx(expected, abs=1e-5)


def test_groups_are_task_rows_and_failed_or_foreign_traces_are_left_alone(played, tmp_path, capsys):
    episodes = copy.deepcopy(played[3])
    rewards = [1.0, 0.0, 1.0, 1.0, 5.0, 3.0, 2.0, 1.0]
    for row, reward in zip(episodes, rewards, strict=True):
        row["traces"][0]["rewards"]["answer"]["score"] = reward
    judge = copy.deepcopy(episodes[0]["traces"][0])
    judge["agent"] = {"name": "judge", "trainable": False}
    episodes[0]["traces"].append(judge)
    episodes[3]["traces"][0]["ok"] = False
    episodes[7]["traces"][0]["rewards"] = {"answer": None}
    source = write(tmp_path / "traces.jsonl", episodes, **COMPACT)
    assert main(["credit", str(source), "--credit", "grpo"]) == 0
    said = capsys.readouterr().out
    for reason in ("1 of 9 traces that failed", "1 of 9 traces without a reward", "1 of 9 traces of agents"):
        assert reason in said
    traces = list(read_verifiers_traces(tmp_path / "traces.grpo.jsonl"))
    credited = [trace for trace in traces if trace.branches[0].advantages is not None]
    assert [trace.id[-1] for trace in credited] == ["0", "1", "2", "4", "5", "6"]
    expected = torch.tensor([[1.0, 0.0, 1.0], [5.0, 3.0, 2.0]])
    expected = (expected - expected.mean(1, keepdim=True)) / (expected.std(1, keepdim=True) + 1e-4)
    for trace, value in zip(credited, expected.flatten().tolist(), strict=True):
        branch = trace.branches[0]
        assert branch.advantages == pytest.approx([value if sampled else 0.0 for sampled in branch.action_mask], rel=1e-5)


def test_a_trace_of_several_branches_counts_once_in_its_group(played, tmp_path):
    episodes = copy.deepcopy(played[3][:3])
    for row, reward in zip(episodes, (1.0, 0.0, 0.0), strict=True):
        row["traces"][0]["rewards"]["answer"]["score"] = reward
    nodes = episodes[0]["traces"][0]["nodes"]
    fork = copy.deepcopy(nodes[1]) | {"parent": 0}
    nodes.append(fork)  # a second continuation of the prompt
    attempt = copy.deepcopy(fork) | {"parent": 0, "semantic_parents": [{"node": 1, "type": "compaction_attempt"}]}
    nodes.append(attempt)  # never resumed from: not a training sample
    source = write(tmp_path / "traces.jsonl", episodes)
    assert main(["credit", str(source), "--credit", "grpo"]) == 0
    first, second, _ = read_verifiers_traces(tmp_path / "traces.grpo.jsonl")
    expected = (1 - 1 / 3) / (torch.tensor([1.0, 0, 0]).std() + 1e-4)
    assert [branch.trainable for branch in first.branches] == [True, True, False]
    assert max(first.branches[0].advantages) == max(first.branches[1].advantages) == pytest.approx(float(expected), rel=1e-5)
    assert first.branches[2].advantages is None
    assert min(second.branches[0].advantages) < 0


def test_parts_of_the_reward_are_channels(played, tmp_path):
    episodes = copy.deepcopy(played[3])
    for i, row in enumerate(episodes):
        row["traces"][0]["rewards"] = {"a": {"score": i % 2, "weight": 2.0}, "b": {"score": i % 3, "weight": 0.5}}
    source = write(tmp_path / "traces.jsonl", episodes)
    first = next(read_verifiers_traces(source))
    assert first.channels == {"a": 0.0, "b": 0.0} and first.reward == 0.0
    name = "crpo"
    needs = method(name).needs
    model = ["--model", make_task("workshop").default_model()] if needs else []
    assert main(["credit", str(source), "--credit", name, *model]) == 0
    for row in episodes:
        del row["traces"][0]["rewards"]["b"]
    assert main(["credit", str(write(source, episodes)), "--credit", name, *model, "--force"]) == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.update(version=2), "trace version 2"),
        (lambda t: t["nodes"][1].update(parent=1), "node 1: its parent must be a node before it"),
        (lambda t: t["nodes"][1].update(mask=[True]), "mask must have true or false for each"),
        (lambda t: t["nodes"][1].update(logprobs=[0.5]), "logprobs must be a finite number for each"),
        (lambda t: t["nodes"][1].update(token_ids=[-1]), "token_ids must be whole numbers"),
        (lambda t: t["nodes"][1].pop("message"), "must be an object with a message"),
        (lambda t: t.update(rewards={"x": {"score": "1"}}), "reward 'x' must have a score and a weight"),
        (lambda t: t["task"].pop("data"), "its task has no data"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(played, tmp_path, change, says, capsys):
    episodes = copy.deepcopy(played[3])
    change(episodes[2]["traces"][0])
    source = write(tmp_path / "traces.jsonl", episodes)
    with pytest.raises(GearError, match=r"traces.jsonl, line 3, trace 0") as error:
        list(read_verifiers_traces(source))
    assert says in str(error.value)
    assert main(["credit", str(source), "--credit", "grpo"]) == 2
    assert not (tmp_path / "traces.grpo.jsonl").exists()
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_what_cannot_work_is_an_error_before_a_model_is_loaded(played, tmp_path, capsys):
    episodes = copy.deepcopy(played[3])
    source = write(tmp_path / "traces.jsonl", episodes)

    def refused(*arguments):
        assert main(["credit", str(source), *arguments, "--force"]) == 2
        return capsys.readouterr().err

    assert "name the model that wrote them" in refused("--credit", "gear")
    missing = ["--credit", "gear", "--model", "no/such/model"]
    assert "no hint, ground_truth or answer" in refused(*missing, "--hint-field", "solution")
    for row in episodes:
        for node in row["traces"][0]["nodes"]:
            node.update(token_ids=[], mask=[], logprobs=[])
    write(source, episodes)
    assert "none of 8 traces can get credit: 8 without token ids" in refused("--credit", "grpo")
    write(source, [dict(row, traces=[]) for row in episodes])
    assert "none of 0 traces" in refused("--credit", "grpo")
    assert is_verifiers_traces(source) and not is_verifiers_traces(tmp_path / "none.jsonl")


def test_a_trace_alone_on_its_line_is_read_too():
    line = b'{"task":{"data":{}},"nodes":[{"message":{},"token_ids":[1,2],"mask":[false,true]}]}\n'
    assert filled(line, {(0, 0): [0.25]}) == line.replace(b"true]}", b'true],"advantages":[0.25]}')
