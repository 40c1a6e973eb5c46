"""Liger's kernels: `credit="grpo"` trains what TRL trains with them, and `gear` trains. Needs a GPU and liger-kernel."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from datasets import Dataset
from trl import GRPOTrainer
from trl_setups import build

from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.models import load_model

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or find_spec("liger_kernel") is None, reason="needs a GPU and liger-kernel"
)
SHORT = dict(max_completion_length=4, per_device_train_batch_size=4, num_generations=2, max_steps=2, use_cpu=False)


def trained(kind, folder, workshop, **credit):
    torch.manual_seed(0)
    pair = load_model(workshop.default_model(), "cuda")
    before = {name: p.detach().clone() for name, p in pair[0].named_parameters()}
    rows = Dataset.from_list(workshop.rows("train", 16))
    trainer = build(kind, folder, workshop, pair, rows, use_liger_kernel=True, **SHORT, **credit)
    trainer.train()
    after = dict(trainer.model.named_parameters())
    assert any("liger" in str(part.forward).lower() for part in trainer.model.modules()), "its kernels are in the model"
    return before, after, trainer


def test_grpo_with_liger_is_trl_with_liger(tmp_path, workshop):
    before, theirs, _ = trained(GRPOTrainer, tmp_path, workshop)
    _, ours, _ = trained(CreditGRPOTrainer, tmp_path, workshop, credit="grpo", hint=None)
    assert any(not torch.equal(before[name], ours[name]) for name in ours)
    assert all(torch.allclose(theirs[name], ours[name], atol=1e-6) for name in ours)


def test_gear_trains_with_liger(tmp_path, workshop):
    before, after, trainer = trained(CreditGRPOTrainer, tmp_path, workshop, credit="gear")
    assert any(not torch.equal(before[name], after[name]) for name in after)
    assert trainer.state.log_history[0]["grad_norm"] > 0
