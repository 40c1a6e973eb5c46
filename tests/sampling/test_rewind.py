"""Rewinding: the same tokens and the same world again, from any token of the policy's; worlds that cannot are found."""

from __future__ import annotations

import copy
import random

import pytest

from gear_rl.chat.templates import Replies, end_tokens
from gear_rl.errors import GearError
from gear_rl.models import context_of, load_model
from gear_rl.sampling.continuations import Point, continuations
from gear_rl.sampling.decoding import Decoder
from gear_rl.sampling.own_turns import OwnTurns
from gear_rl.sampling.play import Played, judge_all, play, play_on
from gear_rl.sampling.rewind import NotReplayable, Span, replay, rewind, turns_of
from gear_rl.tasks.workshop import Workshop


@pytest.fixture
def exact(workshop):
    """In float64: a batch of another shape rounds differently, and in float32 that may change a sampled token."""
    task, rows, model, tokenizer = workshop
    return task, rows, copy.deepcopy(model).double(), tokenizer


@pytest.fixture(scope="module")
def workshop():
    task = Workshop()
    model, tokenizer = load_model(task.default_model(), "cpu")
    return task, task.rows("test", 3), model.eval(), tokenizer


def go_on(task, model, tokenizer, begun: list[Played], temperature: float = 0.0, seed: int = 0) -> None:
    rngs = [random.Random(f"{seed}-{i}") for i in range(len(begun))]
    sampler = OwnTurns(model, end_tokens(model, tokenizer), temperature, rngs=rngs)
    play_on(sampler, context_of(model.config), tokenizer, task, begun, Replies(tokenizer))


def test_the_turns_of_a_rollout():
    assert turns_of([1, 1, 0, 0, 1, 0, 1]) == [Span(0, 2), Span(4, 5), Span(6, 7)]
    assert turns_of([]) == []


def test_a_greedy_rollout_goes_on_as_it_did_from_every_token(workshop):
    task, rows, model, tokenizer = workshop
    whole = play(model, tokenizer, task, rows[:1], temperature=0.0)[0]
    places = [i for i, mine in enumerate(whole.action_mask) if mine]
    assert len(places) > 20 and whole.action_mask.count(0) > 5
    begun = [rewind(task, rows[0], whole, at, tokenizer, Replies(tokenizer)) for at in places]
    assert all(b.completion_ids == whole.completion_ids[:at] for b, at in zip(begun, places, strict=True))
    go_on(task, model, tokenizer, begun)
    for again in begun:
        assert again.completion_ids == whole.completion_ids and again.action_mask == whole.action_mask
        assert again.turns == whole.turns and not again.begun
    verdicts = judge_all(tokenizer, task, [rows[0]] * len(begun), begun)
    assert {v.reward for v in verdicts} == {judge_all(tokenizer, task, rows[:1], [whole])[0].reward}


def test_sampled_continuations_share_what_came_before_and_differ_after(workshop):
    task, rows, model, tokenizer = workshop
    whole = play(model, tokenizer, task, rows[:1], temperature=0.0)[0]
    third = turns_of(whole.action_mask)[2].start
    begun = [rewind(task, rows[0], whole, third + 1, tokenizer, Replies(tokenizer)) for _ in range(16)]
    go_on(task, model, tokenizer, begun, temperature=1.0)
    assert all(b.completion_ids[: third + 1] == whole.completion_ids[: third + 1] for b in begun)
    assert len({tuple(b.completion_ids) for b in begun}) > 4
    assert all(b.turns[2].split()[0] == whole.turns[2].split()[0] for b in begun)  # the token that was kept


def test_a_world_that_answers_differently_is_an_error_that_says_where(workshop):
    task, rows, model, tokenizer = workshop
    whole = play(model, tokenizer, task, rows[:1], temperature=0.0)[0]
    turns = turns_of(whole.action_mask)
    reply = whole.completion_ids[turns[1].end]
    other = next(i for i, mine in enumerate(whole.action_mask) if not mine and whole.completion_ids[i] != reply)
    changed = Played(whole.prompt_ids, list(whole.completion_ids), whole.action_mask)
    changed.completion_ids[turns[1].end] = whole.completion_ids[other]
    rewind(task, rows[0], changed, turns[1].start, tokenizer, Replies(tokenizer))  # before the difference
    with pytest.raises(NotReplayable, match="after turn 2 the world replied"):
        rewind(task, rows[0], changed, turns[3].start, tokenizer, Replies(tokenizer))


def test_only_the_policys_tokens_can_be_gone_back_to(workshop):
    task, rows, model, tokenizer = workshop
    whole = play(model, tokenizer, task, rows[:1], temperature=0.0)[0]
    with pytest.raises(GearError, match="is not one"):
        rewind(task, rows[0], whole, whole.action_mask.index(0), tokenizer, Replies(tokenizer))


