"""The workshop's worlds, forms of hint, and decisions that evaluation counts apart."""

from __future__ import annotations

import hashlib
import random

import pytest

from gear_rl.errors import GearError
from gear_rl.evaluation.estimates import summarise
from gear_rl.sampling.players import Job, sample_of
from gear_rl.tasks.base import Transcript
from gear_rl.tasks.workshop import Workshop
from gear_rl.tasks.workshop.environment import WorkshopEnvironment, order_of
from gear_rl.tasks.workshop.hints import Hints, is_hidden
from gear_rl.tasks.workshop.world import ANSWERS, FAULTS, PARTS, TOOLS, WORLDS, Order, world


def digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def told(**options) -> list[tuple[str, str, str]]:
    task = Workshop(**options)
    return [
        (row["order"], row["hint"], row["answer"]) for split in ("train", "test") for row in task.rows(split, 50, 3)
    ]


def test_world_0_is_what_its_model_was_trained_on_and_what_was_measured():
    """Digests from before there were other worlds: nothing about world 0 may change."""
    first = world(0)
    doubts = sorted((fact, (d.right, d.decoy_share, d.decoy)) for fact, d in first.doubts.items())
    turns = [[first.turn_gauge(g, tool, part) for part in PARTS] for tool in TOOLS for g in range(32)]
    reads = [[first.read_gauge(g, mode) for g in range(32)] for mode in ANSWERS]
    assert [digest(sorted(first.handbook.items())), digest(doubts)] == ["ad527118a6c23b10", "049f3cbf21ff096c"]
    assert [digest(turns), digest(reads)] == ["b6006028d3fa7cf2", "23e79846998e9bab"]
    noisy, biased = told(hint_errors=0.3), told(hint_errors=0.3, hint_error_kind="bias")
    assert [digest(told()), digest(noisy)] == ["58a957acbfcdf00f", "201bb3c5cd1ec312"]
    assert [digest(biased), digest(told(steps=12, answer="quarter"))] == ["1aceeeaa9d480169", "d40243e7ce89008c"]


def test_worlds_are_drawn_alike_and_have_little_in_common():
    books = [world(k).handbook for k in WORLDS]
    for k, book in enumerate(books):
        known = [d.right for d in world(k).doubts.values()]
        assert abs(sum(right > 0.9 for right in known) / 256 - 0.6) < 0.1
        assert all(world(k).doubts[fact].decoy != tool for fact, tool in book.items())
        for other in books[:k]:
            assert sum(book[fact] == other[fact] for fact in book) / 256 < 0.25  # by chance: an eighth
    with pytest.raises(GearError, match="no world 7"):
        world(7)


def test_a_row_is_played_and_judged_in_its_own_world():
    rows = {k: Workshop(world=k).rows("test", 20) for k in (0, 1)}
    assert [r["order"] for r in rows[0]] == [r["order"] for r in rows[1]]  # the same orders …
    assert [r["hint"] for r in rows[0]] != [r["hint"] for r in rows[1]]  # … with other right tools
    task, row = Workshop(world=1), rows[1][0]
    reference = task.reference(row)
    assert task.judge(row, reference).success and not task.judge({**row, "world": 0}, reference).success
    assert order_of({"order": row["order"]}).world is world(0)
    environment = WorkshopEnvironment()
    environment.reset(**row)
    tool, (part, _) = order_of(row).reference_tools[0], order_of(row).jobs[0]
    assert f" {getattr(environment, tool)(part)} " in reference  # the gauge of world 1
    assert task.answer_reward(row["order"], [{"content": f"answer {row['answer']}"}]) == 1.0


def test_a_world_without_a_model_says_how_to_make_it(monkeypatch, tmp_path):
    monkeypatch.setattr("gear_rl.tasks.workshop.task.FOLDER", tmp_path)
    with pytest.raises(GearError, match=r"embedded_model --world 3 --out .*model_worlds/3"):
        Workshop(world=3).default_model()


