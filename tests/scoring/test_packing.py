"""The layout of packed rows: every prompt in it once, every token where it belongs."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gear_rl.scoring.packing import KeptPrompts, Packed, flat
from gear_rl.scoring.prompt_tree import LEAST_SHARED, PromptTree

# few symbols and long runs, so that prompts often begin alike, end inside each other, or part after a few tokens
runs = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), min_size=1, max_size=4)
a_prompt = runs.map(lambda pieces: [token for token, times in pieces for _ in range(times)])
distinct = st.lists(a_prompt, min_size=1, max_size=8, unique_by=tuple)


@settings(max_examples=150, deadline=None)
@given(distinct)
def test_every_prompt_is_a_path_of_the_tree(prompts):
    tree = PromptTree.of(prompts)
    for prompt, end in zip(prompts, tree.ends, strict=True):
        assert [token for node in tree.path(end) for token in tree.tokens[node]] == prompt
    assert all(parent < node for node, parent in enumerate(tree.parent))
    assert all(tree.tokens), "no empty nodes"
    assert all(len(tree.tokens[node]) >= LEAST_SHARED for node in set(tree.parent) - {-1}), "cut for too little"


@settings(max_examples=150, deadline=None)
@given(distinct)
def test_nothing_long_is_in_the_tree_twice(prompts):
    tree = PromptTree.of(prompts)
    for parent in set(tree.parent):
        siblings = [tree.tokens[node] for node, above in enumerate(tree.parent) if above == parent]
        for i, one in enumerate(siblings):
            for other in siblings[:i]:
                alike = next(
                    (k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
                )
                assert alike < LEAST_SHARED


@settings(max_examples=150, deadline=None)
@given(distinct, st.data())
def test_rows_hold_what_each_reading_would_hold_alone(prompts, data):
    chosen = data.draw(st.lists(st.sampled_from(range(len(prompts))), min_size=1, max_size=8))
    counts = data.draw(st.lists(st.integers(0, 5), min_size=len(chosen), max_size=len(chosen)))
    readings = [list(prompts[i]) for i in chosen]
    answers = 100 + torch.arange(len(chosen) * 5).view(-1, 5)
    kept = data.draw(st.sampled_from([None, KeptPrompts()]))
    packed = Packed.of(readings, counts, "cpu", kept)
    row, positions = (t[0].tolist() for t in packed.inputs(answers))
    assert (
        packed.tokens
        == len(row)
        == sum(map(len, PromptTree.of([list(p) for p in set(map(tuple, readings))]).tokens)) + sum(counts)
    )

    # what a segment sees, token by token, by its context and itself
    context_tokens = packed.context_places("cpu").split(packed.contexts) if packed.contexts else []
    by_start = {}
    for segment in packed.segments:
        places = context_tokens[segment.context].tolist() if segment.context >= 0 else []
        assert len(places) == segment.position
        assert [positions[p] for p in places] == list(range(segment.position))
        own = list(range(segment.start, segment.start + segment.length))
        assert [positions[p] for p in own] == list(range(segment.position, segment.position + segment.length))
        by_start[segment.start, segment.length] = [row[p] for p in places + own]
        assert (segment.context >= 0) == (segment.start >= packed.followers or not segment.length)
    for i, (prompt, count) in enumerate(zip(readings, counts, strict=True)):
        if count:
            assert by_start[packed.starts[i], count] == prompt + answers[i, :count].tolist()

    # the state before each token is that of its predecessor
    hidden = torch.tensor([row, positions]).T[None].float()
    reading = torch.tensor([i for i, count in enumerate(counts) for _ in range(count + 1)])
    token = torch.tensor([t for count in counts for t in range(count + 1)])
    for i, t, (state, position) in zip(
        reading.tolist(), token.tolist(), before(packed, hidden, reading, token).tolist(), strict=True
    ):
        assert position == len(readings[i]) + t - 1
        assert state == (readings[i][-1] if t == 0 else answers[i, t - 1])

    if kept is not None:  # a later part finds its prompts there
        later = Packed.of(readings, counts, "cpu", kept)
        assert later.tokens == sum(counts) and later.kept_keys == sum(later.contexts)
        hidden = torch.tensor([[t[0].tolist() for t in later.inputs(answers)]]).transpose(1, 2).float()
        states = before(later, hidden, reading, token)
        assert torch.equal(states, before(packed, torch.tensor([row, positions]).T[None].float(), reading, token))

    # and the keys that are copied for a segment are those it sees
    if packed.tokens:
        seen = [row[place] for place in packed.seen_places().tolist()]
        assert packed.keys_seen == len(seen)
        assert seen == [token for segment in packed.segments if segment.length for token in by_start[segment[:2]]]


def before(packed, hidden, reading, token):
    places = packed.places_before(reading, token)
    return packed.states(hidden)[places]


def test_flat():
    assert flat([[1, 2], [], [3]]).tolist() == [1, 2, 3]
    assert flat([]).shape == (0,)
