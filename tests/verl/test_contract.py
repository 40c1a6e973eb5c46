"""Contracts: every private part of verl that the engine uses, as it is in the tested version."""

from __future__ import annotations

import inspect

import pytest

from gear_rl.engines.versions import check_version
from gear_rl.errors import GearError

try:
    check_version("verl")
except GearError as error:
    pytest.skip(f"{error} `make verl-smoke` makes it and runs these.", allow_module_level=True)
import verl.trainer.ppo.v1.trainer_base as trainer_base
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead


def parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("_build_replay_buffer", ["self"]),
        ("_init_dataloader", ["self"]),
        ("_compute_old_log_prob", ["self", "batch", "metrics"]),
        ("_compute_advantage", ["self", "batch", "metrics"]),
        ("_update_actor", ["self", "batch", "metrics"]),
        ("_load_checkpoint", ["self"]),
        ("_save_checkpoint", ["self"]),
    ],
)
def test_the_trainer_has_the_methods_that_are_extended(name, wanted):
    assert parameters(getattr(PPOTrainerSync, name)) == wanted


def test_the_trainer_calls_them_in_the_order_that_credit_needs():
    source = inspect.getsource(trainer_base.PPOTrainer._step_once)
    order = ["_balance_batch(", "_compute_old_log_prob(", "_compute_advantage(", "_update_actor("]
    places = [source.index(call) for call in order]
    assert places == sorted(places)
    setup = inspect.getsource(trainer_base.PPOTrainer._setup)
    assert setup.index("_init_dataloader()") < setup.index(
        "create_resource_pool()"
    )  # data is checked before a worker starts


def test_any_trainer_mode_but_sync_would_be_asynchronous():
    assert 'ReplayBuffer if self.trainer_mode == "sync"' in inspect.getsource(PPOTrainerSync._build_replay_buffer)


def test_old_log_probs_carry_extra_info_to_the_workers_and_every_field_of_the_batch():
    source = inspect.getsource(PPOTrainerSync._compute_old_log_prob)
    assert "batch.extra_info.update(" in source and "actor_rollout_wg.compute_log_prob(batch)" in source
    assert '["entropy", "log_probs", "response_mask"]' in source


def test_the_kl_to_the_reference_is_a_metric_of_the_update():
    from verl.workers.utils import losses

    assert 'rename_dict(output["metrics"], "actor/")' in inspect.getsource(PPOTrainerSync._update_actor)
    assert 'metrics["kl_loss"]' in inspect.getsource(losses)


def test_advantages_are_read_and_written_under_these_names():
    source = inspect.getsource(PPOTrainerSync._compute_advantage)
    for field in ("uid", "response_mask", "rm_scores", "advantages", "returns"):
        assert f'"{field}"' in source


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("forward_step", ["self", "micro_batch", "loss_function", "forward_only"]),
        ("prepare_model_inputs", ["self", "micro_batch"]),
        ("prepare_model_outputs", ["self", "output", "output_args", "micro_batch", "logits_processor_func"]),
        ("optimizer_step", ["self"]),
    ],
)
def test_the_engine_has_the_methods_that_are_extended_or_called(name, wanted):
    assert parameters(getattr(FSDPEngineWithLMHead, name)) == wanted


def test_the_engine_keeps_its_precision_and_gives_all_ranks_the_same_number_of_passes():
    assert "_autocast_dtype" in inspect.getsource(FSDPEngineWithLMHead.__init__)
    assert "same_micro_num_in_dp=True" in inspect.getsource(FSDPEngineWithLMHead.forward_backward_batch)
    for name in ("save_checkpoint", "load_checkpoint"):
        assert parameters(getattr(FSDPEngineWithLMHead, name))[1] == "local_path"


def test_a_vendor_entry_goes_before_the_devices_own():
    from verl.workers.engine import EngineRegistry

    source = inspect.getsource(EngineRegistry.get_engine_cls)
    assert source.index("vendor_key in registry") < source.index("device in registry:")
    assert parameters(EngineRegistry.register) == ["model_type", "backend", "device", "vendor"]


def test_all_is_registered_when_verl_loads_the_package():
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.workers.engine import EngineRegistry

    from gear_rl.engines.verl.registration import register

    register()
    register()  # twice is once
    from gear_rl.engines.verl.engine import CreditFSDPEngine

    assert trainer_base.get_trainer_cls("gear").__name__ == "CreditTrainer"
    assert _agent_loop_registry["gear_task"]["_target_"] == "gear_rl.engines.verl.agent_loop.TaskLoop"
    assert EngineRegistry._engines["language_model"]["fsdp2"]["cuda", "nvidia"] is CreditFSDPEngine


def test_agent_loops_tokenise_prompts_by_the_builder_that_hints_use():
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    assert "continuous_token_builder.build_initial_tokens(" in inspect.getsource(AgentLoopBase.ct_build_initial_tokens)
    assert {"tokenizer", "hf_model_type", "chat_template_kwargs", "processor"} <= set(
        parameters(create_continuous_token_builder)
    )
    assert {"prompt_ids", "response_ids", "response_mask", "reward_score", "extra_fields"} <= set(
        AgentLoopOutput.model_fields
    )