def test_a_whole_rollout_is_judged_again_as_it_was(workshop):
    task, rows, model, tokenizer = workshop
    played = play(model, tokenizer, task, rows, temperature=1.0)
    ends = end_tokens(model, tokenizer)
    again = [replay(task, row, p, tokenizer, Replies(tokenizer), ends) for row, p in zip(rows, played, strict=True)]
    assert [(a.turns, a.cut_off, a.completion_ids) for a in again] == [(p.turns, p.cut_off, p.completion_ids) for p in played]
    assert judge_all(tokenizer, task, rows, again) == judge_all(tokenizer, task, rows, played)
    cut = Played(played[0].prompt_ids, played[0].completion_ids[:2], [1, 1])  # a turn that a limit cut off
    half = replay(task, rows[0], cut, tokenizer, Replies(tokenizer), ends)
    assert half.cut_off and half.turns == [tokenizer.decode(cut.completion_ids)]
    answered = turns_of(played[0].action_mask)[1].start  # the context was full after the world's answer
    full = Played(played[0].prompt_ids, played[0].completion_ids[:answered], played[0].action_mask[:answered])
    half = replay(task, rows[0], full, tokenizer, Replies(tokenizer), ends)
    assert half.cut_off and half.turns == played[0].turns[:1]


def test_a_context_too_short_for_the_rewound_prompt_is_named(workshop, monkeypatch):
    task, rows, model, tokenizer = workshop
    whole = play(model, tokenizer, task, rows[:1], temperature=0.0)[0]
    at = turns_of(whole.action_mask)[4].start
    monkeypatch.setattr(model.config, "max_position_embeddings", len(whole.prompt_ids) + at)
    points = [Point(rows[0], whole, at)]
    with pytest.raises(GearError, match=f"rewound to token {at}, its prompt has"):
        continuations(task, model, tokenizer, points, [random.Random(0)], Replies(tokenizer))


def test_rewards_stand_where_their_points_do(exact, monkeypatch):
    """Whatever the order in which they are sampled, and the batches."""
    task, rows, model, tokenizer = exact
    played = play(model, tokenizer, task, rows, temperature=1.0, rngs=[random.Random(i) for i in range(len(rows))])
    starts = [[turn.start for turn in turns_of(p.action_mask)] for p in played]
    points = [Point(rows[i], played[i], at) for i in range(3) for at in reversed(starts[i]) for _ in range(2)]

    def measured(some: list[int]) -> tuple[list[float], int]:
        rngs = [random.Random(f"place {i}") for i in some]
        return continuations(task, model, tokenizer, [points[i] for i in some], rngs, Replies(tokenizer))

    rewards, tokens = measured(list(range(len(points))))
    assert 0.0 in rewards and 1.0 in rewards
    alone = [measured([i]) for i in range(len(points))]
    assert rewards == [reward for (reward,), _ in alone] and tokens == sum(sampled for _, sampled in alone)
    monkeypatch.setattr("gear_rl.sampling.continuations.AT_ONCE", 5)
    assert measured(list(range(len(points)))) == (rewards, tokens)


def test_rollouts_that_begin_alike_are_read_once_and_go_on_by_themselves(exact, monkeypatch):
    task, rows, model, tokenizer = exact
    whole = play(model, tokenizer, task, rows[:1], temperature=0.0)[0]
    late = turns_of(whole.action_mask)[3].start
    read = list[tuple[int, ...]]()
    plain = Decoder.read
    monkeypatch.setattr(Decoder, "read", lambda self, ids: read.append(tuple(map(len, ids))) or plain(self, ids))

    def sampled(share: bool) -> list[Played]:
        begun = [rewind(task, rows[0], whole, at, tokenizer, Replies(tokenizer)) for at in (late, 0, late, late)]
        rngs = [random.Random(i) for i in range(4)]
        sampler = OwnTurns(model, end_tokens(model, tokenizer), 1.0, rngs=rngs, share_openings=share)
        read.clear()
        play_on(sampler, context_of(model.config), tokenizer, task, begun, Replies(tokenizer))
        return begun

    each, lengths = sampled(False), list(read)
    together = sampled(True)
    assert [b.completion_ids for b in together] == [b.completion_ids for b in each]
    assert len({tuple(b.completion_ids) for b in together}) == 4
    assert lengths[0] == (len(whole.prompt_ids) + late, len(whole.prompt_ids)) + (len(whole.prompt_ids) + late,) * 2
    assert read == [lengths[0][:2], *lengths[1:]]
