"""SHEAR's distance: the sliced Wasserstein distance by its definition, spans and pools by a plain loop, hidden states."""

from __future__ import annotations

import math
import random

import pytest
import torch
from played_rollouts import Rolled, rolled

from gear_rl.scoring import hidden_distance as module
from gear_rl.scoring.hidden_distance import directions, hidden_distance, spans
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.states import states_after, states_before
from gear_rl.scoring.teacher import Teacher


@pytest.fixture
def rollouts(workshop, model_and_tokenizer) -> Rolled:
    return rolled(workshop, model_and_tokenizer, prompts=2, each=4)


def wasserstein(one: list[float], two: list[float]) -> float:
    """∫ |F⁻¹ − G⁻¹| by repeating both samples until they are equally many."""
    size = math.lcm(len(one), len(two))
    a, b = (sorted(x for x in values for _ in range(size // len(values))) for values in (one, two))
    return sum(abs(x - y) for x, y in zip(a, b, strict=True)) / size


@torch.no_grad()
def plain_states(rollouts: Rolled) -> list[torch.Tensor]:
    """Of each rollout the last hidden state at each token of its completion, one sequence at a time."""
    return [
        rollouts.model.model(torch.tensor([p + c])).last_hidden_state[0, len(p) :]
        for p, c in zip(rollouts.prompts, rollouts.completions, strict=True)
    ]


def test_states_before_and_after(rollouts):
    plain = plain_states(rollouts)
    scorer = Scorer(rollouts.model)
    after = states_after(scorer, rollouts.prompts, rollouts.completions, rollouts.mask)
    expected = torch.cat([s[m[: len(s)]] for s, m in zip(plain, rollouts.mask, strict=True)])
    torch.testing.assert_close(after, expected, rtol=1e-3, atol=1e-3)
    before = states_before(scorer, rollouts.prompts, rollouts.completions, rollouts.mask)
    assert before.shape == after.shape and not torch.allclose(before, after, atol=1e-2)
    first = rollouts.mask[:, 0].nonzero()[0, 0]
    with torch.no_grad():
        end_of_prompt = rollouts.model.model(torch.tensor([rollouts.prompts[first]])).last_hidden_state[0, -1]
    torch.testing.assert_close(before[int(rollouts.mask[:first].sum())], end_of_prompt, rtol=1e-3, atol=1e-3)
    assert states_before(scorer, rollouts.prompts, rollouts.completions, rollouts.mask & False).shape == (0, 64)


def test_states_are_read_with_the_teachers_weights(rollouts):
    scorer, teacher = Scorer(rollouts.model), Teacher(rollouts.model, "base")
    arguments = (scorer, rollouts.prompts, rollouts.completions, rollouts.mask)
    start = states_before(*arguments)
    with torch.no_grad():
        rollouts.model.model.layers[0].mlp.up_proj.weight.mul_(1.5)
    assert not torch.allclose(states_before(*arguments), start, atol=1e-2)
    torch.testing.assert_close(states_before(*arguments, teacher), start, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("span", [64, 2])
def test_equals_a_plain_loop(rollouts, monkeypatch, span):
    monkeypatch.setattr(module, "SPAN", span)
    rewards, groups = torch.tensor([1.0, 0, 0, 1, 0, 0, 0, 1]), torch.arange(8) // 4
    got = hidden_distance(
        Scorer(rollouts.model), rollouts.prompts, rollouts.completions, rollouts.mask, rewards, groups
    )
    lines = [(s @ directions(64)).tolist() for s in plain_states(rollouts)]
    of_token: list[dict[int, tuple[int, int]]] = []  # per rollout: token → (turn, run within it)
    for row in rollouts.mask.tolist():
        places, turn, rank = {}, -1, 0
        for t, action in enumerate(row):
            if action:
                fresh = t == 0 or not row[t - 1]
                turn, rank = (turn + 1, 0) if fresh else (turn, rank + 1)
                places[t] = (turn, rank // span)
        of_token.append(places)
    for i in range(8):
        others = [j for j in range(8) if groups[j] == groups[i] and rewards[j] != rewards[i]]
        for t, place in of_token[i].items():
            own = [u for u, p in of_token[i].items() if p == place]
            pool = [(j, u) for j in others for u, p in of_token[j].items() if p == place]
            pool = pool or [(j, u) for j in others for u in of_token[j]]
            expected = sum(
                wasserstein([lines[i][u][d] for u in own], [lines[j][u][d] for j, u in pool]) for d in range(32)
            )
            assert float(got[i, t]) == pytest.approx(expected / 32, rel=2e-2, abs=1e-3)
    assert not got[~rollouts.mask].any()


def test_distance_of_samples_of_any_size(monkeypatch):
    rng = random.Random(3)
    for most in (1 << 22, 1):  # all directions together, and one at a time
        monkeypatch.setattr(module, "_MOST_NUMBERS", most)
        sizes = [rng.randint(1, 6) for _ in range(3)]
        owner = torch.tensor([10 * o for o, size in enumerate(sizes) for _ in range(size)])
        values, pool = torch.randn(len(owner), 5), torch.randn(4, 5) + 1
        got = module._to_pool(values, owner, pool)
        for i, o in enumerate(owner.tolist()):
            mine = values[owner == o]
            expected = sum(wasserstein(mine[:, d].tolist(), pool[:, d].tolist()) for d in range(5)) / 5
            assert float(got[i]) == pytest.approx(expected, rel=1e-4)


def test_nothing_to_compare(rollouts):
    groups = torch.arange(8) // 4
    rewards = torch.tensor([1.0] * 4 + [0.0] * 4)  # every group ended alike
    arguments = (Scorer(rollouts.model), rollouts.prompts, rollouts.completions)
    assert not hidden_distance(*arguments, rollouts.mask, rewards, groups).any()
    assert not hidden_distance(*arguments, rollouts.mask & False, 1 - groups.float(), groups).any()


def test_long_turns_are_cut():
    mask = torch.tensor([[True] * 130 + [False] * 3 + [True] * 2])
    numbers = spans(mask)[0]
    assert len(numbers[:130].unique()) == 3 and numbers[133] not in numbers[:130] and numbers[133] == numbers[134]
    assert torch.equal(spans(mask.repeat(2, 1))[1], numbers)
