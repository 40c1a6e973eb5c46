"""What goes into a page: exact numbers, honest shares, one scale, and never more than it can hold."""

from __future__ import annotations

import json
import zlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import transcript, write_transcripts

from gear_rl import GearError
from gear_rl.records.record import read_record
from gear_rl.report import collect, html_page, open_source, packing, summary
from gear_rl.report.curves import MOST_POINTS, alarms, curves
from gear_rl.report.kinds import KINDS, token_kinds
from gear_rl.report.scales import Scale


# ---------------------------------------------------------------------------------------------------- packing
def unpacked(blob: bytes, count: int) -> np.ndarray:
    """As decode.js does it."""
    planes = np.frombuffer(zlib.decompress(blob, -15), dtype="u1").reshape(4, count)
    return np.ascontiguousarray(planes.T).view("<u4")[:, 0]


six_digits = st.floats(-3e38, 3e38).map(lambda x: float(f"{x:.6g}")).filter(lambda x: x == 0 or 1.2e-38 < abs(x) < 3e38)


@given(st.lists(six_digits, min_size=1, max_size=50))
def test_six_digits_survive(values):
    back = (unpacked(packing.deflated(packing.floats(values)), len(values)) << np.uint32(3)).view("<f4")
    assert [float(f"{x:.6g}") for x in back] == values


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50))
def test_whole_numbers_survive(values):
    words = unpacked(packing.deflated(packing.whole_numbers(values)), len(values)).view("<i4")
    assert np.cumsum(words, dtype="<i4").tolist() == values


def test_large_columns_keep_their_order_through_the_blocks():
    values = np.random.default_rng(0).normal(size=3000)
    values = [float(f"{x:.6g}") for x in values]
    back = (unpacked(packing.deflated(packing.floats(values)), 3000) << np.uint32(3)).view("<f4")
    assert [float(f"{x:.6g}") for x in back] == values


def test_the_same_blob_is_kept_once():
    blobs = packing.Blobs()
    assert [blobs.add(b"one"), blobs.add(b"two"), blobs.add(b"one")] == [0, 1, 0]
    assert len(blobs.text()) == blobs.offsets[-1] == 8


# ---------------------------------------------------------------------------------------------------- what is collected
@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return write_transcripts(tmp_path_factory.mktemp("record") / "r.jsonl", steps=4, groups=3, size=4)


def test_shares_are_those_of_a_plain_loop(record):
    shown = summary(collect([open_source(record)]))["runs"][0]
    praise, blame, tokens = Counter(), Counter(), Counter()
    for line in read_record(record).rollouts:
        kinds = token_kinds(line.token_texts, line.action_mask)
        onset_segments = {line.segments[i] for i, onset in enumerate(line.onsets) if onset}
        for i, sampled in enumerate(line.action_mask):
            if not sampled:
                continue
            place = "elsewhere"
            if line.segments[i] in onset_segments:
                place = "at an onset" if line.onsets[i] else "in the segment after it"
            for key in (f"turn {line.turns[i]}", KINDS[kinds[i]], place, ("text", line.token_texts[i])):
                tokens[key] += 1
                praise[key] += max(0.0, line.advantages[i])
                blame[key] += max(0.0, -line.advantages[i])
    assert shown["shares"].keys() == {"turn", "kind", "decision", "place", "text"}
    for question, rows in shown["shares"].items():
        for row in rows:
            key = ("text", row["name"]) if question == "text" else row["name"]
            assert row["tokens"] == tokens[key]
            assert row["praise"] == pytest.approx(praise[key], rel=1e-5)
            assert row["blame"] == pytest.approx(blame[key], rel=1e-5)
    assert sum(row["tokens"] for row in shown["shares"]["kind"]) == shown["credit"]["tokens"]
    assert len(shown["shares"]["place"]) == 3 and len(shown["shares"]["turn"]) == 3
    credits = [row["praise"] + row["blame"] for row in shown["shares"]["text"]]
    assert credits == sorted(credits, reverse=True)


def test_kinds_know_thought_and_calls_even_when_their_tags_are_cut(record):
    texts, mask = transcript()
    by_kind = {
        name: {t for t, k in zip(texts, token_kinds(texts, mask), strict=True) if KINDS[k] == name} for name in KINDS
    }
    assert {" wants", "<think>", "</think>"} <= by_kind["thinking"]
    assert {'"', "W", "237"} <= by_kind["tool call"]
    assert {"Done", " kettle"} <= by_kind["word"] and "<|im_end|>" in by_kind["mark"] and "." in by_kind["punctuation"]
    cut = ["<", "think", ">", "so", "</", "think", ">", "yes"]
    assert [KINDS[k] for k in token_kinds(cut, [1] * 8)] == ["thinking"] * 7 + ["word"]
    assert [KINDS[k] for k in token_kinds(["<think>", "a", "b"], [0, 1, 1])] == ["mark", "word", "word"]  # not sampled


def test_what_a_page_holds_is_bounded_in_whole_groups(record):
    for most, groups in [(1000, 12), (24, 6), (13, 3), (1, 1)]:
        collection = collect([open_source(record)], most_rollouts=most)
        run = collection.runs[0]
        assert run.rollouts == 48 and len(collection.keys) == groups
        assert all(len(entries) == 4 for entries in run.groups.values())
    spread = [step for step, _ in collect([open_source(record)], most_rollouts=24).keys]
    assert set(spread) == {0, 10, 20, 30}
    shown = summary(collect([open_source(record)], most_rollouts=13))
    assert any("holds 12 of 48 rollouts" in note for note in shown["runs"][0]["notes"])
    assert (
        shown["runs"][0]["credit"] == summary(collect([open_source(record)]))["runs"][0]["credit"]
    )  # shares are of all