def test_the_data_s_columns_travel_with_each_rollout():
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    source = inspect.getsource(AgentLoopWorkerTQ.__ray_metadata__.modified_class._agent_loop_postprocess)
    assert "field.update(kwargs)" in source and 'f"{uid}_{session_id}_{i}"' in source


def test_batches_are_read_from_the_queue_and_written_to_it_by_key():
    import transfer_queue as tq

    assert {"keys", "partition_id", "select_fields"} <= set(parameters(tq.kv_batch_get))
    assert {"keys", "partition_id", "fields"} <= set(parameters(tq.kv_batch_put))
    assert {"keys", "tags", "partition_id", "extra_info"} <= set(tq.KVBatchMeta.__dataclass_fields__)


def test_responses_are_cut_out_of_sequences_and_nested_again():
    import torch
    from verl.workers.utils.padding import response_from_nested, response_to_nested

    masks = [torch.tensor([1, 0, 1]), torch.tensor([1, 1])]
    mask = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
    # sequences of prompts of 2 and 3 tokens; what predicts token j + 1 stands at j
    sequences = [torch.tensor([9.0, 1, 2, 3, 9]), torch.tensor([9.0, 9, 4, 5, 9])]
    nested = torch.nested.as_nested_tensor(sequences, layout=torch.jagged)
    assert [row.tolist() for row in response_from_nested(nested, mask).unbind()] == [[1, 2, 3], [4, 5]]
    padded = torch.tensor([[1.0, 2, 3], [4, 5, 0]])
    assert [row.tolist() for row in response_to_nested(padded, mask).unbind()] == [[1, 2, 3], [4, 5]]


def test_data_without_tensors_travels_with_a_batch():
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    data = TensorDict({}, batch_size=2)
    tu.assign_non_tensor_data(data, "gear_request", "{}")
    assert tu.get_non_tensor_data(data=data, key="gear_request", default=None) == "{}"
    assert tu.get_non_tensor_data(data=data, key="other", default=None) is None


def test_steps_count_from_1_and_name_the_checkpoints():
    fit = inspect.getsource(trainer_base.PPOTrainer.fit)
    assert fit.index("self.global_steps += 1") < fit.index("while ")
    assert 'f"global_step_{self.global_steps}"' in inspect.getsource(trainer_base.PPOTrainer._save_checkpoint)
    load = inspect.getsource(trainer_base.PPOTrainer._load_checkpoint)
    assert "self.global_steps = 0" in load and 'resume_mode == "resume_path"' in load


def test_the_trainer_has_its_data_and_tokenizer_where_they_are_looked_for():
    from verl.utils.dataset.rl_dataset import RLHFDataset

    source = inspect.getsource(RLHFDataset)
    assert "self.dataframe: datasets.Dataset" in source and "self.prompt_key = " in source
    base = inspect.getsource(trainer_base.PPOTrainer)
    for name in ("train_dataset", "tokenizer", "processor", "config"):
        assert f"self.{name}" in base


def test_agent_loops_have_what_ours_uses():
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase

    source = inspect.getsource(AgentLoopBase.__init__)
    for name in ("config", "rollout_config", "server_manager", "tokenizer", "apply_chat_template_kwargs"):
        assert f"self.{name} = " in source


def test_tools_are_loaded_by_the_function_that_agent_loops_use():
    from verl.tools.tool_registry import load_all_tools
    from verl.utils.import_utils import resolve_config_path

    assert {"tool_config_path", "function_tool_path"} <= set(parameters(load_all_tools))
    assert len(parameters(resolve_config_path)) >= 1


def test_too_few_gpus_are_told_in_these_words():
    from verl.single_controller.ray.base import ResourcePoolManager

    from gear_rl.engines.verl.__main__ import TOO_FEW_GPUS

    source = inspect.getsource(ResourcePoolManager._check_resource_available)
    assert f'f"{TOO_FEW_GPUS} ' in source and "raise ValueError" in source


def test_filled_up_batches_are_marked():
    from verl.trainer.ppo import padding_utils

    assert "is_padding=True" in inspect.getsource(padding_utils.construct_minimal_padding_template)


def test_the_entry_point_can_be_called_with_a_configuration():
    from verl.trainer.main_ppo import main

    assert parameters(main.__wrapped__) == ["config"]


def test_the_configuration_lies_where_it_is_looked_for():
    from gear_rl.engines.verl.__main__ import compose

    config = compose(["trainer.v1.trainer_mode=gear", "+gear.credit=grpo"])
    assert config.gear.credit == "grpo" and config.algorithm.adv_estimator is not None
    for option in (
        "rollout.n",
        "actor.strategy",
        "actor.fsdp_config",
        "model.path",
        "rollout.agent.default_agent_loop",
    ):
        place = config.actor_rollout_ref
        for part in option.split("."):
            assert part in place, option
            place = place[part]
