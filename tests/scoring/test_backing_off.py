"""Memory that runs out while scoring: smaller passes, the same signals, and one line about it."""

from __future__ import annotations

import copy

import pytest
import torch
from out_of_memory import limit_tokens
from played_rollouts import rolled
from tiny_models import largest_gap, rollouts, tiny

from gear_rl.errors import GearError
from gear_rl.scoring.body import body_of
from gear_rl.scoring.masking import masking_divergence
from gear_rl.scoring.saliency import answer_saliency, noise_saliency
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.states import states_after
from gear_rl.scoring.teacher import Teacher


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("kind", ["live", "base"])
def test_signals_are_the_same_in_smaller_passes(share, kind, caplog):
    model, batch = tiny("llama"), rollouts(size=16)
    whole = Scorer(model, share_prompts=share).score(*batch, Teacher(model, kind))
    scorer, asked = Scorer(model, share_prompts=share), limit_tokens(body_of(model), 150)
    with caplog.at_level("WARNING", "gear_rl"):
        parts = scorer.score(*batch, Teacher(model, kind))
    assert largest_gap(parts, whole) < 2e-5 and max(asked) > 150
    lines = [record.getMessage() for record in caplog.records]
    assert lines[-1] == f"memory ran out while scoring: passes have 1/{scorer.weights.divided_by} of their size from here on."
    asked.clear()
    scorer.score(*batch, Teacher(model, kind))
    assert max(asked) <= 150, "what was learned is kept"


@pytest.mark.parametrize("function", [masking_divergence, noise_saliency, answer_saliency])
def test_saliency_too(workshop, model_and_tokenizer, function):
    r = rolled(workshop, model_and_tokenizer)
    model = copy.deepcopy(r.model)
    readings = r.readings()
    whole = function(model, readings, r.mask)
    asked = limit_tokens(body_of(model), max(len(reading.ids) for reading in readings) * 2)
    assert torch.allclose(function(model, readings, r.mask), whole, rtol=2e-3, atol=2e-5) and len(asked) > 2


def test_hidden_states_too():
    model, batch = tiny("llama"), rollouts(size=16)
    whole = states_after(Scorer(model), batch.prompts, batch.completions, batch.mask)
    asked = limit_tokens(body_of(model), 150)
    parts = states_after(Scorer(model), batch.prompts, batch.completions, batch.mask)
    assert torch.allclose(parts, whole, atol=1e-4) and max(asked) > 150


def test_one_rollout_that_does_not_fit_and_other_errors():
    model, batch = tiny("llama"), rollouts()
    hook = body_of(model).register_forward_pre_hook(lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        Scorer(model).score(*batch, Teacher(model))
    hook.remove()
    limit_tokens(body_of(model), 3)
    with pytest.raises(GearError, match="one rollout at a time too"):
        Scorer(model).score(*batch, Teacher(model))
