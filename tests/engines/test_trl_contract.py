"""Contracts: every private part of TRL, transformers and accelerate that the engine uses, as it is in the tested versions."""

from __future__ import annotations

import inspect
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from datasets import Dataset
from trl import GRPOTrainer
from trl.models import unwrap_model_for_generation
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict
from trl_setups import build, own_rollouts

from gear_rl.cli.main import main
from gear_rl.engines import versions
from gear_rl.engines.trl_support import will_be_sharded
from gear_rl.engines.versions import check_version
from gear_rl.errors import GearError
from gear_rl.methods import method


@pytest.fixture
def data(workshop):
    return Dataset.from_list(workshop.rows("train", 32))


def test_contract_of_the_seam(tmp_path, workshop, model_and_tokenizer, data):
    """Fails loudly when a TRL release moves what we stand on. See src/gear_rl/engines/trl.py."""
    for name, parameters in {
        "_generate": ["prompts"],
        "_generate_and_score_completions": ["inputs"],
        "_calculate_rewards": ["inputs", "prompts", "completions", "completion_ids_list"],
        "_tokenize_prompts": ["prompts"],
        "_save_checkpoint": ["model", "trial"],
        "_load_optimizer_and_scheduler": ["checkpoint"],
        "_get_output_dir": ["trial"],
        "_compute_loss": ["model", "inputs"],
        "get_off_policy_mask": [
            "advantages", "per_token_logps", "sampling_per_token_logps", "mask", "off_policy_threshold",
        ],
        "get_gamma_weights": [
            "advantages", "log_ratio_per_token", "mask", "importance_sampling_ratio", "k_pos", "lambda_pos", "k_neg",
            "lambda_neg",
        ],
        "_get_per_token_logps_and_entropies": [
            "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy", "compute_aux_loss",
            *("pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles",
              "image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids"),
        ],
    }.items():  # fmt: skip
        found = [p for p in inspect.signature(getattr(GRPOTrainer, name)).parameters if p != "self"]
        assert found == parameters, f"TRL moved {name}: {found}"
    assert "dim() == 1" in inspect.getsource(GRPOTrainer._compute_loss), "TRL no longer takes (B, T) advantages"
    trainer = build(
        GRPOTrainer,
        tmp_path,
        workshop,
        model_and_tokenizer,
        data,
        rollout_func=own_rollouts(workshop, model_and_tokenizer[1]),
    )
    trainer.model.train()
    batch = trainer._generate_and_score_completions([row for row in data.to_list()[:2] for _ in range(4)])
    assert batch["advantages"].shape == (8,)
    assert {
        "prompt_ids",
        "prompt_mask",
        "completion_ids",
        "completion_mask",
        "tool_mask",
        "num_items_in_batch",
    } <= batch.keys()
    for name in (
        "_metrics", "_tokenizer", "temperature", "num_generations", "environment_factories", "reward_weights",
        "reward_func_names", "model_wrapped", "_is_vlm", "accelerator", "train_dataset",
    ):  # fmt: skip
        assert hasattr(trainer, name), name
    assert {"steps_per_generation", "per_device_train_batch_size"} <= vars(trainer.args).keys()


def test_a_rollout_function_is_asked_as_the_sampler_is(tmp_path, workshop, model_and_tokenizer, data):
    """TRL hands it the prompts and itself; `_generate` returns completion ids in second place, before any truncation."""
    asked = []

    def rollouts(prompts, trainer):
        asked.append((prompts, trainer))
        return own_rollouts(workshop, model_and_tokenizer[1])(prompts, trainer)

    trainer = build(GRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, rollout_func=rollouts)
    prompts = [row["prompt"] for row in data.to_list()[:2]]
    generated = trainer._generate(prompts)
    assert asked[0] == (prompts, trainer)
    assert all(isinstance(ids, list) and all(isinstance(i, int) for i in ids) for ids in generated[1])


def test_accelerate_says_how_the_model_will_be_sharded():
    assert isinstance(Accelerator.is_fsdp2, property)
    assert isinstance(AcceleratorState.deepspeed_plugin, property)
    assert list(inspect.signature(unwrap_model_for_generation).parameters)[:2] == ["model", "accelerator"]


def test_kinds_of_sharding_that_cannot_be_scored_are_an_error_for_methods_that_run_the_model_alone():
    def launched(kind: DistributedType) -> SimpleNamespace:
        return SimpleNamespace(distributed_type=kind, is_fsdp2=False, state=SimpleNamespace(deepspeed_plugin=None))

    for kind in (DistributedType.FSDP, DistributedType.MEGATRON_LM, DistributedType.XLA):
        with pytest.raises(GearError, match="is not supported"):
            will_be_sharded(launched(kind), method("gear"))
        assert will_be_sharded(launched(kind), method("grpo")) == (kind == DistributedType.FSDP)


@pytest.mark.parametrize("found", ["1.15.2", "1.17.0", "2.0", "0.9.9"])
def test_another_version_is_named_with_the_tested_one(found):
    with pytest.raises(GearError, match=rf"trl {re.escape(found)} is installed.*tested with trl 1\.16\.\* only"):
        check_version("trl", found)


def test_gear_train_says_so_before_anything_is_loaded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(versions, "version", lambda name: "1.17.0")
    for module in ("gear_rl.engines.trl", "gear_rl.training.trainer"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert main(["train", "--out", str(tmp_path / "run"), "--set", "train.steps=1"]) == 2
    said = capsys.readouterr().err
    assert "trl 1.17.0 is installed" in said and "pip install 'trl==1.16.*'" in said and "Traceback" not in said


def test_contract_of_the_loss():
    """Fails loudly when a TRL release moves what the term stands on."""
    assert [*inspect.signature(GRPOTrainer._compute_loss).parameters] == ["self", "model", "inputs"]
    assert "current_gradient_accumulation_steps / self.args.steps_per_generation" in inspect.getsource(GRPOTrainer)
    carried = {"ids": torch.arange(4)[:, None], "rows": [[0], [1], [2], [3]], "count": torch.tensor(7)}
    for part in split_tensor_dict(shuffle_sequence_dict(carried), 2):
        assert part["rows"] == part["ids"].tolist() and int(part["count"]) == 7
