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

from gear_rl.engines.ranks import Alone, Ranks
from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.engines.trl_vllm import vllm_turns
from gear_rl.errors import GearError
from gear_rl.methods import method
from gear_rl.records.writer import RecordWriter
from gear_rl.tasks import Task
from gear_rl.tasks.base import instructed
from gear_rl.training.config import TrainConfig
from gear_rl.training.knowledge import knowledge_for
from gear_rl.training.progress import Progress
from gear_rl.training.rollouts import RunRecorder, TaskSampler
from gear_rl.training.run_callback import RunCallback
from gear_rl.training.run_folder import RunFolder
from gear_rl.training.samplers import IN_PROCESS
from gear_rl.training.trl_arguments import lora_config, trl_arguments


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
    ranks = ranks or Alone()
    by_vllm = options.sampler == "vllm"
    arguments = trl_arguments(config, folder.checkpoints, task, on_cpu, ranks.size)
    most = math.inf if options.record_megabytes is None else options.record_megabytes * 1e6
    chosen = method(config.credit, **config.credit_options)
    rows = instructed(task.rows("train", options.steps * options.prompts, config.seed), options.system_prompt)
    sampler = TaskSampler(
        task, tokenizer, options.temperature, options.precision, config.seed, options.seeded_sampling, options.top_p
    )
    if lora := lora_config(config):
        torch.manual_seed(config.seed)  # adapters begin at random

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
        peft_config=lora,
        callbacks=[RunCallback(folder, say, ranks)],
    )
    if lora and not trainer.weights.ready:
        raise GearError("train.lora_rank: adapters cannot be merged where weights are sharded. Use DDP, or ZeRO-2 at most.")
    sampler.open_turns = vllm_turns(trainer.vllm_generation) if by_vllm else IN_PROCESS[options.sampler]
    # A tied head is not in a checkpoint, and every resume would warn of it; checkpoints are proven whole before (run_folder).
    logging.getLogger("transformers.trainer").addFilter(lambda said: "missing keys" not in said.getMessage())
    trainer.remove_callback(PrinterCallback)  # prints every metric of every step; ours go to the folder
    return trainer
