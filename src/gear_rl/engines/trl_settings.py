"""`--set trl.NAME=VALUE`: any field of TRL's `GRPOConfig` that `gear train` does not set, checked by TRL's own fields."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from transformers.training_args import OptimizerNames
from trl import GRPOConfig

from gear_rl.errors import GearError, did_you_mean, one_line, unknown_name
from gear_rl.options import check_options

_STEPS = "train.steps: every step samples a fresh batch"
_BATCH = "train.prompts, train.generations and train.rollouts_per_pass"
_CHECKPOINTS = "train.checkpoint_every and train.keep_checkpoints"
_PROCESSES = "accelerate's configuration (docs/scaling_processes.md)"
_EVALUATION = "train.eval_rows, or `gear eval`"
_UPLOAD = "nothing: upload the run's folder `model` yourself"
INSTEAD = {
    "output_dir": "--out",
    "resume_from_checkpoint": "--resume",
    "seed": "--seed", "data_seed": "--seed",
    "max_steps": _STEPS, "num_train_epochs": _STEPS, "num_iterations": _STEPS, "steps_per_generation": _STEPS,
    "generation_batch_size": _BATCH, "per_device_train_batch_size": _BATCH, "gradient_accumulation_steps": _BATCH,
    "auto_find_batch_size": _BATCH,
    "num_generations": "train.generations",
    "learning_rate": "train.learning_rate", "lr_scheduler_type": "train.schedule", "warmup_steps": "train.warmup_steps",
    "optim": "train.optimizer", "gradient_checkpointing": "train.gradient_checkpointing",
    "max_completion_length": "train.max_turn_tokens", "temperature": "train.temperature", "top_p": "train.top_p",
    "loss_type": "train.loss_type", "beta": "train.kl", "scale_rewards": "--credit dr_grpo, which leaves the scale out",
    "use_cpu": "train.device", "bf16": "train.precision", "fp16": "train.precision",
    "save_strategy": _CHECKPOINTS, "save_steps": _CHECKPOINTS, "save_total_limit": _CHECKPOINTS,
    "save_only_model": _CHECKPOINTS,
    "report_to": "train.report_to", "use_vllm": "train.sampler", "vllm_gpu_memory_utilization": "train.vllm_memory",
    "use_transformers_continuous_batching": "train.sampler", "use_transformers_paged": "train.sampler",
    "logging_strategy": "nothing: every step is logged", "logging_steps": "nothing: every step is logged",
    "disable_tqdm": "nothing: `gear train` shows its own progress",
    "remove_unused_columns": "nothing: tasks need their columns", "dataloader_pin_memory": "nothing: it is off",
    "model_init_kwargs": "--model and train.precision", "trust_remote_code": "--model with a model of transformers' own",
    "reward_weights": "the task, which gives one reward", "multi_objective_aggregation": "the task, which gives one reward",
    "load_best_model_at_end": _EVALUATION, "hub_token": "nothing: a secret would be stored with the run",
    **dict.fromkeys(("do_train", "do_eval", "do_predict", "num_generations_eval"), _EVALUATION),
    **dict.fromkeys(("local_rank", "fsdp", "fsdp_config", "deepspeed", "accelerator_config", "parallelism_config",
                     "ddp_backend", "ds3_gather_for_generation"), _PROCESSES),
}  # fmt: skip
"""Fields that `gear train` sets → what to use in their place."""
SAMPLING = (
    "top_k", "min_p", "repetition_penalty", "generation_kwargs", "cache_implementation", "chat_template_kwargs",
    "transformers_continuous_batching_config", "max_tool_calling_iterations", "vllm_structured_outputs_regex",
)  # fmt: skip
"""Fields of TRL's own sampling, which a task's episodes do not go through."""

CHOICES = {"importance_sampling_level": ("token", "sequence")}
"""Of fields whose values TRL looks at late."""


def refuse_trl_settings(values: Mapping[str, Any], by_vllm: bool) -> None:
    """Raise unless every name is a field of `GRPOConfig` that is free, with a value of its type."""
    for name in values:
        if name not in GRPOConfig.__dataclass_fields__:
            guess = did_you_mean(name, GRPOConfig.__dataclass_fields__)
            raise GearError(f"trl.{name}: TRL's GRPOConfig has no such field.{guess}")
        if (instead := _instead(name)) is not None:
            raise GearError(f"trl.{name}: `gear train` sets it. Use instead: {instead}.")
        if name in SAMPLING:
            raise GearError(
                f"trl.{name} is for TRL's own sampling, and `gear train` plays the task's episodes itself: use "
                "train.temperature, train.top_p and train.sampler, or CreditGRPOTrainer in a script (docs/from_trl.md)."
            )
        if name.startswith("vllm_") and not by_vllm:
            raise GearError(f"trl.{name}: only train.sampler=vllm uses it.")
        if name == "use_liger_kernel" and values[name] and find_spec("liger_kernel") is None:
            raise GearError("trl.use_liger_kernel: liger-kernel is not installed: pip install liger-kernel.")
        if name in CHOICES and values[name] not in CHOICES[name]:
            raise GearError(f"trl.{name}={values[name]!r}: must be one of {', '.join(CHOICES[name])}.")
    check_options(GRPOConfig, values, "trl")


def is_free(name: str) -> bool:
    """Whether `name` is a field of `GRPOConfig` that `trl.NAME` may set, if the run's sampler uses it."""
    return name in GRPOConfig.__dataclass_fields__ and _instead(name) is None and name not in SAMPLING


def _instead(name: str) -> str | None:
    """What to use in place of a field that `gear train` sets."""
    if name.startswith(("eval_", "per_device_eval", "metric_for")):
        return _EVALUATION
    return INSTEAD.get(name) or (_UPLOAD if name.startswith(("hub_", "push_to_hub")) else None)


def refuse_optimizer(name: str) -> None:
    known = [str(each.value) for each in OptimizerNames]
    if name not in known:
        raise unknown_name("optimizer in train.optimizer", name, known)


def trl_config(**settings: Any) -> GRPOConfig:
    """`GRPOConfig(**settings)`, whose own refusals are errors that a user can read."""
    try:
        return GRPOConfig(**settings)
    except (ValueError, TypeError, ImportError) as error:
        raise GearError(f"TRL does not take these settings: {one_line(error)}") from error
