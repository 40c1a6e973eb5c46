"""Test only: a verl run on a CPU-only Ray cluster with the embedded model, through verl's own entry point."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "src/gear_rl/tasks/workshop/model"


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu,gear_rl.engines.verl",
        "VERL_PLATFORM": "cpu",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests/helpers")]),
        "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }  # fmt: skip


def write_data(folder: Path, jobs: int = 4) -> None:
    import datasets

    from gear_rl.engines.verl.data import write

    datasets.disable_progress_bars()
    folder.mkdir(parents=True, exist_ok=True)
    write("workshop", {"steps": jobs}, "train", 1024, 0, folder / "train.parquet")
    write("workshop", {"steps": jobs}, "test", 16, 0, folder / "test.parquet")


def write_mixed_data(folder: Path) -> None:
    """Orders of four and of six jobs in turn, for a task of six: prompts and rollouts of unequal length in each batch."""
    import datasets

    write_data(folder, jobs=6)
    six = datasets.Dataset.from_parquet(str(folder / "train.parquet"))
    write_data(folder, jobs=4)
    four = datasets.Dataset.from_parquet(str(folder / "train.parquet"))
    datasets.interleave_datasets([four, six]).to_parquet(str(folder / "train.parquet"))


def command(
    folder: Path,
    *overrides: str,
    workers: int = 1,
    steps: int = 3,
    jobs: int = 4,
    problems: int = 4,
    rollouts: int = 4,
    module: str = "verl.trainer.main_ppo",
) -> list[str]:
    """One optimizer step a training step. Data and checkpoints lie in `folder`."""
    actor, rollout, model = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))
    return [
        sys.executable, "-m", module, "algorithm.adv_estimator=grpo",
        f"data.train_files={folder}/train.parquet", f"data.val_files={folder}/test.parquet",
        f"data.train_batch_size={problems}",
        "data.max_prompt_length=64", "data.max_response_length=64", "data.dataloader_num_workers=0", "data.shuffle=False",
        "data.filter_overlong_prompts=False",
        f"{model}.path={MODEL}", f"{model}.use_remove_padding=False", f"{model}.enable_gradient_checkpointing=False",
        f"+{model}.override_config.attn_implementation=sdpa",
        f"{actor}.strategy=fsdp2", f"{actor}.ppo_mini_batch_size={problems}", f"{actor}.ppo_micro_batch_size_per_gpu=8",
        f"{actor}.use_torch_compile=False", f"{actor}.fsdp_config.model_dtype=fp32", f"{actor}.fsdp_config.dtype=float32",
        f"{actor}.fsdp_config.use_torch_compile=False",
        f"+{actor}.fsdp_config.mixed_precision={{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}}",
        f"{actor}.optim.lr=6e-4", f"{actor}.use_kl_loss=False",
        f"{rollout}.name=hf", f"{rollout}.n={rollouts}", f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.log_prob_micro_batch_size_per_gpu=8", f"{rollout}.agent.num_workers=1",
        f"{rollout}.free_cache_engine=False",
        "reward.num_workers=1", f"trainer.n_gpus_per_node={workers}", "trainer.nnodes=1", "trainer.device=cpu",
        "trainer.logger=[console]", "trainer.val_before_train=False", "trainer.test_freq=-1", "trainer.save_freq=-1",
        f"trainer.default_local_dir={folder}/checkpoints", f"trainer.total_training_steps={steps}",
        "trainer.v1.trainer_mode=gear", "ray_kwargs.ray_init.num_cpus=16", f"+ray_kwargs.ray_init.num_gpus={workers}",
        "+ray_kwargs.ray_init.include_dashboard=False", "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "+gear.task.name=workshop", f"+gear.task.steps={jobs}", *overrides,
    ]  # fmt: skip
