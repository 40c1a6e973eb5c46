"""Saliency by one backward pass: against plain autograd on one sequence at a time, and where it points."""

from __future__ import annotations

import zlib
from array import array

import pytest
import torch
from played_rollouts import Rolled, rolled

from gear_rl.errors import GearError
from gear_rl.scoring.answers import Answer, AnswerReading
from gear_rl.scoring.saliency import NOISE, answer_saliency

KINDS = ["saliency_act", "saliency_grad"]


@pytest.fixture
def rollouts(workshop, model_and_tokenizer) -> Rolled:
    return rolled(workshop, model_and_tokenizer)


def plain(model, reading: AnswerReading, kind: str, temperature: float) -> torch.Tensor:
    """One unpadded sequence through the whole model, all logits, torch's own gradients."""
    model.eval()
    ids = torch.tensor([reading.prompt + reading.completion[: reading.cut] + reading.answer.ids])
    embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
    first = len(reading.prompt) + reading.cut + reading.answer.unscored
    places = torch.arange(first - 1, ids.shape[1] - 1)

    def log_probs(inputs):
        return (model(inputs_embeds=inputs).logits[0, places] / temperature).log_softmax(-1)

    if kind == "saliency_act":
        value = log_probs(embedded).gather(1, ids[0, places + 1, None]).mean()
    else:
        generator = torch.Generator().manual_seed(zlib.crc32(array("q", ids[0].tolist()).tobytes()))
        noise = torch.randn(embedded.shape[1:], generator=generator) * NOISE * embedded.detach()[0].std()
        clean, noisy = log_probs(embedded).detach(), log_probs(embedded + noise)
        value = (clean.exp() * (clean - noisy)).sum(1).mean()
    (gradient,) = torch.autograd.grad(value, [embedded])
    product = (gradient * embedded.detach()).sum(-1)[0].abs()
    return product[len(reading.prompt) : len(reading.prompt) + reading.cut]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_plain_autograd(rollouts, kind, temperature):
    readings = rollouts.readings()
    got = answer_saliency(rollouts.model, readings, rollouts.mask, kind, temperature)
    for i, reading in enumerate(readings):
        mask = rollouts.mask[i]
        expected = plain(rollouts.model, reading, kind, temperature) * mask[: reading.cut]
        torch.testing.assert_close(got[i, : reading.cut], expected, rtol=2e-3, atol=2e-3 * float(expected.max()))
        answer = got[i, reading.cut :][mask[reading.cut :]]
        assert (answer == got[i, : reading.cut].max()).all(), "the answer's own tokens get the largest score"
    assert not got[~rollouts.mask].any() and (got >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_points_at_what_the_answer_is_read_from(rollouts, kind):
    """In the workshop that is the last gauge, a word of the environment: counted as an action here, to be seen."""
    everything = torch.zeros_like(rollouts.mask)
    for i, ids in enumerate(rollouts.completions):
        everything[i, : len(ids)] = True
    got = answer_saliency(rollouts.model, rollouts.readings(), everything, kind)
    gauges = set(rollouts.ids(" ".join(f"g{i}" for i in range(32))))
    hits = 0
    for i, reading in enumerate(rollouts.readings()):
        best = int(got[i, : reading.cut].argmax())
        hits += best == max(t for t in range(reading.cut) if reading.completion[t] in gauges)
    assert hits >= 4, f"{hits} of 6"


@pytest.mark.parametrize("kind", KINDS)
def test_leaves_no_trace(rollouts, kind):
    model = rollouts.model.train()
    state = torch.random.get_rng_state()
    modes: list[bool] = []
    model.model.register_forward_hook(lambda body, *_: modes.append(body.training))
    alone = answer_saliency(model, rollouts.readings()[2:3], rollouts.mask[2:3], kind)
    together = answer_saliency(model, rollouts.readings(), rollouts.mask, kind)
    torch.testing.assert_close(alone[0], together[2], rtol=1e-3, atol=1e-3 * float(together[2].max()))
    assert torch.equal(state, torch.random.get_rng_state()) and model.training and modes and not any(modes)
    assert all(p.grad is None for p in model.parameters())


def test_rollouts_without_a_place_for_the_answer(rollouts):
    readings = rollouts.readings()
    readings[0] = None
    readings[1] = AnswerReading(rollouts.prompts[1], rollouts.completions[1], 0, rollouts.answers()[1])
    got = answer_saliency(rollouts.model, readings, rollouts.mask, "saliency_act")
    assert not got[0].any() and not got[1].any() and got[2].any()
    assert not answer_saliency(rollouts.model, [None] * 6, rollouts.mask, "saliency_act").any()


def test_beyond_the_context(rollouts):
    long = [AnswerReading(rollouts.prompts[0], [], 0, Answer([5] * 300))]
    with pytest.raises(GearError, match="context of 256"):
        answer_saliency(rollouts.model, long, rollouts.mask[:1], "saliency_act")
