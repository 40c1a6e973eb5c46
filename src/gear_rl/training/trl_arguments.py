"""From a configuration to TRL's: `GRPOConfig`, and LoRA's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gear_rl.engines import TRAINER_SETTINGS
from gear_rl.engines.trl_settings import refuse_optimizer, refuse_trl_settings, trl_config
from gear_rl.tasks import Task
from gear_rl.training.config import TrainConfig
from gear_rl.training.processes import rollouts_here


def trl_arguments(config: TrainConfig, folder: Path, task: Task, on_cpu: bool, processes: int = 1) -> Any:
    """The `GRPOConfig` of a run; an error where TRL would not take it. `folder`: of checkpoints."""
    options, dr_grpo = config.train, config.credit == "dr_grpo"
    by_vllm = options.sampler == "vllm"
    refuse_trl_settings(config.trl, by_vllm)
    refuse_optimizer(options.optimizer)
    here, part = rollouts_here(options, processes)
    assert options.learning_rate is not None  # `TrainConfig` fills it in
    warmed = "constant_with_warmup" if options.schedule == "constant" and options.warmup_steps else options.schedule
    ours = dict(
        output_dir=str(folder),
        max_steps=options.steps,
        per_device_train_batch_size=part,
        gradient_accumulation_steps=here // part,
        num_generations=options.generations,
        learning_rate=options.learning_rate,
        lr_scheduler_type=warmed,
        warmup_steps=options.warmup_steps,
        optim=options.optimizer,
        adam_beta2=0.95,
        gradient_checkpointing=options.gradient_checkpointing,
        max_completion_length=task.max_turns * (task.max_turn_tokens + 8),
        temperature=options.temperature,
        top_p=options.top_p,
        loss_type="dr_grpo" if dr_grpo else options.loss_type,
        scale_rewards="none" if dr_grpo else "group",
        beta=options.kl,
        seed=config.seed,
        use_cpu=on_cpu,
        bf16=options.precision == "bfloat16",
        save_strategy="steps",
        save_steps=options.checkpoint_every,
        save_total_limit=options.keep_checkpoints,
        logging_strategy="steps",
        report_to=options.report_to,
        use_vllm=by_vllm,
        vllm_gpu_memory_utilization=options.vllm_memory or 0.3,
    )
    return trl_config(**{**TRAINER_SETTINGS, **ours, **config.trl})


def lora_config(config: TrainConfig) -> Any:
    """PEFT's, or None: all weights are trained."""
    options = config.train
    if options.lora_rank is None:
        return None
    from peft import LoraConfig

    targets: Any = options.lora_targets
    return LoraConfig(
        r=options.lora_rank,
        lora_alpha=options.lora_alpha or 2 * options.lora_rank,
        target_modules=targets if targets == "all-linear" else [name.strip() for name in targets.split(",")],
        task_type="CAUSAL_LM",
    )
