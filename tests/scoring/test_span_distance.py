"""SHEAR's distance: Sinkhorn against exact transport, spans and minima by a plain loop, and groups with nothing to compare."""

from __future__ import annotations

import pytest
import torch
from played_rollouts import Rolled, rolled
from scipy.optimize import linear_sum_assignment

from gear_rl.scoring import span_distance as module
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.span_distance import sinkhorn, span_distance, windows_of

NAN = float("nan")


@pytest.fixture
def rollouts(workshop, model_and_tokenizer) -> Rolled:
    return rolled(workshop, model_and_tokenizer, prompts=2, each=4)


def exact(x: torch.Tensor, y: torch.Tensor) -> float:
    """W₁ of two clouds with uniform mass; unequal sizes by repeating points up to the product of both."""
    x, y = x.repeat_interleave(len(y), 0), y.repeat_interleave(len(x), 0)
    cost = (x[:, None] - y[None]).norm(dim=-1).numpy()
    rows, columns = linear_sum_assignment(cost)
    return float(cost[rows, columns].mean())


def cloud(n, seed, width=8, shift=0.0):
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed)) + shift


def whole(x):
    return x[None], torch.ones(1, len(x), dtype=torch.bool)


@pytest.mark.parametrize(
    ("n", "width", "shift"), [(100, 8, 0.0), (100, 64, 0.3), (30, 2, 2.0), (1, 4, 1.0), (40, 512, 0.0)]
)
def test_sinkhorn_is_near_the_exact_distance(n, width, shift):
    x, y = cloud(n, 0, width), cloud(n, 1, width, shift)
    cost = (x[:, None] - y[None]).norm(dim=-1).numpy()
    rows, columns = linear_sum_assignment(cost)
    assert float(sinkhorn(whole(x), whole(y))) == pytest.approx(float(cost[rows, columns].mean()), rel=0.03)


def test_sinkhorn_of_unequal_sizes_ignores_the_filling():
    x, y = cloud(6, 0), cloud(9, 1, shift=0.5)
    filled = torch.cat([x, torch.full((3, 8), 1e3)])[None]
    real = (torch.arange(9) < 6)[None]
    assert float(sinkhorn((filled, real), whole(y))) == pytest.approx(exact(x, y), rel=0.03)
    assert float(sinkhorn(whole(x), whole(x))) == pytest.approx(0.0, abs=1e-2)


def in_log_space(x, y):
    """Sinkhorn as it is written down, one sum of exponentials after the other."""
    cost = (x[:, None] - y[None]).norm(dim=-1).double()
    kernel = -cost / (module.EPSILON * cost.mean())
    f, g = torch.zeros(len(x)).double(), torch.zeros(len(y)).double()
    for _ in range(module.ITERATIONS):
        f = -torch.tensor(float(len(x))).log() - (kernel + g).logsumexp(1)
        g = -torch.tensor(float(len(y))).log() - (kernel + f[:, None]).logsumexp(0)
    plan = (kernel + f[:, None] + g).exp()
    return float((plan * cost).sum() / plan.sum())


@pytest.mark.parametrize(("n", "m", "shift"), [(100, 100, 0.0), (60, 100, 0.5), (3, 100, 50.0), (1, 1, 1.0)])
def test_scaling_is_sinkhorn_in_log_space(n, m, shift):
    x, y = cloud(n, 0), cloud(m, 1)
    y[0] += shift  # far from all others: scalings alone would overflow
    assert float(sinkhorn(whole(x), whole(y))) == pytest.approx(in_log_space(x, y), rel=1e-6)


@pytest.mark.parametrize("drift", [0.0, 0.3])
def test_pairs_given_up_change_no_minimum(drift):
    states = torch.cat([cloud(75, seed, 16) for seed in range(6)]) + drift * torch.arange(450)[:, None] / 25
    left, right = ([w for first in firsts for w in windows_of(torch.arange(first, first + 75))]
                   for firsts in ((0, 75, 150), (225, 300, 375)))  # fmt: skip
    table = torch.tensor([[float(sinkhorn(whole(states[a]), whole(states[b]))) for b in right] for a in left])
    found = module._nearest(states, states.mean(0), left, right)
    torch.testing.assert_close(found[0], table.amin(1), rtol=1e-5, atol=0)
    torch.testing.assert_close(found[1], table.amin(0), rtol=1e-5, atol=0)


