"""Counterfactual masking: against a plain loop that hides one token at a time, the budget, and where it points."""

from __future__ import annotations

import pytest
import torch
from played_rollouts import Rolled, rolled

from gear_rl.errors import GearError
from gear_rl.scoring.masking import masking_divergence, runs_of


@pytest.fixture
def rollouts(workshop, model_and_tokenizer) -> Rolled:
    return rolled(workshop, model_and_tokenizer)


@torch.no_grad()
def plain(model, reading, hidden: list[int], temperature: float) -> float:
    """KL between the answer's distributions with and without `hidden`, one sequence, all logits."""
    ids = torch.tensor([reading.ids])
    places = torch.tensor(list(reading.before_answer))
    log_probs = []
    for gone in ([], hidden):
        seen = torch.ones_like(ids)
        seen[0, [len(reading.prompt) + t for t in gone]] = 0
        out = model(input_ids=ids, attention_mask=seen, position_ids=torch.arange(ids.shape[1])[None])
        log_probs.append((out.logits[0, places].mean(0) / temperature).log_softmax(-1))
    p, q = log_probs
    return float((p.exp() * (p - q)).sum())


@pytest.mark.parametrize(("budget", "temperature"), [(64, 1.0), (64, 0.7), (5, 1.0), (1, 1.0)])
def test_equals_a_plain_loop(rollouts, budget, temperature):
    model, readings = rollouts.model.eval(), rollouts.readings()
    got = masking_divergence(model, readings, rollouts.mask, temperature, budget)
    for i in (0, 4):
        reading = readings[i]
        spoken = [t for t in range(reading.cut) if rollouts.mask[i, t]]
        for run in runs_of(spoken, budget):
            expected = plain(model, reading, run, temperature)
            assert got[i, run].tolist() == pytest.approx([expected] * len(run), rel=2e-3, abs=2e-6)
        rest = got[i, reading.cut :][rollouts.mask[i, reading.cut :]]
        assert (rest == got[i, spoken].max()).all()
    assert not got[~rollouts.mask].any()


def test_points_at_what_the_answer_is_read_from(rollouts):
    everything = torch.zeros_like(rollouts.mask)
    for i, ids in enumerate(rollouts.completions):
        everything[i, : len(ids)] = True
    got = masking_divergence(rollouts.model, rollouts.readings(), everything)
    gauges = set(rollouts.ids(" ".join(f"g{i}" for i in range(32))))
    for i, reading in enumerate(rollouts.readings()):
        last = max(t for t in range(reading.cut) if reading.completion[t] in gauges)
        assert int(got[i, : reading.cut].argmax()) == last


def test_the_budget_bounds_the_readings_and_hides_every_token_once():
    for n, budget in [(10, 64), (10, 3), (64, 64), (65, 64), (1, 1), (0, 4)]:
        runs = runs_of(list(range(100, 100 + n)), budget)
        assert [t for run in runs for t in run] == list(range(100, 100 + n))
        assert len(runs) == min(n, budget)
        assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1


def test_nothing_to_hide_and_no_budget(rollouts):
    assert not masking_divergence(rollouts.model, [None] * 6, rollouts.mask).any()
    assert not masking_divergence(rollouts.model, rollouts.readings(), rollouts.mask & False).any()
    with pytest.raises(GearError, match="mask_budget=0"):
        masking_divergence(rollouts.model, rollouts.readings(), rollouts.mask, budget=0)
