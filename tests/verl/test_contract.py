"""Contracts: every private part of verl that the engine uses, as it is in the tested version."""

from __future__ import annotations

import inspect

import pytest

from gear_rl.engines.verl.versions import check_version
from gear_rl.errors import GearError

try:
    check_version()
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
