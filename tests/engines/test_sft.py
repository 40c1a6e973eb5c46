"""Supervised training through TRL: the loss is the plain one over our own masks, however the rows are cut into passes."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from gear_rl.engines.sft import train_supervised


@pytest.fixture
def examples():
    """Rows of uneven length; about half of the tokens count, none of the first two."""
    draw = torch.Generator().manual_seed(1)
    rows = []
    for length in (5, 9, 30, 12, 7):
        ids = torch.randint(3, 60, (length,), generator=draw).tolist()
        rows.append((ids, [0, 0, *torch.randint(2, (length - 2,), generator=draw).tolist()]))
    return rows


def trained(model_and_tokenizer, examples, say=lambda text: None, spoil=None, **settings):
    model, tokenizer = model_and_tokenizer
    model = copy.deepcopy(model)
    if spoil:
        model.model.norm.weight.register_hook(spoil)
    chosen = {"batch": 4, "pass_tokens": 1000, "learning_rate": 1e-3, "seed": 0, **settings}
    return model, train_supervised(model, tokenizer, examples, say=say, **chosen)


@pytest.mark.parametrize("pass_tokens", [1, 60, 1000])
def test_the_loss_is_the_plain_one_however_it_is_cut(model_and_tokenizer, examples, pass_tokens):
    plain = 0.0
    for ids, mask in examples[:4]:
        logps = model_and_tokenizer[0](torch.tensor([ids])).logits[0].log_softmax(-1).detach()
        plain -= sum(float(logps[i - 1, ids[i]]) for i in range(1, len(ids)) if mask[i])
    whole, _ = trained(model_and_tokenizer, examples)
    model, curve = trained(model_and_tokenizer, examples, pass_tokens=pass_tokens)
    assert [point["update"] for point in curve] == [1, 2], "five rows, four an update"
    assert curve[0]["loss"] == pytest.approx(plain / sum(sum(mask) for _, mask in examples[:4]), abs=1e-4)
    for a, b in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-4)  # Adam's first steps are ± the rate, whatever the size


def test_an_update_without_a_finite_gradient_is_skipped(model_and_tokenizer, examples):
    said, calls = [], iter(range(100))
    model, curve = trained(
        model_and_tokenizer,
        examples,
        say=said.append,
        spoil=lambda gradient: gradient * (math.nan if next(calls) == 0 else 1.0),
    )
    assert any("update 1/2: the gradient is not finite; the update is skipped" in line for line in said)
    assert len(curve) == 2 and all(weight.isfinite().all() for weight in model.parameters())
    assert not model.training and model.config.use_cache


def test_nothing_is_left_behind(model_and_tokenizer, examples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained(model_and_tokenizer, examples)
    assert list(tmp_path.iterdir()) == []
