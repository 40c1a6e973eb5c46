"""RMS norms in one kernel: only those that are proven to be plain, and only for the length of a pass."""

from __future__ import annotations

import pytest
import torch
from tiny_models import tiny
from torch import nn

from gear_rl.scoring import fused_norms
from gear_rl.scoring.body import body_of
from gear_rl.scoring.weights import Weights


def body(family, dtype=torch.bfloat16):
    return body_of(tiny(family)).to(dtype)


@pytest.mark.parametrize("family, norms", [("llama", 5), ("qwen3", 9), ("mistral", 5), ("gemma3", 0), ("gpt2", 0)])
def test_plain_norms_are_found_and_others_left_alone(family, norms):
    """Gemma's weights count from 1, and GPT-2 subtracts the mean."""
    assert len(fused_norms.provable_norms(body(family))) == norms
    assert not fused_norms.provable_norms(body(family, torch.float32)), "float32 stays as the model has it"


def test_a_pass_uses_them_and_leaves_nothing_behind(monkeypatch):
    model, ids, used = body("qwen3"), torch.arange(40)[None], []
    real = fused_norms.rms_norm
    norms = fused_norms.provable_norms(model)
    monkeypatch.setattr(fused_norms, "rms_norm", lambda *args: used.append(1) or real(*args))
    with torch.no_grad():
        before = model(input_ids=ids).last_hidden_state
        with fused_norms.fused(norms):
            inside = model(input_ids=ids).last_hidden_state
        assert len(used) == len(norms) == 9
        after = model(input_ids=ids).last_hidden_state
    assert torch.equal(before, after) and len(used) == 9
    exact = body("qwen3", torch.float32)(input_ids=ids).last_hidden_state
    rounding = (before.float() - exact).norm()
    assert 0 < (inside.float() - exact).norm() < 1.1 * rounding, "no further from float32 than the model's own norms"


def test_restored_after_an_error():
    model = body("llama")
    norms = fused_norms.provable_norms(model)
    with pytest.raises(ZeroDivisionError), fused_norms.fused(norms):
        assert all("forward" in vars(norm) for norm in norms)
        raise ZeroDivisionError
    assert not any("forward" in vars(norm) for norm in norms)


def test_under_autocast_the_result_is_that_without(monkeypatch):
    """TRL scores under autocast: the norms run as one kernel there too, in 16 bits throughout."""
    model, ids, used = body("qwen3"), torch.arange(40)[None], []
    norms, real = fused_norms.provable_norms(model), fused_norms.rms_norm
    with torch.no_grad(), fused_norms.fused(norms):
        plain = model(input_ids=ids).last_hidden_state
        monkeypatch.setattr(fused_norms, "rms_norm", lambda *args: used.append(1) or real(*args))
        with torch.autocast("cpu", torch.bfloat16):
            inside = model(input_ids=ids).last_hidden_state
    assert len(used) == len(norms) and torch.equal(inside, plain)


def test_float32_weights_under_autocast_are_left_alone():
    with torch.autocast("cpu", torch.bfloat16):
        assert not fused_norms.provable_norms(body("qwen3", torch.float32))


def test_sharded_norms_are_found_and_give_the_same(monkeypatch):
    """FSDP2, one rank: at rest the norms' weights are shards, in a pass they are whole."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model, ids, used = tiny("qwen3").to(torch.bfloat16), torch.arange(40)[None], []
        with torch.no_grad(), fused_norms.fused(fused_norms.provable_norms(body_of(model))):
            whole = body_of(model)(input_ids=ids).last_hidden_state
        for layer in body_of(model).layers:
            fully_shard(layer)
        fully_shard(model)
        norms, real = fused_norms.provable_norms(body_of(model)), fused_norms.rms_norm
        monkeypatch.setattr(fused_norms, "rms_norm", lambda *args: used.append(1) or real(*args))
        with torch.no_grad(), fused_norms.fused(norms):
            sharded = Weights(model).body(input_ids=ids).last_hidden_state
    finally:
        dist.destroy_process_group()
    assert len(used) == len(norms) == 9
    assert torch.equal(sharded, whole)


class OddRMSNorm(nn.Module):
    """Not the plain formula: eps stands outside the root."""

    def __init__(self):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(8, dtype=torch.bfloat16)), 1e-3

    def forward(self, hidden):
        return self.weight * hidden / (hidden.float().pow(2).mean(-1, keepdim=True).sqrt() + self.eps).to(hidden.dtype)


def test_norms_that_look_alike_or_that_others_hold_are_left_alone():
    assert not fused_norms.provable_norms(OddRMSNorm())
    model = body("llama")
    hooked, wrapped = fused_norms.provable_norms(model)[:2]
    hooked.register_forward_hook(lambda *_: None)
    wrapped.forward = wrapped.forward
    assert len(fused_norms.provable_norms(model)) == 3
