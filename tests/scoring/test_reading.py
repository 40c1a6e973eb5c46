"""The same numbers whatever way rollouts are read: packed, padded, in parts, alone, and by full logits."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from tiny_models import SHARING, Passes, from_full_logits, largest_gap, rollouts, tiny

from gear_rl.errors import GearError
from gear_rl.scoring import packed_attention, packing, reading
from gear_rl.scoring.body import body_of
from gear_rl.scoring.scorer import SIGNALS, Scorer
from gear_rl.scoring.teacher import Teacher

TOLERANCE = 2e-5


@pytest.mark.parametrize("family", SHARING)
def test_shared_unshared_split_and_alone_equal_full_logits(family):
    model, batch = tiny(family), rollouts(size=6)
    truth = from_full_logits(model, batch, temperature=0.7)
    assert truth["reverse_kl"].max() > 0.05, "student and teacher must differ for this to say anything"
    shared = Scorer(model, 0.7, share_prompts=True)
    signals = shared.score(*batch, Teacher(model))
    assert shared.against_sharing is None
    assert largest_gap(signals, truth) < TOLERANCE
    assert largest_gap(Scorer(model, 0.7, share_prompts=False).score(*batch, Teacher(model)), truth) < TOLERANCE
    tight = Scorer(model, 0.7, token_budget=60, share_prompts=True)
    tight._proven = True
    with Passes(body_of(model)) as passes:
        split = tight.score(*batch, Teacher(model))
    assert len(passes.tokens) > 2 * 2, "each group must come in several parts"
    assert largest_gap(split, truth) < TOLERANCE
    for i in range(len(batch.mask)):
        alone = Scorer(model, 0.7).score(*batch.rows([i]), Teacher(model))
        assert largest_gap(alone, {name: truth[name][i : i + 1] for name in SIGNALS}) < TOLERANCE


@pytest.mark.parametrize(
    ("family", "reason"), [("gemma2", "softcap"), ("bloom", "attention interface"), ("mamba", "attention interface")]
)
def test_families_that_cannot_share_say_so_once_and_are_right(family, reason, caplog):
    model, batch = tiny(family), rollouts()
    scorer = Scorer(model, 0.7)
    with caplog.at_level(logging.WARNING, "gear_rl"):
        for _ in range(2):
            signals = scorer.score(*batch, Teacher(model))
    said = [record.message for record in caplog.records if record.name == "gear_rl"]
    assert len(said) == 1 and reason in said[0]
    assert largest_gap(signals, from_full_logits(model, batch, temperature=0.7)) < TOLERANCE
    insisting = Scorer(model, share_prompts=True)
    for _ in range(2):
        with pytest.raises(GearError, match=reason):
            insisting.score(*batch, Teacher(model))


def test_layers_that_are_no_attention_are_refused_by_kind():
    body = body_of(tiny("llama"))
    body.config.layer_types = ["full_attention", "linear_attention"]
    assert "linear_attention" in reading.why_not_packed(body, torch.device("cpu"))


def test_a_window_the_attention_is_not_told_of():
    """Llama's attention ignores `sliding_window`; a family that keeps it to its mask looks the same from outside."""
    body = body_of(tiny("llama"))
    body.config.sliding_window = 9
    assert "sliding window" in reading.why_not_packed(body, torch.device("cpu"))


@pytest.mark.parametrize("shorter", [0, 1, 2])
def test_windows_about_as_long_as_the_longest_reading(shorter):
    batch = rollouts()
    longest = max(len(h) + len(c) for h, c in zip(batch.hinted, batch.completions, strict=True))
    batch.mask[max(range(8), key=lambda i: len(batch.hinted[i]) + len(batch.completions[i]))] = True
    batch.mask &= torch.arange(batch.mask.shape[1]) < torch.tensor(list(map(len, batch.completions)))[:, None]
    model = tiny("mistral")
    model.config.sliding_window = longest - 1 - shorter  # the last token is scored, not read
    signals = Scorer(model, share_prompts=True).score(*batch, Teacher(model))
    assert largest_gap(signals, from_full_logits(model, batch, 1.0)) < TOLERANCE


