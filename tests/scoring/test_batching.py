"""Micro-batches: every rollout once, within the budget, groups together, little padding."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import CONFIGS

from gear_rl.scoring.batching import (
    CPU_TOKENS,
    FEWEST_TOKENS,
    MOST_TOKENS,
    bytes_per_token,
    packed_batches,
    padded_batches,
    token_budget,
    tokens_to_read,
)

groups = st.lists(st.tuples(st.integers(1, 40), st.lists(st.integers(-1, 30), min_size=1, max_size=6)), max_size=6)


def laid_out(groups, sides):
    prompts = [[[1] * length] * len(counts) for length, counts in groups]  # a group repeats one object
    side = [prompt for group in prompts for prompt in group]
    return [[side] * sides], [count for _, counts in groups for count in counts]


@settings(max_examples=200, deadline=None)
@given(groups, st.integers(1, 120), st.integers(1, 2))
def test_packed_batches(groups, budget, sides):
    passes, counts = laid_out(groups, sides)
    batches = list(packed_batches(passes, counts, budget))
    assert sorted(row for batch in batches for row in batch.rows) == [row for row, c in enumerate(counts) if c >= 0]
    group_of = [g for g, (_, of_group) in enumerate(groups) for _ in of_group]
    for before, batch in zip([None, *batches], batches, strict=False):
        prompts = {id(passes[0][0][row]): len(passes[0][0][row]) for row in batch.rows}
        tokens = sum(sides * counts[row] for row in batch.rows) + (sum(prompts.values()) if batch.first else 0)
        assert tokens <= budget or len(batch.rows) == 1
        if not batch.first or batch.more:  # part of a group that is too large alone
            assert len({group_of[row] for row in batch.rows}) == 1
        if not batch.first:
            assert before.more and group_of[before.rows[0]] == group_of[batch.rows[0]]
    for length, rows in (
        (groups[g][0], [r for r, h in enumerate(group_of) if h == g and counts[r] >= 0]) for g in range(len(groups))
    ):
        if rows and length + sum(sides * counts[row] for row in rows) <= budget:
            assert sum(bool(set(rows) & set(batch.rows)) for batch in batches) == 1, "a group that fits was split"


def test_parts_after_the_first_do_not_pay_for_the_prompts_again():
    passes, counts = laid_out([(50, [10] * 8)], sides=1)
    assert [batch.rows for batch in packed_batches(passes, counts, 60)] == [[0], [1, 2, 3, 4, 5, 6], [7]]


@settings(max_examples=200, deadline=None)
@given(groups, st.integers(1, 120))
def test_padded_batches(groups, budget):
    passes, counts = laid_out(groups, 2)
    batches = list(padded_batches(passes, counts, budget))
    assert sorted(row for batch in batches for row in batch.rows) == [row for row, c in enumerate(counts) if c >= 0]
    for batch in batches:
        longest = max(len(passes[0][0][row]) + counts[row] for row in batch.rows)
        assert longest * len(batch.rows) <= budget or len(batch.rows) == 1


@pytest.mark.parametrize("mix", ["answers", "agents", "one runs on", "short"])
@pytest.mark.parametrize("budget", [8192, 65_536])
def test_less_than_a_tenth_is_padding(mix, budget):
    """Length mixes as they occur: log-normal answers, agents of some turns each, one rollout cut at the limit."""
    draw = random.Random(0)
    lengths = {
        "answers": [min(4096, int(draw.lognormvariate(6, 0.7))) for _ in range(256)],
        "agents": [sum(draw.randint(60, 400) for _ in range(draw.randint(1, 12))) for _ in range(128)],
        "one runs on": [*(draw.randint(100, 300) for _ in range(63)), 8000],
        "short": [draw.randint(5, 60) for _ in range(512)],
    }[mix]
    prompts = [[0] * draw.choice([150, 400, 900]) for _ in range(len(lengths) // 8)]
    side = [prompts[row // 8] for row in range(len(lengths))]
    real = padded = 0
    for batch in padded_batches([[side]], lengths, budget):
        tokens = [len(side[row]) + lengths[row] for row in batch.rows]
        real, padded = real + sum(tokens), padded + max(tokens) * len(tokens)
    assert (padded - real) / padded < 0.1
    worst = max(len(side[row]) + lengths[row] for row in range(len(lengths))) * len(lengths)
    assert (worst - real) / worst > 0.1, "without batches of like length it would be more"


def test_tokens_to_read():
    student, hinted = [1] * 10, [1] * 14
    live, other = [[[student] * 4, [hinted] * 4]], [[[student] * 4], [[hinted] * 4]]
    for passes in (live, other):
        assert tokens_to_read(passes, [5, 0, -1, 7]) == (3 * 24 + 24, 24 + 24)


def test_the_budget_follows_the_memory(monkeypatch):
    config = CONFIGS["llama"]()
    assert token_budget(config, torch.device("cpu"), torch.float32) == CPU_TOKENS
    per_token = bytes_per_token(config, torch.bfloat16)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)  # there is no CUDA device to ask
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    for free, budget in ((10**13, MOST_TOKENS), (10, FEWEST_TOKENS), (10_000 * per_token, 4000)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, free))
        assert token_budget(config, torch.device("cuda"), torch.bfloat16) == budget


@pytest.mark.parametrize("family", CONFIGS)
def test_bytes_per_token_of_every_family(family):
    config = CONFIGS[family]()
    assert bytes_per_token(config, torch.float32) > bytes_per_token(config, torch.bfloat16) > 2 * config.hidden_size
