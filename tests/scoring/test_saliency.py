"""Saliency by one backward pass: against plain autograd on one sequence at a time, and where it points."""

from __future__ import annotations

import zlib
from array import array

import pytest
import torch
from played_rollouts import Rolled, rolled

from gear_rl.errors import GearError
from gear_rl.scoring.answers import Answer, AnswerReading
from gear_rl.scoring.head import Head
from gear_rl.scoring.saliency import NOISE, _divergence_slope, answer_saliency, noise_saliency


@pytest.fixture
def rollouts(workshop, model_and_tokenizer) -> Rolled:
    return rolled(workshop, model_and_tokenizer)


def plain(model, reading: AnswerReading, kind: str, temperature: float) -> torch.Tensor:
    """One unpadded sequence through the whole model, all logits, torch's own gradients: (width, D) gradient times e."""
    model.eval()
    ids = torch.tensor([reading.prompt + reading.completion[: reading.cut] + reading.answer.ids])
    embedded = model.get_input_embeddings()(ids).detach()
    first = len(reading.prompt) + reading.cut + reading.answer.unscored
    places = torch.arange(first - 1, ids.shape[1] - 1)
    clean = model(inputs_embeds=embedded).logits[0, places].mean(0) / temperature
    if kind == "grad":
        generator = torch.Generator().manual_seed(zlib.crc32(array("q", ids[0].tolist()).tobytes()))
        noise = (torch.randn(embedded.shape[1:], generator=generator) * NOISE).to(embedded.dtype)
        noise[: len(reading.prompt)] = 0
        noise[len(reading.prompt) + reading.cut :] = 0
        embedded = embedded + noise
    embedded = embedded.detach().requires_grad_()
    logits = model(inputs_embeds=embedded).logits[0, places] / temperature
    if kind == "grad":
        p, q = clean.detach().double().log_softmax(-1), logits.double().mean(0).log_softmax(-1)
        value = (p.exp() * (p - q)).sum()
    else:
        value = -logits.log_softmax(-1).gather(1, ids[0, places + 1, None]).sum()
    (gradient,) = torch.autograd.grad(value, [embedded])
    return (gradient * embedded.detach())[0]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_noise_saliency_equals_plain_autograd(rollouts, temperature):
    rollouts.model.double()  # divergences under noise this small are near what float32 can tell from 0
    readings = rollouts.readings()
    got = noise_saliency(rollouts.model, readings, rollouts.mask, temperature)
    for i, reading in enumerate(readings):
        mask, first = rollouts.mask[i], len(reading.prompt)
        product = plain(rollouts.model, reading, "grad", temperature)[first : first + reading.cut]
        expected = (product.sum(-1).abs() * mask[: reading.cut]).float()
        torch.testing.assert_close(got[i, : reading.cut], expected, rtol=1e-3, atol=1e-3 * float(expected.max()))
        answer = got[i, reading.cut :][mask[reading.cut :]]
        assert (answer == got[i, : reading.cut].max()).all(), "the answer's own tokens get the largest score"
    assert not got[~rollouts.mask].any() and (got >= 0).all()


def own(rollouts) -> list[AnswerReading]:
    """Each rollout's last two tokens but the end mark, as its own answer."""
    whole = zip(rollouts.prompts, rollouts.completions, strict=True)
    return [AnswerReading(p, ids, len(ids) - 3, Answer(ids[-3:-1])) for p, ids in whole]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_answer_saliency_is_read_one_position_before_the_token(rollouts, temperature):
    readings = own(rollouts)
    got = answer_saliency(rollouts.model, readings, rollouts.mask, temperature)
    for i, reading in enumerate(readings):
        norms = plain(rollouts.model, reading, "own", temperature).norm(dim=-1)
        for t in range(rollouts.mask.shape[1]):
            position = len(reading.prompt) + t - 1
            wanted = bool(rollouts.mask[i, t]) and position < len(norms)
            expected = float(norms[position]) if wanted else 0.0
            assert float(got[i, t]) == pytest.approx(expected, rel=2e-3, abs=1e-3 * float(norms.max()))
        assert got[i, len(reading.completion) - 3] > 0 and got[i, len(reading.completion) - 1] == 0


SCORES = [noise_saliency, answer_saliency]


@pytest.mark.parametrize("saliency", SCORES)
def test_leaves_no_trace(rollouts, saliency):
    model = rollouts.model.double().train()
    state = torch.random.get_rng_state()
    modes: list[bool] = []
    model.model.register_forward_hook(lambda body, *_: modes.append(body.training))
    alone = saliency(model, rollouts.readings()[2:3], rollouts.mask[2:3])
    together = saliency(model, rollouts.readings(), rollouts.mask)
    torch.testing.assert_close(alone[0], together[2], rtol=1e-3, atol=1e-3 * float(together[2].max()))
    assert torch.equal(state, torch.random.get_rng_state()) and model.training and modes and not any(modes)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("saliency", SCORES)
def test_rollouts_without_a_place_for_the_answer(rollouts, saliency):
    readings = rollouts.readings()
    readings[0] = None
    got = saliency(rollouts.model, readings, rollouts.mask)
    assert not got[0].any() and got[2].any()
    assert not saliency(rollouts.model, [None] * 6, rollouts.mask).any()


@pytest.mark.parametrize("saliency", SCORES)
def test_beyond_the_context(rollouts, saliency):
    long = [AnswerReading(rollouts.prompts[0], [], 0, Answer([5] * 300))]
    with pytest.raises(GearError, match="context of 256"):
        saliency(rollouts.model, long, rollouts.mask[:1])


@pytest.mark.parametrize("softcap", [None, 30.0])
def test_the_slope_of_a_tiny_divergence_keeps_its_digits_in_float32(softcap):
    """A sure answer (p = 1 − 1e-8) whose states move by 1e-3: P − P₀ is 1e-11, far below what subtraction in float32 tells."""
    generator = torch.Generator().manual_seed(0)
    weight, noise = (torch.randn(n, 32, generator=generator, dtype=torch.float64) for n in (50, 4))
    intact, moved = weight[:4] * 0.6, weight[:4] * 0.6 + 1e-3 * noise
    exact = moved.clone().requires_grad_()

    def logprobs(h: torch.Tensor) -> torch.Tensor:
        z = h @ weight.T
        return (z if softcap is None else softcap * torch.tanh(z / softcap)).log_softmax(-1)

    p, q = logprobs(intact), logprobs(exact)
    (expected,) = torch.autograd.grad((p.exp() * (p - q)).sum(), [exact])
    single = moved.float().requires_grad_()
    head = Head(weight.float(), softcap=softcap)
    (got,) = torch.autograd.grad(_divergence_slope(single, intact.float(), head, 1.0), [single])
    assert ((got - expected).norm(dim=1) / expected.norm(dim=1)).max() < 1e-2
    subtracted = single.detach().requires_grad_()
    p, q = head.logits(intact.float()).log_softmax(-1), head.logits(subtracted).log_softmax(-1)
    (lost,) = torch.autograd.grad((p.exp() * (p - q)).sum(), [subtracted])
    assert ((lost - expected).norm(dim=1) / expected.norm(dim=1)).max() > 0.1, "the case is one that subtraction loses"


def test_noise_saliency_in_float32_is_that_in_float64(rollouts):
    readings = rollouts.readings()
    single = noise_saliency(rollouts.model, readings, rollouts.mask)
    double = noise_saliency(rollouts.model.double(), readings, rollouts.mask)
    gaps = (single - double).abs().amax(1) / double.amax(1)
    assert gaps.max() < 5e-3  # measured 5e-4; with P − P₀ by subtraction 9
