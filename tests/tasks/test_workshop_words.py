"""The workshop in words: what is true in it, what a judge says about it, and which tokens of a wrong call are wrong."""

from __future__ import annotations

import json
import os
import random
from itertools import groupby

import pytest
from words_model import words_tokenizer

from gear_rl.chat.templates import Replies
from gear_rl.errors import GearError
from gear_rl.models import load_tokenizer
from gear_rl.sampling.play import Played, judge_all
from gear_rl.tasks import make_task, replay
from gear_rl.tasks.base import Transcript
from gear_rl.tasks.workshop_words.language import KINDS, Call, kinds_of, read_call, read_calls, write_call, write_hint
from gear_rl.tasks.workshop_words.world import (
    DOUBTFUL,
    FAULTS,
    GAUGE,
    KNOWN,
    MISTAKEN,
    PARTS,
    SETTINGS,
    TOOLS,
    Choice,
    Order,
    world,
)
from gear_rl.training.warm_start import played

SMOLLM2 = os.environ.get("GEAR_SMOLLM2")
needs_smollm2 = pytest.mark.skipif("not SMOLLM2", reason="GEAR_SMOLLM2 names no folder with SmolLM2-135M-Instruct")


def judged(task, row, turns, cut_off=False, tokenizer=None):
    """The verdict on turns as tokens, and the text and label of each of the policy's tokens, turn by turn."""
    tokenizer = tokenizer or words_tokenizer()
    told, episode, _ = played(tokenizer, task, row, turns, Replies(tokenizer))
    if cut_off:  # the last turn without its end mark
        told.ids.pop()
        told.mask.pop()
    rollout = Played([], told.ids, told.mask, list(turns), cut_off, episode)
    (verdict,) = judge_all(tokenizer, task, [row], [rollout])
    labelled = zip(told.mask, [tokenizer.decode([i]) for i in told.ids], verdict.decisions, strict=True)
    return verdict, [
        [(text, label) for _, text, label in run] for acts, run in groupby(labelled, lambda x: x[0]) if acts
    ]


def one_job(part="rear valve", fault="leaks"):
    task = make_task("workshop_words", jobs=1)
    row = {**task.rows("train", 1)[0], "order": Order(3, ((part, fault),)).text()}
    return task, row, world(0).handbook[part, fault]


def answered(task, row, call):
    """A turn with `call`, then the answer that the gauge gives."""
    episode = task.episode(row)
    gauge = int(episode.reply(call).split()[-2])
    return [call, f"Answer: {'yes' if gauge > 15 else 'no'}"]


# ------------------------------------------------------------------------------------------------ the world
def test_worlds_are_their_own_and_always_the_same():
    rows = [make_task("workshop_words", world=w).rows("train", 20, seed=s) for w in (0, 1) for s in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2] and rows[0] != rows[3]
    assert world(0).handbook != world(1).handbook and len(world(0).handbook) == len(PARTS) * len(FAULTS) == 96
    assert rows[0] != make_task("workshop_words").rows("test", 20)


def test_every_call_is_a_bijection_and_no_two_settings_do_the_same():
    for tool in TOOLS:
        ends = {tuple(world(0).after(g, "rear pump", Choice(tool, s)) for g in range(GAUGE)) for s in SETTINGS}
        assert len(ends) == len(SETTINGS) and all(sorted(end) == list(range(GAUGE)) for end in ends)


def test_knowledge_is_uneven_as_designed():
    known = [k for w in range(12) for k in world(w).knowledge.values()]
    shares = [sum(k[:2] == kind for k in known) / len(known) for kind in (KNOWN, DOUBTFUL, MISTAKEN)]
    assert all(abs(a - b) < 0.03 for a, b in zip(shares, (0.60, 0.15, 0.25), strict=True))
    assert all(k.decoy != world(w).handbook[fact] for w in range(5) for fact, k in world(w).knowledge.items())


def test_an_order_that_is_none_is_named():
    assert Order.parse(Order(5, (("rear valve", "leaks"),)).text()) == Order(5, (("rear valve", "leaks"),))
    for text in (
        "",
        "[]",
        '{"start": 99, "jobs": [["rear valve", "leaks"]]}',
        '{"start": 1, "jobs": [["door", "leaks"]]}',
    ):
        with pytest.raises(GearError, match="not a repair order"):
            Order.parse(text)


# ------------------------------------------------------------------------------------------------ verdicts
def test_references_succeed_and_empty_answers_fail():
    task = make_task("workshop_words")
    for row in task.rows("test", 50):
        assert replay(task, row, task.reference(row)).success
        nothing = replay(task, row, task.empty(row))
        assert not nothing.success and nothing.reward == 0 and nothing.malformed == 1


