"""Training a model in parts and sampling from a copy of it in fewer bits: what must stay the same, does."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from gear_rl.cli.main import main
from gear_rl.sampling.fused_layers import joined
from gear_rl.sampling.sampler import Sampler

SMALL = ("task.steps=4", "train.prompts=2", "train.generations=4", "train.eval_rows=5", "train.steps=2")


def trained(folder, *more):
    words = [word for pair in (*SMALL, *more) for word in ("--set", pair)]
    assert main(["train", "--out", str(folder), *words]) == 0
    return load_file(folder / "model" / "model.safetensors")


def test_a_step_in_parts_is_the_same_step(tmp_path):
    whole = trained(tmp_path / "whole")
    parts = trained(tmp_path / "parts", "train.rollouts_per_pass=2")
    start = trained(tmp_path / "start", "train.learning_rate=1e-12")
    moved = max(float((whole[name] - start[name]).abs().max()) for name in whole)
    apart = max(float((whole[name] - parts[name]).abs().max()) for name in whole)
    assert apart < 0.02 * moved


def test_a_copy_in_16_bits_follows_the_policy(model_and_tokenizer):
    model, _ = model_and_tokenizer
    assert Sampler("float32")(model) is model
    sampler = Sampler("bfloat16")
    copy = sampler(model)
    assert copy is not model and {p.dtype for p in copy.parameters()} == {torch.bfloat16}
    assert all(b.dtype == torch.float32 for b in copy.buffers() if b.is_floating_point()), "rotary frequencies"
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn_like(weight)
    assert sampler(model) is copy
    for (name, mine), its in zip(copy.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, its.to(torch.bfloat16)), name
    attention = copy.model.layers[0].self_attn  # in one buffer, so that one product serves all three
    side_by_side = joined([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
    assert side_by_side is not None and torch.equal(side_by_side[-len(attention.v_proj.weight) :], attention.v_proj.weight)


def test_bfloat16_trains(tmp_path):
    assert trained(tmp_path / "run", "train.precision=bfloat16")["model.norm.weight"].dtype == torch.float32


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.rollouts_per_pass=3", "divisor of prompts × generations, here 8"),
        ("train.rollouts_per_pass=0", "divisor"),
        ("train.precision=bfloat", "Did you mean 'bfloat16'"),
    ],
)
def test_what_is_refused(setting, message, tmp_path, capsys):
    words = [word for pair in (*SMALL, setting) for word in ("--set", pair)]
    assert main(["train", "--out", str(tmp_path / "run"), *words]) == 2 and message in capsys.readouterr().err