@pytest.mark.parametrize("broken", ["positions", "off by one", "sees its neighbour", "sees too little"])
def test_the_proof_finds_packed_rows_that_are_wrong(broken, monkeypatch):
    model = tiny("qwen3")
    if broken == "positions":
        real = packing.Packed.inputs

        def inputs(self, ids):
            row, positions = real(self, ids)
            return row, positions + (positions > 20)

        monkeypatch.setattr(packing.Packed, "inputs", inputs)
    elif broken == "off by one":
        real = packing.Packed.states
        monkeypatch.setattr(packing.Packed, "states", lambda self, hidden: real(self, hidden.roll(1, 1)))
    else:
        shift = 1 if broken == "sees its neighbour" else -1
        real = packed_attention.dense_attention

        def wrong(packed, *args):
            segments = [s._replace(position=s.position + shift) if s.context >= 0 else s for s in packed.segments]
            other = packing.Packed(**{**vars(packed), "segments": segments, "scratch": {}})
            return real(other, *args)

        monkeypatch.setattr(packed_attention, "dense_attention", wrong)
    assert "other hidden states" in reading.why_not_packed(body_of(model), torch.device("cpu"))


def flash_by_hand(q, k, v, cum_q, cum_k, max_q, max_k, causal, scale):
    """What the CUDA kernel computes: each query segment against its key segment, and the log-normalisers.

    Causal means that the last query sees the last key.
    """
    out, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    bounds = list(zip(cum_q.tolist(), cum_q.tolist()[1:], cum_k.tolist(), cum_k.tolist()[1:], strict=False))
    assert max_q == max(b - a for a, b, _, _ in bounds) and max_k == max(d - c for _, _, c, d in bounds)
    for a, b, c, d in bounds:
        scores = torch.einsum("qhd,khd->hqk", q[a:b], k[c:d]) * (scale or q.shape[-1] ** -0.5)
        if causal:
            scores = scores.masked_fill(torch.ones(b - a, d - c).triu(1 + (d - c) - (b - a)).bool(), -torch.inf)
        out[a:b] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[c:d])
        lse[:, a:b] = scores.logsumexp(-1)
    return out, lse


@pytest.mark.parametrize("budget", [10_000, 60])
@pytest.mark.parametrize("form", ["whole", "joined"])
def test_both_flash_forms_attend_to_what_they_should(monkeypatch, form, budget):
    """The kernel itself needs CUDA; all around it is tested here, the kernel below."""
    monkeypatch.setattr(packed_attention, "MOST_COPIED", 100 if form == "whole" else 0)
    monkeypatch.setattr(packed_attention, "_flash_serves", lambda q, k, v: True)
    monkeypatch.setattr(packed_attention, "_varlen", flash_by_hand)
    model, batch = tiny("qwen3"), rollouts(size=6)
    assert len(batch.mask) == 12  # so that a budget of 60 splits groups
    signals = Scorer(model, 0.7, token_budget=budget, share_prompts=True).score(*batch, Teacher(model))
    assert largest_gap(signals, from_full_logits(model, batch, temperature=0.7)) < TOLERANCE


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral"])
@pytest.mark.parametrize("budget", [None, 300])
def test_on_a_gpu_in_16_bits(family, budget):
    batch = rollouts(prompt=(80, 40), completion=(0, 90))
    exact = from_full_logits(tiny(family), batch, temperature=1.0)
    model = tiny(family).to("cuda", torch.bfloat16)
    on_gpu = (batch.prompts, batch.hinted, batch.completions, batch.mask.cuda())
    alone = Scorer(model, share_prompts=False).score(*on_gpu, Teacher(model))
    shared = Scorer(model, token_budget=budget, share_prompts=True).score(*on_gpu, Teacher(model))
    for name in SIGNALS:
        rounding = (alone[name].cpu() - exact[name]).abs().mean()
        assert (shared[name].cpu() - exact[name]).abs().mean() < 1.5 * rounding + 1e-3, name