def test_demonstrations_succeed_as_often_as_the_warm_start_is_meant_to():
    """0.695 right choices a job, four jobs: 23 %. With a hint two thirds are right, the others follow a random one."""
    task, rng = make_task("workshop_words"), random.Random(0)
    rows = task.rows("train", 1000)
    plain, hinted = (
        [replay(task, row, task.demonstration(row, rng, hint).turns) for row in rows] for hint in (False, True)
    )
    assert 0.19 < sum(v.success for v in plain) / 1000 < 0.28
    assert 0.62 < sum(v.success for v in hinted) / 1000 < 0.71
    assert 0.45 < sum(v.reward for v in plain if not v.success) / sum(not v.success for v in plain) < 0.55  # luck


def test_a_demonstration_follows_its_hint():
    task, rng = make_task("workshop_words"), random.Random(0)
    for row in task.rows("train", 30):
        made = task.demonstration(row, rng, hinted=True)
        assert task.as_hint("\n".join(made.turns)) == made.hint
        assert task.demonstration(row, rng, hinted=False).hint == ""


def test_a_wrong_tool_is_wrong_from_where_it_parts_from_the_right_one():
    task, row, right = one_job()
    sister = next(t for t in TOOLS if t != right.tool and t.split("_")[0] == right.tool.split("_")[0])
    call = f"I take the {sister.replace('_', ' ')}.\n{write_call('rear valve', Choice(sister, right.setting))}"
    verdict, (tokens, answer) = judged(task, row, answered(task, row, call))
    family, kind = sister.split("_")
    wrong = "".join(text for text, label in tokens if label < 0)
    assert wrong.replace(" ", "") == kind + kind and verdict.first_wrong == 0  # in the thought, and again in the call
    assert (family, 0) in [(text.strip(), label) for text, label in tokens]
    assert {text.strip() for text, label in tokens if label > 0} >= {"rear", "valve"}
    assert not verdict.success and [label for text, label in answer if "yes" in text or "no" in text] == [1]
    assert verdict.turn_rewards == [0.0, 0.0] and verdict.feedback == "not right"


def test_a_wrong_setting_shares_its_first_digit_with_the_right_one():
    task, row, right = one_job()
    other = right.setting + (1 if right.setting % 10 < 9 else -1)
    call = f"Now the rear valve.\n{write_call('rear valve', Choice(right.tool, other))}"
    _, (tokens, _) = judged(task, row, answered(task, row, call))
    assert [text for text, label in tokens if label < 0] == [str(other)[1]]
    assert (str(other)[0], 0) in tokens


@pytest.mark.parametrize("model", [None, pytest.param(SMOLLM2, marks=needs_smollm2)])
def test_labels_begin_with_the_token_that_rules_out_the_right_call(model):
    """Checked against the right call itself, on many rollouts: up to the first wrong token of a call everything could still
    have become right; with it, it cannot."""
    tokenizer = load_tokenizer(model) if model else None
    task, rng, seen = make_task("workshop_words"), random.Random(1), 0
    for row in task.rows("train", 60):
        order = Order.parse(row["order"])
        verdict, turns = judged(task, row, task.demonstration(row, rng, False).turns, tokenizer=tokenizer)
        assert len(verdict.decisions) == len(verdict.calls) == len(verdict.answer_span)
        assert len(verdict.states) == len(verdict.requests) == len(verdict.turn_rewards) == len(turns)
        for tokens, job in zip(turns, order.jobs, strict=False):
            text = "".join(piece for piece, _ in tokens)
            right = write_call(job[0], task._world.handbook[job])
            if right in text:
                assert all(label >= 0 for _, label in tokens)
                continue
            seen += 1
            at, begin = 0, text.index("<tool_call>")
            for piece, label in tokens:
                at += len(piece)
                if label < 0 and at > begin:
                    assert right.startswith(text[begin : at - len(piece)]) and not right.startswith(text[begin:at])
                    break
    assert seen > 40


@pytest.mark.parametrize(
    ("turn", "malformed"),
    [
        ("I do not know.", 1),
        ("<tool_call>{broken</tool_call>", 1),
        ('<tool_call>[{"name": "magic_wand", "arguments": {"part": "rear valve", "setting": 14}}]</tool_call>', 1),
        ('<tool_call>[{"name": "heat_gun", "arguments": {"part": "rear valve", "setting": true}}]</tool_call>', 1),
        ('<tool_call>[{"name": "heat_gun", "arguments": {"part": ["rear valve"], "setting": 14}}]</tool_call>', 1),
        (write_call("rear valve", Choice("heat_gun", 14)) * 2, 1),
        ("naïve 修理 <tool_call>[]</tool_call>", 1),
        ("Answer: yes, I think", 1),
    ],
)
def test_a_turn_that_cannot_be_read_ends_the_episode(turn, malformed):
    task, row, _ = one_job()
    assert task.episode(row).reply(turn) is None
    verdict, (tokens,) = judged(task, row, [turn])
    assert verdict.malformed == malformed and verdict.reward == 0 and verdict.channels["format"] == 0
    assert [label for _, label in tokens] == [0] * (len(tokens) - 1) + [-1]


