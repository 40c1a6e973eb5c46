"""The distillation loss: values by hand, gradients against torch's own on all logits at once, and bounded memory."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from gear_rl.errors import GearError
from gear_rl.scoring.distillation import distillation_divergence, importance_weight, trainable_head
from gear_rl.scoring.distillation_formulas import Compared, plain_divergence
from gear_rl.scoring.head import Head

CASES = [
    Compared("reverse_kl"),
    Compared("forward_kl"),
    Compared("jsd"),
    Compared("jsd", beta=0.1),
    *(Compared(kind, top_k=5, tail=tail) for kind in ("reverse_kl", "forward_kl", "jsd") for tail in (True, False)),
    Compared("jsd", top_k=1000),
    Compared("forward_kl", entry_clip=0.05),
    Compared("reverse_kl", entry_clip=0.05, temper_teacher=False),
    Compared("jsd", beta=0.3, entry_clip=0.01, top_k=5),
    Compared("forward_kl", token_cap=1.0),
    Compared("reverse_kl", token_cap=1.0, temper_teacher=False),
    Compared("squared"),
    Compared("ratio"),
    Compared("ratio", token_cap=1.0),
]
IDS = torch.arange(17) * 5 % 29
HEADS = [dict(), dict(bias=True), dict(scale=0.3), dict(softcap=4.0, bias=True, scale=1.7), dict(vocab_size=29)]


def problem(dtype, n=17, width=6, vocab=31, seed=0, bias=False, **head):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    hidden, teacher = draw(n, width).requires_grad_(), draw(n, width)
    weight, other = draw(vocab, width).requires_grad_(), draw(vocab, width)
    offsets = draw(vocab).requires_grad_() if bias else None
    return hidden, teacher, Head(weight, offsets, **head), Head(other, None, **head), draw(n)


def by_hand(p: list[float], q: list[float], c: Compared, y: int) -> float:
    """From the definitions, a number at a time."""
    cap = math.inf if c.token_cap is None else c.token_cap
    if c.kind in ("squared", "ratio"):
        return min(cap, 0.5 * math.log(p[y] / q[y]) ** 2 if c.kind == "squared" else q[y] / p[y])
    if c.top_k is not None and c.top_k < len(p):
        top = sorted(range(len(p)), key=lambda v: -p[v])[: c.top_k]
        rest = [v for v in range(len(p)) if v not in top]
        tail = c.tail
        p, q = ([x[v] for v in top] + ([sum(x[v] for v in rest)] if tail else []) for x in (p, q))
    clip, total = math.inf if c.entry_clip is None else c.entry_clip, 0.0
    for a, b in zip(p, q, strict=True):
        m = c.beta * b + (1 - c.beta) * a
        entry = {
            "reverse_kl": a * math.log(a / b),
            "forward_kl": b * math.log(b / a),
            "jsd": c.beta * b * math.log(b / m) + (1 - c.beta) * a * math.log(a / m),
        }[c.kind]
        total += min(entry, clip)
    return min(total, cap)


@pytest.mark.parametrize("compared", CASES, ids=str)
def test_values_by_hand(compared):
    hidden, teacher, head, other, _ = problem(torch.float64)
    got = distillation_divergence(hidden, head, teacher, other, compared, temperature=0.7, token_ids=IDS)
    p = (hidden @ head.weight.T / 0.7).softmax(1).tolist()
    q = (teacher @ other.weight.T / (0.7 if compared.temper_teacher else 1.0)).softmax(1).tolist()
    expected = [by_hand(a, b, compared, y) for a, b, y in zip(p, q, IDS.tolist(), strict=True)]
    assert got.tolist() == pytest.approx(expected, rel=1e-9)


def test_the_symmetric_jsd_is_the_one_that_scoring_reports():
    from gear_rl.scoring import token_divergence

    hidden, teacher, head, other, _ = problem(torch.float32)
    ours = distillation_divergence(hidden, head, teacher, other, Compared("jsd"))
    signal = token_divergence(hidden, teacher, head, torch.zeros(17, dtype=torch.long), other, extra=["jensen_shannon"])
    torch.testing.assert_close(ours, signal.jensen_shannon, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("options", HEADS, ids=str)
@pytest.mark.parametrize("compared", CASES, ids=str)
def test_gradients_are_those_of_autograd_on_full_logits(compared, options, dtype):
    hidden, teacher, head, other, upstream = problem(dtype, **options)
    inputs = [hidden, head.weight, *([] if head.bias is None else [head.bias])]
    tiny = 8 * dtype.itemsize * head.size * 4  # four rows at a time: 17 tokens in 5 chunks
    ours = distillation_divergence(hidden, head, teacher, other, compared, 0.7, workspace=tiny, token_ids=IDS)
    got = torch.autograd.grad((ours * upstream).sum(), inputs)

    def log_probs(states, side, temperature=0.7):
        z = states @ side.weight.T[:, : side.size]
        z = (z if side.bias is None else z + side.bias[: side.size]) * side.scale
        z = z if side.softcap is None else side.softcap * torch.tanh(z / side.softcap)
        return (z / temperature).log_softmax(1)

    of_teacher = log_probs(teacher, other, 0.7 if compared.temper_teacher else 1.0).detach()
    plain = plain_divergence(log_probs(hidden, head), of_teacher, compared, IDS)
    expected = torch.autograd.grad((plain * upstream).sum(), inputs)
    tolerance = dict(rtol=1e-9, atol=1e-12) if dtype == torch.float64 else dict(rtol=2e-4, atol=2e-5)
    torch.testing.assert_close(ours, plain, **tolerance)
    for one, two in zip(got, expected, strict=True):
        torch.testing.assert_close(one, two, **tolerance)


def test_extreme_logits_stay_finite():
    hidden, teacher, head, other, _ = problem(torch.float32)
    for compared in CASES:
        loud = (hidden * 200).detach().requires_grad_()
        if compared.kind == "ratio":
            continue  # e to the power of a gap of hundreds of nats is infinite by definition
        value = distillation_divergence(loud, head, teacher * 200, other, compared, token_ids=IDS)
        (gradient,) = torch.autograd.grad(value.sum(), [loud])
        assert value.isfinite().all() and gradient.isfinite().all(), compared


def test_memory_does_not_grow_with_tokens_times_vocabulary():
    """Counts the largest tensor that is ever made: no (tokens, vocabulary) tensor exists, forward or backward."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                self.elements = max(self.elements, out.numel())
            return out

    n, width, vocab = 512, 8, 1000
    hidden, teacher, head, other, _ = problem(torch.float32, n=n, width=width, vocab=vocab)
    with Largest() as seen:
        for compared in (Compared("jsd"), Compared("jsd", top_k=50)):
            workspace = 8 * 4 * vocab * 16
            distillation_divergence(hidden, head, teacher, other, compared, workspace=workspace).sum().backward()
    assert hidden.grad is not None and head.weight.grad is not None
    assert seen.elements <= 16 * vocab < n * vocab / 10


