"""`gear train` without the command line: configuration → trainer → run folder, interruptible and exactly resumable."""

from __future__ import annotations

import json
import logging
import os
import platform
import signal
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gear_rl.errors import GearError, unknown_name
from gear_rl.files import write_json
from gear_rl.methods import method
from gear_rl.models import choose_device, load_model
from gear_rl.signals import from_verdicts as verdict_signals
from gear_rl.tasks import Task, make_task
from gear_rl.tasks.base import check_rows
from gear_rl.training.config import TrainConfig
from gear_rl.training.run_folder import RunFolder


def prepare(config: TrainConfig) -> tuple[Task, str]:
    """Everything that can be refused is refused here, before a model is loaded or a folder made."""
    task = make_task(config.task, **config.task_options)
    chosen = method(config.credit, **config.credit_options)
    model = config.model or task.default_model()
    if model is None:
        raise GearError(f"task {config.task!r} brings no model of its own: give one with --model.")
    if chosen.hint == "other" and config.train.prompts < 2:
        raise GearError(f"{config.credit} needs at least two prompts a step (train.prompts).")
    choose_device(config.train.device)
    _check_tracker(config.train.report_to)
    rows = check_rows(task.rows("train", config.train.steps * config.train.prompts, config.seed), "train")
    for i, row in enumerate(rows):
        if chosen.hint in ("own", "other") and not str(row.get("hint") or "").strip():
            raise GearError(
                f"task {config.task!r}, train row {i}: no ground truth for the hint that {config.credit} needs."
            )
    verdict_signals.refuse_what_the_task_cannot_say(task, config.task, rows[0], chosen)
    if config.train.mix_steps is not None and not hasattr(chosen.options, "mix"):
        raise GearError(f"train.mix_steps: {config.credit} has no `mix` that could fall to 0.")
    return task, model


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("gear-rl", "torch", "transformers", "trl", "accelerate", "datasets", "peft", "numpy", "safetensors"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def run(config: TrainConfig, folder: RunFolder, task: Task, model_path: str, say: Any) -> int:
    """Train, or go on training. `say` is told what happens (`gear_rl.training.progress`). Returns the exit code."""
    from gear_rl.evaluation.evaluate import evaluate
    from gear_rl.records.record import RecordWriter
    from gear_rl.sampling.sampler import Sampler

    options = config.train
    device = choose_device(options.device)
    checkpoint = folder.last_complete_checkpoint()
    step = int(checkpoint.name.rsplit("-", 1)[1]) if checkpoint else 0
    done = json.loads(folder.evaluation.read_text()) if folder.evaluation.exists() else {}
    if "after" in done:
        say.line(f"{folder.path} is finished already.")
        say.summary(done, folder)
        return 0
    write_json(folder.versions, versions())
    folder.cut_metrics_after(step)
    model, tokenizer = load_model(model_path, device)
    test_rows = task.rows("test", options.eval_rows)
    if "before" not in done:
        say.line(f"evaluating on {len(test_rows)} unseen problems …")
        done["before"] = evaluate(Sampler(options.precision)(model), tokenizer, task, test_rows)
        write_json(folder.evaluation, done)
    header = {
        "task": config.task,
        "model": config.model or "embedded",
        "method": config.credit,
        "options": config.credit_options,
    }
    recorder = RecordWriter(folder.rollouts, header)
    recorder.truncate_after(step - 1)  # rollouts of step s were sampled before step s was taken
    trainer = build_trainer(config, folder, task, model, tokenizer, recorder, say)
    began, interrupt = time.time(), signal.getsignal(signal.SIGINT)
    try:
        with say.progress(options.steps, step):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except Exception as error:
        # A full disk, as the two writers of a checkpoint put it: safetensors, and torch.save.
        if "I/O error" in str(error) or "PytorchStreamWriter" in str(error):
            raise GearError(
                f"a checkpoint could not be written: {str(error).splitlines()[0]}. The one before it is whole. "
                f"Free some space, then: gear train --resume {folder.path}"
            ) from error
        raise
    finally:
        signal.signal(signal.SIGINT, interrupt)
    if trainer.state.global_step < options.steps:
        say.line(
            f"interrupted after step {trainer.state.global_step}; saved. Go on with: gear train --resume {folder.path}"
        )
        return 130
    say.line(f"trained {options.steps - step} steps in {time.time() - began:.0f} s")
    done["after"] = evaluate(Sampler(options.precision)(trainer.model), tokenizer, task, test_rows)
    scratch = folder.path / "model.tmp"
    trainer.model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    scratch.replace(folder.model)
    write_json(folder.evaluation, done)
    say.summary(done, folder)
    return 0


def _check_tracker(name: str) -> None:
    if name == "none":
        return
    from transformers.integrations.integration_utils import (
        INTEGRATION_TO_CALLBACK,
        get_available_reporting_integrations,
    )

    if name not in INTEGRATION_TO_CALLBACK:
        raise unknown_name("tracker in train.report_to", str(name), ("none", *INTEGRATION_TO_CALLBACK))
    if name not in get_available_reporting_integrations():
        raise GearError(f"train.report_to={name}: {name} is not installed.")


def build_trainer(
    config: TrainConfig, folder: RunFolder, task: Task, model: Any, tokenizer: Any, recorder: Any, say: Any
) -> Any:
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is marked so; our contract test watches it
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig

    from gear_rl.chat.templates import tokenized_prompts
    from gear_rl.engines.trl import CreditGRPOTrainer
    from gear_rl.evaluation.evaluate import judge_all
    from gear_rl.sampling.play import Replies, play
    from gear_rl.sampling.sampler import Sampler
    from gear_rl.tasks.base import tools_of
    from gear_rl.training.run_callback import RunCallback

    options = config.train
    on_cpu = model.device.type == "cpu"
    if on_cpu and model.num_parameters() < 5_000_000:
        torch.set_num_threads(1)  # measured: twice as fast as two threads at this size
    longest = task.max_turns * (task.max_turn_tokens + 8)
    part = options.rollouts_per_pass or options.prompts * options.generations
    dr_grpo = config.credit == "dr_grpo"
    arguments = GRPOConfig(
        output_dir=str(folder.checkpoints),
        max_steps=options.steps,
        per_device_train_batch_size=part,
        gradient_accumulation_steps=options.prompts * options.generations // part,
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
        gradient_checkpointing=False,
        save_strategy="steps",
        save_steps=options.checkpoint_every,
        save_total_limit=2,  # the one being written, and the one to fall back to
        logging_steps=1,
        logging_strategy="steps",
        report_to=options.report_to,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )

    replies, sampler = Replies(tokenizer), Sampler(options.precision)

    def sample(prompts: list, trainer: Any) -> dict[str, Any]:
        policy = sampler(trainer.accelerator.unwrap_model(trainer.model))
        played = play(policy, tokenizer, task, trainer.rows, temperature=options.temperature, replies=replies)
        return {
            "prompt_ids": [p.prompt_ids for p in played],
            "completion_ids": [p.completion_ids for p in played],
            "env_mask": [p.action_mask for p in played],
            "logprobs": None,
            "actions": [p.action_mask for p in played],
            "verdict": judge_all(tokenizer, task, trainer.rows, played),
        }

    def reward(verdict: list, log_metric: Any, **_: Any) -> list[float]:
        log_metric("success", sum(v.success for v in verdict) / len(verdict))
        log_metric("malformed", sum(v.malformed for v in verdict) / len(verdict))
        for name in verdict[0].channels:
            log_metric(f"channels/{name}", sum(v.channels.get(name, 0.0) for v in verdict) / len(verdict))
        return [v.reward for v in verdict]

    as_hint: Any = getattr(task, "as_hint", None)  # a task whose model reads hints of one form only

    def retold(row: dict, sibling: list[int], feedback: str | None) -> str:
        return as_hint(tokenizer.decode(sibling))

    chosen = method(config.credit, **config.credit_options)
    known = verdict_signals.known_signals(task, task.rows("train", 1, config.seed)[0], chosen)
    needed = {*chosen.needs, "decision"} & known

    def record(
        step: int, rows: list[dict], rollouts: Any, credit: Any, prompts: list, hinted: Any, completions: list
    ) -> None:
        if step % options.record_every == 0:
            recorder.write(
                step=step,
                rollouts=rollouts,
                credit=credit,
                prompts=tokenizer.batch_decode(prompts),
                hinted_prompts=None if hinted is None else tokenizer.batch_decode(hinted),
                token_texts=[tokenizer.batch_decode([[token] for token in ids]) for ids in completions],
                successes=[row["verdict"].success for row in rows],
            )

    trainer = CreditGRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=arguments,
        reward_funcs=[reward],
        train_dataset=Dataset.from_list(task.rows("train", options.steps * options.prompts, config.seed)),
        rollout_func=sample,
        tokenize=lambda prompts, rows: tokenized_prompts(tokenizer, prompts, [tools_of(task, row) for row in rows]),
        credit=config.credit,
        credit_options=config.credit_options,
        hint="hint",
        hint_template=task.hint_template,
        teacher=options.teacher,
        teacher_every=options.teacher_every,
        teacher_decay=options.teacher_decay,
        mix_steps=options.mix_steps,
        token_signals=verdict_signals.token_signals(needed) if needed else None,
        channels=verdict_signals.channels,
        answer="answer",
        answer_prefix=getattr(task, "answer_prefix", ""),
        feedback=verdict_signals.feedback if "feedback" in known else None,
        sibling=retold if as_hint else None,
        mask_budget=options.mask_budget,
        recorder=record,
        callbacks=[RunCallback(folder, say)],
    )
    # A tied head is not in a checkpoint, and every resume would warn of it; checkpoints are proven whole before (run_folder).
    logging.getLogger("transformers.trainer").addFilter(lambda said: "missing keys" not in said.getMessage())
    trainer.remove_callback(PrinterCallback)  # prints every metric of every step; ours go to the folder
    return trainer