def test_answers_too_early_extra_calls_and_cut_off_turns_are_wrong():
    task, row, right = one_job()
    early, (tokens,) = judged(task, row, ["Answer: yes"])
    assert early.first_wrong == 0 and tokens[0][1] == -1 and not early.success
    call = write_call("rear valve", right)
    extra, (first, second) = judged(task, row, [call, call])
    assert all(label >= 0 for _, label in first) and any(label < 0 for _, label in second) and extra.first_wrong == 1
    cut, (tokens,) = judged(task, row, [call], cut_off=True)
    assert cut.malformed == 1 and tokens[-1][1] == -1 and cut.feedback == "not right"


def test_a_call_written_in_another_way_counts_and_is_labelled_as_a_whole():
    task, row, right = one_job()
    escaped = json.dumps({"name": right.tool, "arguments": {"setting": right.setting, "part": "rear valve"}})
    escaped = escaped.replace(right.tool, f"\\u{ord(right.tool[0]):04x}{right.tool[1:]}").replace("rear", "\\u0072ear")
    call = f"<tool_call>{escaped}</tool_call>"
    assert read_call(call) == Call("rear valve", right)
    verdict, (tokens, _) = judged(task, row, answered(task, row, call))
    assert verdict.success and {label for _, label in tokens[:-1]} == {1}
    wrong = call.replace(str(right.setting), str(right.setting ^ 1))
    verdict, (tokens, _) = judged(task, row, answered(task, row, wrong))
    assert not verdict.success and -1 in [label for _, label in tokens]


def test_tokens_and_turns_that_do_not_fit_are_an_error_and_none_are_needed():
    task, row, right = one_job()
    turns = answered(task, row, write_call("rear valve", right))
    without = task.verdict(row, Transcript("", turns))
    assert without.success and without.decisions == [] == without.calls
    with pytest.raises(GearError, match="2 turns, but the policy's tokens are 1 runs"):
        task.verdict(row, Transcript("", turns, pieces=["a"], action_mask=[1]))


# ------------------------------------------------------------------------------------------------ hints
def calls_hinted(**options):
    task = make_task("workshop_words", **options)
    return [(Order.parse(row["order"]), read_calls(row["hint"])) for row in task.rows("train", 800)]


@pytest.mark.parametrize("kind", ["noise", "bias"])
def test_hints_err_as_often_as_asked_by_themselves_or_all_alike(kind):
    said: dict[tuple[str, str], set[Choice]] = {}
    wrong = total = 0
    for order, calls in calls_hinted(hint_errors=0.3, hint_error_kind=kind):
        for job, call in zip(order.jobs, calls, strict=True):
            said.setdefault(job, set()).add(call.choice)
            wrong, total = wrong + (call.choice != world(0).handbook[job]), total + 1
    assert abs(wrong / total - 0.3) < (0.03 if kind == "noise" else 0.12)  # biased: a share of 96 facts
    assert all(len(choices) == 1 for choices in said.values()) == (kind == "bias")


def test_what_a_little_bias_gets_wrong_more_bias_gets_wrong_too():
    few, many = (calls_hinted(hint_errors=errors, hint_error_kind="bias") for errors in (0.1, 0.4))
    for (order, a), (_, b) in zip(few, many, strict=True):
        for job, little, more in zip(order.jobs, a, b, strict=True):
            assert little == more or little.choice == world(0).handbook[job]


def test_hints_of_other_orders_and_of_the_answer_alone():
    rows = make_task("workshop_words").rows("train", 100)
    other = make_task("workshop_words", hint_errors=1.0, hint_error_kind="other").rows("train", 100)
    assert [r["order"] for r in rows] == [r["order"] for r in other] and rows[0]["hint"] != other[0]["hint"]
    only = make_task("workshop_words", hint="answer").rows("train", 100)
    assert all(r["hint"] == f"Answer:{r['answer']}" for r in only)
    wrong = make_task("workshop_words", hint="answer", hint_errors=1.0).rows("train", 100)
    assert all(r["hint"] != f"Answer:{r['answer']}" for r in wrong)
    assert write_hint([None]) == "not right"


# ------------------------------------------------------------------------------------------------ kinds
def test_every_character_has_its_kind():
    call = write_call("rear valve", Choice("heat_gun", 14))
    turn = f"I take the heat gun.\n{call}"
    kinds = kinds_of(turn)
    spans = {kind: "".join(c for c, k in zip(turn, kinds, strict=True) if k == kind) for kind in KINDS}
    assert spans["tool"] == "heat_gun" and spans["argument"] == "rear valve14" and spans["answer"] == ""
    assert spans["thought"] == "I take the heat gun.\n"
    assert [k for c, k in zip("Answer: no", kinds_of("Answer: no"), strict=True) if c in "no"][-2:] == ["answer"] * 2