def test_windows():
    def sizes(n):
        return [(int(w[0]), len(w)) for w in windows_of(torch.arange(n))]

    assert sizes(0) == [] and sizes(1) == [(0, 1)] and sizes(100) == [(0, 100)]
    assert sizes(101) == [(0, 100), (25, 76)] and sizes(125) == [(0, 100), (25, 100)]
    assert sizes(130) == [(0, 100), (25, 100), (50, 80)]
    assert sorted({int(t) for w in windows_of(torch.arange(333)) for t in w}) == list(range(333))


@torch.no_grad()
def plain(model, rolled, rewards, groups, span, stride) -> torch.Tensor:
    """Loops over rollouts, spans and opposing spans, states from whole forward passes, exact transport."""
    states = []
    for prompt, ids, mask in zip(rolled.prompts, rolled.completions, rolled.mask, strict=True):
        read = model.model(torch.tensor([prompt + ids])).last_hidden_state[0, len(prompt) :]
        states.append(read[mask[: len(ids)]])
    out = torch.zeros(rolled.mask.shape)

    def spans_of(i):
        n, begin = len(states[i]), 0
        while True:
            yield begin, states[i][begin : begin + span]
            if begin + span >= n:
                return
            begin += stride

    for i, reward in enumerate(rewards.tolist()):
        group = [j for j in range(len(rewards)) if groups[j] == groups[i] and rewards[j] == rewards[j]]
        mean = sum(float(rewards[j]) for j in group) / max(1, len(group))
        opposing = [j for j in group if (rewards[j] - mean) * (reward - mean) < 0]
        weights = torch.ones(len(states[i]))
        if opposing:
            weights = torch.zeros(len(states[i]))
            norm = torch.cat([states[j] for j in group]).norm(dim=1).mean()
            for begin, own in spans_of(i):
                d = min(exact(own, other) for j in opposing for _, other in spans_of(j)) / norm
                weights[begin : begin + span] = weights[begin : begin + span].clamp(min=float(d))
        out[i, rolled.mask[i]] = weights
    return out


@pytest.mark.parametrize("numbers", [1 << 24, 1])
def test_equals_a_plain_loop(rollouts, monkeypatch, numbers):
    monkeypatch.setattr(module, "SPAN", 6)
    monkeypatch.setattr(module, "STRIDE", 4)
    monkeypatch.setitem(module._MOST_NUMBERS, "cpu", numbers)  # pair by pair
    monkeypatch.setattr(module, "_CANDIDATES", 1)
    rewards = torch.tensor([1.0, 0, 0, NAN, 0.2, 0.9, 0.5, 0.1])
    groups = torch.tensor([0] * 4 + [1] * 4)
    got = span_distance(Scorer(rollouts.model), rollouts.prompts, rollouts.completions, rollouts.mask, rewards, groups)
    expected = plain(rollouts.model.eval(), rollouts, rewards, groups, 6, 4)
    torch.testing.assert_close(got, expected, rtol=0.03, atol=0.01)
    assert got[3][rollouts.mask[3]].eq(1).all() and got[0][rollouts.mask[0]].ne(1).any()


def test_nothing_to_compare(rollouts):
    arguments = Scorer(rollouts.model), rollouts.prompts, rollouts.completions
    groups = torch.tensor([0] * 4 + [1] * 4)
    for rewards in (torch.full((8,), 0.1), torch.full((8,), NAN), torch.tensor([1.0, NAN, NAN, NAN] * 2)):
        assert torch.equal(span_distance(*arguments, rollouts.mask, rewards, groups), rollouts.mask.float())
    assert not span_distance(*arguments, rollouts.mask & False, 1.0 - groups, groups).any()