def test_hints_that_tell_the_answer_alone():
    for row in Workshop(world=2, hint_form="answer").rows("test", 50):
        assert row["hint"] == f"answer {row['answer']}"
    for kind in ("noise", "bias"):
        rows = Workshop(world=2, hint_form="answer", hint_errors=1.0, hint_error_kind=kind).rows("test", 300)
        wrong = sum(row["hint"] != f"answer {row['answer']}" for row in rows) / 300
        assert wrong == 1.0 if kind == "noise" else 0.35 < wrong < 0.65  # a faulty handbook may be right by luck


def test_another_orders_hint_has_the_right_length_and_is_of_no_use():
    rows, right = (Workshop(hint_form=form).rows("test", 200) for form in ("other", "calls"))
    same = [
        a == b
        for x, y in zip(rows, right, strict=True)
        for a, b in zip(x["hint"].split(), y["hint"].split(), strict=True)
    ]
    assert [r["order"] for r in rows] == [r["order"] for r in right] and 0.08 < sum(same) / len(same) < 0.18


def test_hidden_facts_are_never_shown_and_always_the_same():
    few, many = (Workshop(world=1, hidden_facts=share) for share in (0.2, 0.5))
    shown: dict[tuple[str, str], set[bool]] = {}
    for row in few.rows("train", 300) + few.rows("test", 100):
        for job, tool, gold in zip(order_of(row).jobs, row["hint"].split(), order_of(row).reference_tools, strict=True):
            assert tool in (gold, "hmm")
            shown.setdefault(job, set()).add(tool != "hmm")
    assert all(len(ways) == 1 for ways in shown.values())
    facts = [(part, fault) for part in PARTS for fault in FAULTS]
    assert 0.12 < sum(is_hidden(world(1), fact, 0.2) for fact in facts) / 256 < 0.28
    assert all(is_hidden(world(1), fact, 0.5) for fact in facts if is_hidden(world(1), fact, 0.2))
    order = Order("yesno", 0, tuple(facts[:6]), world(1))
    assert Hints(hidden=0.0).draw(random.Random(0), order).split() == order.reference_tools
    assert many.rows("test", 1)[0]["hint"].count("hmm") >= few.rows("test", 1)[0]["hint"].count("hmm")


def test_decisions_on_hidden_facts_are_counted_apart():
    task = Workshop(world=1, hidden_facts=0.3)
    samples, hidden = [], 0
    for i, row in enumerate(task.rows("test", 40)):
        order = order_of(row)
        words, episode = [], task.episode(row)
        for job, gold in zip(order.jobs, order.reference_tools, strict=True):
            is_one = is_hidden(order.world, job, 0.3)
            hidden += is_one
            tool = next(t for t in TOOLS if t != gold) if is_one else gold  # wrong wherever hints say nothing
            words.append(f"well {tool} {job[0]} <end> {episode.reply(f'{tool} {job[0]}')} <bot>")
        text = " ".join([*words, "answer yes <end>"])
        job = Job({**row, "id": str(i)}, row["prompt"], "sampled", 0, 1.0, 1.0, 0)
        samples.append(sample_of(job, Transcript(text, [], None), task.judge(row, text), 1))
    parts = summarise(samples)["parts"]
    assert parts["hidden facts"]["share"] == 0.0 and parts["hidden facts"]["decisions"] == hidden > 40
    assert parts["shown facts"]["share"] == 1.0 and parts["shown facts"]["decisions"] == 240 - hidden
    assert "parts" not in summarise([{**sample, "parts": {}} for sample in samples])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(world=7), "world"),
        (dict(hint_form="answer"), "task.world=1 to 6"),
        (dict(hidden_facts=0.2), "task.world=1 to 6"),
        (dict(world=1, hint_form="answer", hidden_facts=0.2), "none to hide"),
        (dict(hint_form="gold"), "calls"),
    ],
)
def test_what_no_model_can_read_is_an_error(options, message):
    with pytest.raises(GearError, match=message):
        Workshop(**options)
