"""The record: what goes in comes out, a kill or a full disk costs at most the last line, and bad files say so."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import records_made
import torch
from records_made import HEADER, LENGTHS, make_batch, new_record, write

from gear_rl import GearError, credit
from gear_rl.records.record import VERSION, open_record, read_record, to_rollouts
from gear_rl.records.writer import RecordWriter


# ---------------------------------------------------------------------------------------------------- there and back
def test_tensors_come_back(tmp_path):
    rollouts = make_batch()
    with RecordWriter(tmp_path / "r.jsonl", HEADER) as writer:
        write(writer, 7, rollouts, successes=[True, False, True, False])
    record = read_record(tmp_path / "r.jsonl")
    assert record.header == {"schema": "gear_rl.rollouts", "version": VERSION, **HEADER}
    back = to_rollouts(record.rollouts)
    width = max(LENGTHS)
    kept = torch.arange(width) < torch.tensor(LENGTHS)[:, None]  # beyond a completion the engine's tensors hold padding
    assert back.action_mask.equal(rollouts.action_mask[:, :width])
    assert back.token_ids.equal(rollouts.token_ids[:, :width] * kept)
    assert back.group_ids.equal(rollouts.group_ids)
    torch.testing.assert_close(back.rewards, rollouts.rewards, rtol=1e-5, atol=0)
    torch.testing.assert_close(back.advantages, rollouts.advantages, rtol=1e-5, atol=0)
    for name, signal_values in rollouts.signals.items():
        expected = signal_values[:, :width].masked_fill(~back.action_mask, 0)
        torch.testing.assert_close(back.signals[name], expected, rtol=1e-5, atol=0)
    assert [line.success for line in record.rollouts] == [True, False, True, False]
    assert record.rollouts[0].hinted_prompt == "prompt 0 hint"


def test_the_saved_credit_is_what_the_method_gives_again(tmp_path):
    record = read_record(new_record(tmp_path / "r.jsonl", steps=1))
    again = credit("gear", to_rollouts(record.rollouts))
    for i, line in enumerate(record.rollouts):
        n = len(line.token_ids)
        assert line.segments == again.segments[i, :n].tolist()
        assert line.onsets == again.onsets[i, :n].long().tolist()
        torch.testing.assert_close(torch.tensor(line.weights), again.weights[i, :n], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.tensor(line.advantages), again.advantages[i, :n], rtol=1e-4, atol=1e-5)


def test_unscored_and_untrained_rollouts_come_back_as_such(tmp_path):
    rewards = make_batch().rewards.clone()
    rewards[1] = torch.nan
    rollouts = replace(make_batch(), rewards=rewards, trained=torch.tensor([True, True, False, True]))
    with RecordWriter(tmp_path / "r.jsonl", HEADER) as writer:
        write(writer, 0, rollouts)
    back = to_rollouts(read_record(tmp_path / "r.jsonl").rollouts, from_rewards=True)
    assert back.scorable.tolist() == [True, False, True, True] and back.trained.tolist() == [True, True, False, True]
    again = credit("gear", back).advantages.abs().sum(1)
    assert again[1] == again[2] == 0 < again[3]
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    older = [json.dumps({k: v for k, v in json.loads(line).items() if k != "trained"}) for line in lines]
    (tmp_path / "older.jsonl").write_text("\n".join(older) + "\n")
    assert all(line.trained for line in read_record(tmp_path / "older.jsonl").rollouts)


def test_masked_tokens_have_null_signals_and_no_turn(tmp_path):
    line = read_record(new_record(tmp_path / "r.jsonl", steps=1)).rollouts[0]
    assert line.turns == [1, 1, 1, 0, 0, 2, 2, 2, 2]
    assert [x is None for x in line.signals["entropy"]] == [m == 0 for m in line.action_mask]
    assert all(x == float(f"{x:.6g}") for x in line.weights + line.advantages)


def test_any_text_survives(tmp_path):
    strange = ["\ud800", "\u2028", "\n", "\x00", "\x1b[2J", "日本", '"', "\\", "\r\n"]
    with RecordWriter(tmp_path / "r.jsonl", HEADER) as writer:
        write(writer, 0, texts=[strange, strange[:6], [], strange])
    assert read_record(tmp_path / "r.jsonl").rollouts[0].token_texts == strange


def test_batches_of_one_step_do_not_share_groups(tmp_path):
    with RecordWriter(tmp_path / "r.jsonl", HEADER) as writer:
        for step in (0, 0, 1):
            write(writer, step)
    rollouts = read_record(tmp_path / "r.jsonl").rollouts
    assert [line.group for line in rollouts] == [0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1]
    assert to_rollouts(rollouts).group_ids.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_group_advantages_can_be_left_out(tmp_path):
    rollouts = read_record(new_record(tmp_path / "r.jsonl", steps=1)).rollouts
    assert to_rollouts(rollouts, from_rewards=True).advantages is None
    with RecordWriter(tmp_path / "own.jsonl", HEADER) as writer:
        write(writer, 0, make_batch(advantages=False))
    own = read_record(tmp_path / "own.jsonl").rollouts
    assert own[0].group_advantage is None and to_rollouts(own).advantages is None


def test_what_cannot_be_recorded_is_refused(tmp_path):
    rollouts = make_batch()
    with RecordWriter(tmp_path / "r.jsonl", HEADER) as writer:
        with pytest.raises(GearError, match="rollout 0 has 2 token texts"):
            write(writer, 0, rollouts, texts=[["a", "b"], ["a"] * 6, [], ["a"] * 9])
        with pytest.raises(GearError, match="4 rollouts, but token texts of 1"):
            write(writer, 0, rollouts, texts=[["a"] * 9])
        object.__setattr__(rollouts, "token_ids", None)
        with pytest.raises(GearError, match="token_ids"):
            write(writer, 0, rollouts)
    assert read_record(tmp_path / "r.jsonl").rollouts == []


def test_signals_must_be_the_same_throughout(tmp_path):
    first, *rest = read_record(new_record(tmp_path / "r.jsonl", steps=1)).rollouts
    del rest[-1].signals["entropy"]
    with pytest.raises(GearError, match=r"rollout 3 \(step 0\) has no signal 'entropy'"):
        to_rollouts([first, *rest])
    with pytest.raises(GearError, match="no rollouts"):
        to_rollouts([])


# ---------------------------------------------------------------------------------------------------- going on
@pytest.mark.parametrize("step", [-1, 0, 1, 2, 9])
def test_resuming_drops_later_steps_and_a_torn_line(tmp_path, step):
    whole = new_record(tmp_path / "whole.jsonl").read_bytes()
    path = new_record(tmp_path / "r.jsonl")
    path.write_bytes(path.read_bytes() + b'{"step":3,"gro')
    with RecordWriter(path, HEADER, after=step) as writer:
        for again in range(step + 1, 3):
            write(writer, again)
    assert path.read_bytes() == whole


def test_a_kill_at_any_byte_costs_at_most_one_line(tmp_path):
    path = new_record(tmp_path / "r.jsonl", steps=1)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut])
        RecordWriter(path, HEADER).close()
        left = path.read_bytes()
        assert left.endswith(b"\n") and whole.startswith(left)
        assert left.count(b"\n") == max(1, whole[:cut].count(b"\n"))


def test_groups_go_on_within_a_step_after_resuming(tmp_path):
    path = new_record(tmp_path / "r.jsonl", steps=1)
    with RecordWriter(path, HEADER, after=0) as writer:
        write(writer, 0)
    assert [line.group for line in read_record(path).rollouts] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_another_runs_record_is_not_appended_to(tmp_path):
    path = new_record(tmp_path / "r.jsonl", steps=1)
    before = path.read_bytes()
    with pytest.raises(GearError, match="another run: its method, task differ"):
        RecordWriter(path, {**HEADER, "method": "grpo", "task": "other"})
    assert path.read_bytes() == before
    damaged = before.replace(b'"group":0', b'"group":-', 1) + b'{"step":3,"gro'
    path.write_bytes(damaged)
    with pytest.raises(GearError, match="line 2"):
        RecordWriter(path, HEADER, after=0)
    assert path.read_bytes() == damaged, "not even the torn line is dropped"
    for text in ("do not lose this", "nor\nthis", '{"schema":"else"}\n'):
        (tmp_path / "notes.txt").write_text(text)
        with pytest.raises(GearError, match="not a record"):
            RecordWriter(tmp_path / "notes.txt", HEADER)
        assert (tmp_path / "notes.txt").read_text() == text


def test_a_full_disk_leaves_whole_lines(tmp_path):
    path = tmp_path / "r.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RecordWriter(path, HEADER) as writer:
        write(writer, 0)
        before = path.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
        try:
            with pytest.raises(OSError, match=r"r\.jsonl"):
                write(writer, 1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == before
        write(writer, 1)
    assert path.read_bytes() == new_record(tmp_path / "whole.jsonl", steps=2).read_bytes()


def test_a_killed_writer_leaves_a_record_that_goes_on(tmp_path):
    path = tmp_path / "r.jsonl"
    code = f"import sys; sys.path.insert(0, {os.path.dirname(records_made.__file__)!r}); from records_made import *\n"
    code += f"writer = RecordWriter({str(path)!r}, HEADER)\nfor step in range(10**6): write(writer, step)"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.time() + 60
        while time.time() < deadline and (not path.exists() or path.stat().st_size < 50_000):
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    RecordWriter(path, HEADER, after=1).close()
    assert path.read_bytes() == new_record(tmp_path / "whole.jsonl", steps=2).read_bytes()


# ---------------------------------------------------------------------------------------------------- bad files
def test_missing_empty_and_foreign_files_are_named(tmp_path):
    for name, content, says in (
        ("empty.jsonl", b"", "is empty"),
        ("blank.jsonl", b"\n", "is empty"),
        ("text.jsonl", b"hello\n", "not a record"),
        ("list.jsonl", b"[1]\n", "not a record"),
        ("other.jsonl", b'{"schema": "else"}\n', "not a record"),
        ("bytes.jsonl", bytes(range(256)), "not a record"),
        ("deep.jsonl", b"[" * 100_000, "not a record"),
        ("new.jsonl", b'{"schema":"gear_rl.rollouts","version":2}\n', "version 2; this gear_rl reads version 1"),
        ("none.jsonl", b'{"schema":"gear_rl.rollouts"}\n', "version None"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(GearError, match=says) as caught:
            read_record(tmp_path / name)
        assert name in str(caught.value)
    with pytest.raises(GearError, match="there is no record"):
        read_record(tmp_path / "gone.jsonl")
    with pytest.raises(GearError, match="not a file"):
        read_record(tmp_path)


def spoil(**changes):
    def change(line):
        content = json.loads(line)
        for key, value in changes.items():
            if value is ...:
                del content[key]
            else:
                content[key] = value
        return json.dumps(content).encode()

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda line: line[:-9], "not JSON"),
        (lambda line: b"\x00" * 50, "not JSON"),
        (lambda line: b"[" * 100_000, "not JSON"),
        (lambda line: b"[]", "no rollout"),
        (spoil(step=-1), "no rollout"),
        (spoil(group="a"), "no rollout"),
        (spoil(reward=...), "'reward' is missing"),
        (spoil(reward="high"), "reward is 'high'"),
        (spoil(reward=10**400), "a number has 401 digits"),
        (lambda line: line.replace(b'"reward":', b'"reward":NaN,"x":'), "NaN"),
        (spoil(token_ids=[1, 2]), "token_texts is not a list of 2"),
        (spoil(token_ids=[2**40] * 9), "token_ids has"),
        (spoil(token_ids=None), "token_ids is 'None'"),
        (spoil(action_mask=[2] * 9), "action_mask has"),
        (spoil(weights=["1"] * 9), "weights has"),
        (spoil(weights=3), "weights is not a list of 9"),
        (spoil(signals=[]), "signals is"),
        (spoil(signals={"entropy": [None] * 9}), "'entropy' is null at position 0"),
        (spoil(signals={"entropy": [1e39] * 9}), "'entropy' has"),
        (spoil(prompt=None), "prompt is"),
    ],
)
def test_a_corrupt_line_is_named(tmp_path, change, says):
    path = new_record(tmp_path / "r.jsonl", steps=1)
    lines = path.read_bytes().splitlines()
    lines[1] = change(lines[1])
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(GearError, match=r"line 2: (corrupt|not JSON)") as caught:
        read_record(path)
    assert says in str(caught.value)


def test_a_cut_off_record_says_where_and_what_to_do(tmp_path):
    path = new_record(tmp_path / "r.jsonl", steps=1)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(GearError, match=r"line 5: cut off .* the 4 before it are whole"):
        read_record(path)


def test_reading_goes_line_by_line(tmp_path):
    path = new_record(tmp_path / "r.jsonl", steps=2)
    path.write_bytes(path.read_bytes()[:-20])
    header, rollouts = open_record(path)
    assert header["method"] == "gear" and next(rollouts).step == 0, "whole lines are there before the torn one is met"