def test_a_frozen_head_gets_no_gradient_and_an_equal_teacher_no_loss():
    hidden, _, head, _, _ = problem(torch.float64)
    frozen = Head(head.weight.detach())
    value = distillation_divergence(hidden, frozen, hidden, frozen, Compared("reverse_kl"))
    (gradient,) = torch.autograd.grad(value.sum(), [hidden])
    assert value.abs().max() < 1e-12 and gradient.abs().max() < 1e-12


def test_nothing_to_distil():
    hidden, teacher, head, other, _ = problem(torch.float32, n=0)
    value = distillation_divergence(hidden, head, teacher, other, Compared("jsd"))
    value.sum().backward()
    assert value.shape == (0,) and not head.weight.grad.any()


def test_what_does_not_fit_is_refused():
    hidden, teacher, head, other, _ = problem(torch.float32)
    with pytest.raises(GearError, match="a row per token"):
        distillation_divergence(hidden, head, teacher[:3], other, Compared("jsd"))
    with pytest.raises(GearError, match="vocabularies of 31 and 30"):
        distillation_divergence(hidden, head, teacher, Head(other.weight[:30]), Compared("jsd"))


def test_a_clipped_forward_kl_can_be_negative():
    """Large positive terms are cut, negative ones stay: OPSD's clipped sum is no divergence."""
    p, q = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.9, 0.1]]).log()
    entry = 0.9 * math.log(1.8), 0.1 * math.log(0.2)  # 0.529, −0.161
    assert plain_divergence(p, q, Compared("forward_kl", entry_clip=0.05)).item() == pytest.approx(0.05 + entry[1])