def test_runs_of_the_same_rollouts_share_their_tokens(record, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(record.read_text().replace('"method":"gear"', '"method":"same"', 1))
    alone = len(html_page(collect([open_source(record)])))
    both = len(html_page(collect([open_source(record), open_source(other)])))
    assert both < 1.2 * alone


@given(st.lists(st.floats(1e-6, 1e6), min_size=200, max_size=200))
def test_a_scale_covers_99_of_100(values):
    scale = Scale()
    scale.add(np.array(values))
    covered = sum(v <= scale.top() * 1.001 for v in values)
    assert covered >= 198 and scale.top() <= 2.3 * sorted(values)[-1]


def test_a_scale_of_nothing_is_one():
    scale = Scale()
    scale.add(np.zeros(10))
    assert scale.top() == 1.0 and not scale.negative


# ---------------------------------------------------------------------------------------------------- metrics
def test_long_logs_are_averaged_not_cut():
    metrics = [
        {"step": s, "reward": float(s), "odd": 1.0} if s % 2 else {"step": s, "reward": float(s)}
        for s in range(1, 5001)
    ]
    shown = curves(metrics)
    assert len(shown["steps"]) == MOST_POINTS and shown["every"] == 10 and shown["steps"][-1] == 5000
    assert shown["values"]["reward"][0] == 5.5 and shown["values"]["odd"][0] == 1.0


def test_a_record_alone_gives_curves_of_its_outcomes(record, tmp_path):
    """verl's trainer writes a record and no run folder."""
    shown = summary(collect([open_source(record)], most_rollouts=13))["runs"][0]
    rollouts = read_record(record).rollouts
    steps = sorted({rollout.step for rollout in rollouts})
    assert shown["curves"]["steps"] == [step + 1 for step in steps]
    for name in ("reward", "success"):
        means = [np.mean([float(getattr(r, name)) for r in rollouts if r.step == step]) for step in steps]
        assert shown["curves"]["values"][name] == pytest.approx(means)
    assert any("a record alone has no other metrics" in note for note in shown["notes"])
    header, *lines = record.read_text().splitlines(keepends=True)
    reassigned = tmp_path / "reassigned.jsonl"
    reassigned.write_text(json.dumps({**json.loads(header), "trained_with": {"method": "grpo"}}) + "\n" + "".join(lines))
    one_step = tmp_path / "one_step.jsonl"
    one_step.write_text(header + "".join(line for line in lines if json.loads(line)["step"] == steps[0]))
    for path in (reassigned, one_step):
        shown = summary(collect([open_source(path)]))["runs"][0]
        assert not shown["curves"]["steps"] and any("No training curves" in note for note in shown["notes"])


def test_rollouts_that_were_not_scored_are_neither_winners_nor_in_the_mean(tmp_path):
    record = write_transcripts(tmp_path / "r.jsonl", steps=2, groups=1)
    header, *lines = record.read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    rows[0]["reward"] = None
    record.write_text("\n".join([header, *map(json.dumps, rows)]) + "\n")
    shown = summary(collect([open_source(record)]))
    assert shown["runs"][0]["curves"]["values"]["reward"][0] == pytest.approx(
        np.mean([row["reward"] for row in rows[1:4]]), abs=1e-6
    )
    sides = [perhaps[0]["side"] for perhaps in shown["groups"][0]["rollouts"]]
    assert sides[0] == 0 and sides[1] == (-1 if any(row["reward"] for row in rows[1:4]) else 0)


def test_alarms_are_told_apart_by_the_rules_that_raised_them():
    calm = {"guards/leak": 0.0, "guards/entropy": 1.0, "guards/length": 30.0, "guards/focus": 0.9, "guards/alarm": 0.0}
    metrics = [{"step": s, **calm} for s in range(1, 21)]
    metrics[14] |= {"guards/leak": 0.5, "guards/alarm": 1.0}
    metrics[15] |= {"guards/leak": 0.5, "guards/length": 5.0, "guards/alarm": 2.0}
    shown = alarms(metrics)
    assert shown["steps"] == [15, 16]
    assert {kind["guard"]: kind["steps"] for kind in shown["kinds"]} == {"leak": [15, 16], "length": [16]}
    assert shown["start"]["entropy"] == 1.0


def test_a_run_is_told_as_json_without_its_tokens(run, capsys):
    from gear_rl.cli.main import main

    assert main(["report", str(run), "--format", "json", "-o", "-"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema"] == "gear_rl.report" and shown["runs"][0]["evaluation"]["after"]["greedy"]["n"] == 20
    lines = read_record(run / "rollouts.jsonl").rollouts
    facts = [perrun[0] for group in shown["groups"] for perrun in group["rollouts"]]
    assert [f["reward"] for f in facts] == [line.reward for line in lines]
    assert [f["onsets"] for f in facts] == [sum(line.onsets) for line in lines]
    assert [f["peak"] for f in facts] == [max(abs(a) for a in line.advantages) for line in lines]
    assert "blobs" not in facts[0]


def test_a_lone_record_is_not_taken_for_two(record):
    with pytest.raises(GearError, match="given twice"):
        collect([open_source(record), open_source(record)])
