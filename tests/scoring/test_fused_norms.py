"""RMS norms in one kernel: only those that are proven to be plain, and only for the length of a pass."""

from __future__ import annotations

import pytest
import torch
from tiny_models import tiny
from torch import nn

from gear_rl.scoring import fused_norms
from gear_rl.scoring.body import body_of


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


def test_restored_after_an_error_and_untouched_under_autocast():
    model = body("llama")
    norms = fused_norms.provable_norms(model)
    with pytest.raises(ZeroDivisionError), fused_norms.fused(norms):
        assert all("forward" in vars(norm) for norm in norms)
        raise ZeroDivisionError
    with torch.autocast("cpu", torch.bfloat16), fused_norms.fused(norms):
        assert not any("forward" in vars(norm) for norm in norms)
    assert not any("forward" in vars(norm) for norm in norms)


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