@pytest.mark.parametrize("kind", ["sync", "ema", "base"])
def test_a_teacher_with_other_weights(kind):
    model, batch = tiny("llama"), rollouts()
    before, teacher = copy.deepcopy(model), Teacher(model, kind, every=5, decay=0.5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    for share in (True, False):
        signals = Scorer(model, share_prompts=share).score(*batch, teacher)
        assert largest_gap(signals, from_full_logits(model, batch, 1.0, teacher_model=before)) < TOLERANCE
    split = Scorer(model, token_budget=40, share_prompts=True).score(*batch, teacher)
    assert largest_gap(split, signals) < TOLERANCE
    hinted_as_prompt = (batch.hinted, batch.hinted, batch.completions, batch.mask)
    assert Scorer(model).score(*hinted_as_prompt, teacher)["reverse_kl"].max() > 0.01, (
        "other weights, so another teacher"
    )


def test_lora_and_wrapped_models():
    from peft import LoraConfig, PromptTuningConfig, TaskType, get_peft_model

    batch = rollouts()
    model = get_peft_model(tiny("llama"), LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    teacher = Teacher(model, "base")
    truth = from_full_logits(model, batch, 1.0)
    assert largest_gap(Scorer(model, share_prompts=True).score(*batch, teacher), truth) < TOLERANCE
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora" in name:
                parameter.mul_(1.5)
    moved = Scorer(model, share_prompts=True).score(*batch, teacher)
    assert float((moved["teacher_logprob"] - truth["teacher_logprob"]).abs().max()) < TOLERANCE
    assert float((moved["student_logprob"] - truth["student_logprob"]).abs().max()) > 0.01
    prompt_tuned = get_peft_model(tiny("llama"), PromptTuningConfig(task_type=TaskType.CAUSAL_LM, num_virtual_tokens=3))
    with pytest.raises(GearError, match="virtual tokens"):  # when it is asked for signals: methods that read none may train it
        Scorer(prompt_tuned).score(*batch, Teacher(prompt_tuned, "live"))
    with pytest.raises(GearError, match="no Hugging Face causal language model"):
        Scorer(torch.nn.Linear(2, 2))


def test_under_distributed_data_parallel():
    from torch import distributed

    model, batch = tiny("llama"), rollouts()
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        signals = Scorer(wrapped).score(*batch, Teacher(wrapped, "base"))
    finally:
        distributed.destroy_process_group()
    assert largest_gap(signals, from_full_logits(model, batch, 1.0)) < TOLERANCE


def test_scoring_leaves_mode_random_state_and_attention_as_they_were():
    model, batch = tiny("gpt2").train(), rollouts()  # GPT-2 has dropout
    state, attention = torch.get_rng_state(), model.config._attn_implementation
    first = Scorer(model, share_prompts=True).score(*batch, Teacher(model))
    assert model.training and torch.equal(torch.get_rng_state(), state)
    assert model.config._attn_implementation == attention
    assert largest_gap(first, from_full_logits(model.eval(), batch, 1.0)) < TOLERANCE


def test_under_autocast():
    model, batch = tiny("qwen3"), rollouts()
    exact = from_full_logits(model, batch, 1.0)
    with torch.autocast("cpu", torch.bfloat16):
        scorer = Scorer(model, share_prompts=True)
        signals = scorer.score(*batch, Teacher(model))
        scorer.self_check(*batch, Teacher(model))
    assert scorer.against_sharing is None
    assert TOLERANCE < largest_gap(signals, exact) < 0.2, "rounded to bf16, and no more than that"
