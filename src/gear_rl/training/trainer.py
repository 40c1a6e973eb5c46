"""From a configuration to the trainer that `gear train` runs."""

from __future__ import annotations

import logging
import math
import os
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is marked so; our contract test watches it

import torch
from datasets import Dataset
from transformers import PrinterCallback

from gear_rl.engines import TRAINER_SETTINGS
from gear_rl.engines.ranks import Alone, Ranks
from gear_rl.engines.trl import CreditGRPOTrainer, GRPOConfig
from gear_rl.engines.trl_vllm import vllm_turns
from gear_rl.methods import method
from gear_rl.records.writer import RecordWriter
from gear_rl.tasks import Task
from gear_rl.training.config import TrainConfig
from gear_rl.training.knowledge import knowledge_for
from gear_rl.training.processes import rollouts_here
from gear_rl.training.progress import Progress
from gear_rl.training.rollouts import RunRecorder, TaskSampler
from gear_rl.training.run_callback import RunCallback
from gear_rl.training.run_folder import RunFolder
from gear_rl.training.samplers import IN_PROCESS


def build_trainer(
    config: TrainConfig,
    folder: RunFolder,
    task: Task,
    model: Any,
    tokenizer: Any,
    writer: RecordWriter | None,
    say: Progress,
    ranks: Ranks | None = None,
) -> CreditGRPOTrainer:
    """The trainer that `gear train` runs: TRL's, with the settings of `config`. `writer`: None where another process writes."""
    options = config.train
    on_cpu = model.device.type == "cpu"
    if on_cpu and model.num_parameters() < 5_000_000:
        torch.set_num_threads(1)  # measured: twice as fast as two threads at this size
    longest = task.max_turns * (task.max_turn_tokens + 8)
    ranks = ranks or Alone()
    here, part = rollouts_here(options, ranks.size)
    dr_grpo, by_vllm = config.credit == "dr_grpo", options.sampler == "vllm"
    arguments = GRPOConfig(
        output_dir=str(folder.checkpoints),
        max_steps=options.steps,
        per_device_train_batch_size=part,
        gradient_accumulation_steps=here // part,
        num_generations=options.generations,
        learning_rate=options.learning_rate,
        lr_scheduler_type=options.schedule,
        adam_beta2=0.95,
        max_completion_length=longest,
        temperature=options.temperature,
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
        **TRAINER_SETTINGS,
    )

    most = math.inf if options.record_megabytes is None else options.record_megabytes * 1e6
    chosen = method(config.credit, **config.credit_options)
    rows = task.rows("train", options.steps * options.prompts, config.seed)
    sampler = TaskSampler(task, tokenizer, options.temperature, options.precision, config.seed, options.seeded_sampling)

    def reward(**given: Any) -> list[float]:  # a function: TRL names metrics after it
        return sampler.reward(**given)

    trainer = CreditGRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=arguments,
        reward_funcs=[reward],
        train_dataset=Dataset.from_list(rows),
        sampler=sampler,
        credit=config.credit,
        credit_options=config.credit_options,
        hint="hint",
        hint_template=task.hint_template,
        teacher=options.teacher,
        teacher_every=options.teacher_every,
        teacher_decay=options.teacher_decay,
        mix_steps=options.mix_steps,
        answer="answer",
        answer_prefix=task.answer_prefix,
        knowledge=knowledge_for(chosen, task, rows[0], tokenizer, sampler, options),
        mask_budget=options.mask_budget,
        recorder=None if writer is None else RunRecorder(
            writer, tokenizer, options.record_every, most, say.line, options.report_to
        ),
        callbacks=[RunCallback(folder, say, ranks)],
    )
    sampler.open_turns = vllm_turns(trainer.vllm_generation) if by_vllm else IN_PROCESS[options.sampler]
    # A tied head is not in a checkpoint, and every resume would warn of it; checkpoints are proven whole before (run_folder).
    logging.getLogger("transformers.trainer").addFilter(lambda said: "missing keys" not in said.getMessage())
    trainer.remove_callback(PrinterCallback)  # prints every metric of every step; ours go to the folder
    return trainer