def test_a_capped_token_has_no_gradient():
    hidden, teacher, head, other, _ = problem(torch.float64)
    free = distillation_divergence(hidden, head, teacher, other, Compared("reverse_kl"))
    cap = free.median().item()
    capped = distillation_divergence(hidden, head, teacher, other, Compared("reverse_kl", token_cap=cap))
    (gradient,) = torch.autograd.grad(capped.sum(), [hidden])
    assert ((gradient == 0).all(1) == (free > cap)).all() and capped.max() == cap


def test_the_importance_weight_is_bounded_from_above_alone():
    logprob = torch.tensor([-1.0, -1.0, -1.0, -1.0], requires_grad=True)
    weight = importance_weight(logprob, torch.tensor([-1.0, -1.5, -5.0, 90.0]), clip=2.0)
    assert weight.tolist() == pytest.approx([1.0, math.exp(0.5), 2.0, math.exp(-20)]) and not weight.requires_grad


@pytest.mark.parametrize("token_ids", [None, torch.zeros(3, dtype=torch.long)])
def test_kinds_of_the_sampled_token_need_it(token_ids):
    hidden, teacher, head, other, _ = problem(torch.float32)
    with pytest.raises(GearError, match=r"squared looks at the sampled tokens: token_ids must be \(17,\)"):
        distillation_divergence(hidden, head, teacher, other, Compared("squared"), token_ids=token_ids)


def test_the_trainable_head_is_the_models_own_parameter(model_and_tokenizer):
    model, _ = model_and_tokenizer
    head = trainable_head(model)
    assert head.weight is model.lm_head.weight and isinstance(head.weight, nn.Parameter)
    assert not Head.of(model).weight.requires_grad


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", HEADS, ids=str)
@pytest.mark.parametrize("compared", CASES, ids=str)
def test_on_a_gpu_in_16_bits(compared, options):
    """Against float64 on the same rounded inputs: values as exact as float32 logits make them, gradients as bf16 holds them."""
    results = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.bfloat16)):
        hidden, teacher, head, other, upstream = problem(torch.bfloat16, n=70, width=16, vocab=150, **options)
        leaf = [
            t.detach().to(device, dtype).requires_grad_()
            for t in (hidden, head.weight, head.bias)
            if isinstance(t, torch.Tensor)
        ]
        own = replace(head, weight=leaf[1], bias=leaf[2] if len(leaf) == 3 else None)
        fixed = replace(other, weight=other.weight.to(device, dtype))
        ids = (torch.arange(70) * 5 % 29).to(device)
        value = distillation_divergence(leaf[0], own, teacher.to(device, dtype), fixed, compared, 0.7, token_ids=ids)
        gradients = torch.autograd.grad((value * upstream.to(device, value.dtype)).sum(), leaf)
        results.append([t.cpu().double() for t in (value, *gradients)])
    exact, got = results
    torch.testing.assert_close(got[0], exact[0], rtol=1e-3, atol=2e-4)
    for one, two in zip(got[1:], exact[1:], strict=True):
        assert (one - two).norm() <= 1e-2 * two.norm()  # 0 where the cap holds every token
