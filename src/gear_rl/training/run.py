"""`gear train` without the command line: configuration → trainer → run folder, interruptible and exactly resumable."""

from __future__ import annotations

import platform
import shutil
import signal
import time
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from gear_rl.chat.templates import tokenized_prompts
from gear_rl.engines.ranks import Alone, Ranks
from gear_rl.engines.refusals import refuse_small_dataset
from gear_rl.errors import GearError, shown, unknown_name
from gear_rl.files import alone_in, read_json, write_json
from gear_rl.methods import method
from gear_rl.models import choose_device, is_out_of_memory, load_model, model_for
from gear_rl.records.writer import RecordWriter
from gear_rl.signals import from_verdicts
from gear_rl.signals.sources import as_text
from gear_rl.tasks import Task, make_task
from gear_rl.tasks.base import Row, check_rows, instructed, tools_of
from gear_rl.training.config import TrainConfig
from gear_rl.training.equal_rewards import note_on_equal_rewards
from gear_rl.training.failed_writes import naming_failed_writes
from gear_rl.training.processes import in_first, naming_lost_processes, rollouts_here
from gear_rl.training.progress import Progress
from gear_rl.training.run_folder import RunFolder, step_of


def prepare(config: TrainConfig, processes: int = 1) -> tuple[Task, str]:
    """Everything that can be refused is refused here, before a model is loaded or a folder made."""
    from gear_rl.training.engines import ENGINES, find_engine
    from gear_rl.training.knowledge import FOUND_HERE, refuse_elsewhere
    from gear_rl.training.samplers import check_sampler

    rollouts_here(config.train, processes)
    task = make_task(config.task, **config.task_options)
    chosen = method(config.credit, **config.credit_options)
    model = model_for(config.task, config.model, task.default_model())
    if chosen.hint == "other" and config.train.prompts < 2:
        raise GearError(f"{config.credit} needs at least two prompts a step (train.prompts).")
    find_engine(config.train.engine)
    if processes > 1 and config.train.engine not in ENGINES:
        raise GearError(f"train.engine={config.train.engine} runs in one process, and this is one of {processes}.")
    device = torch.device(choose_device(config.train.device))
    check_sampler(config.train, device, processes)
    task.max_turn_tokens = config.train.max_turn_tokens or task.max_turn_tokens
    _refuse_engine_settings(config, task, device.type == "cpu", processes)
    _check_tracker(config.train.report_to)
    rows = check_rows(task.rows("train", config.train.steps * config.train.prompts, config.seed), "train")
    refuse_small_dataset(rows, config.train.prompts, processes)
    for i, row in enumerate(rows):
        if chosen.hint in ("own", "other") and not as_text(row.get("hint")).strip():
            raise GearError(
                f"task {config.task!r}, train row {i}: no ground truth for the hint that {config.credit} needs."
            )
    from_verdicts.refuse_what_the_task_cannot_say(task, config.task, rows[0], chosen, measured=FOUND_HERE)
    refuse_elsewhere(config, chosen, processes)
    if config.train.mix_steps and not hasattr(chosen.options, "mix"):
        raise GearError(f"train.mix_steps: {config.credit} has no `mix` that could fall to 0.")
    return task, model


def hints_are_answers(config: TrainConfig, rows: list[Row]) -> bool:
    """Whether the teacher is shown the reference answer and nothing else, in all of these rows."""
    if method(config.credit, **config.credit_options).hint not in ("own", "other"):
        return False
    pairs = [(as_text(row.get("hint")).strip(), as_text(row.get("answer")).strip()) for row in rows]
    return all(hint and hint == answer for hint, answer in pairs)


def _refuse_engine_settings(config: TrainConfig, task: Task, on_cpu: bool, processes: int) -> None:
    if config.train.engine == "trl":
        from gear_rl.training.trl_arguments import trl_arguments

        trl_arguments(config, Path("runs"), task, on_cpu, processes)
    elif config.trl:
        name = next(iter(config.trl))
        raise GearError(f"trl.{name}: only train.engine=trl uses it, and the engine is {config.train.engine}.")


def _refuse_unread_system_prompt(row: Row, text: str | None, task: Task, tokenizer: Any) -> None:
    """A chat template may leave system messages out."""
    if text is None or isinstance(row["prompt"], str):
        return
    other = instructed([{**row, "prompt": row["prompt"][1:]}], text[:-1] or "x")[0]
    read = [tokenized_prompts(tokenizer, [each["prompt"]], [tools_of(task, each)]) for each in (row, other)]
    if read[0] == read[1]:
        raise GearError("train.system_prompt: this model's chat template leaves system messages out.")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("gear-rl", "torch", "transformers", "trl", "accelerate", "datasets", "peft", "numpy", "safetensors"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def run(
    config: TrainConfig, folder: RunFolder, task: Task, model_path: str, say: Progress, ranks: Ranks | None = None
) -> int:
    """Train, or resume training. `say` shows what happens. Returns the exit code."""
    ranks = ranks or Alone()
    with alone_in(folder.path) if ranks.index == 0 else nullcontext():
        return _run(config, folder, task, model_path, say, ranks)


def _run(config: TrainConfig, folder: RunFolder, task: Task, model_path: str, say: Progress, ranks: Ranks) -> int:
    from gear_rl.evaluation.evaluate import evaluate_model
    from gear_rl.sampling.sampler import Sampler
    from gear_rl.training.engines import ParallelTrainer, find_engine

    options = config.train
    writes = ranks.index == 0
    device = choose_device(options.device)
    checkpoint = in_first(ranks, folder.checkpoint_to_resume)
    step = step_of(checkpoint) if checkpoint else 0
    done = in_first(ranks, lambda: read_json(folder.evaluation, strict=False) if folder.evaluation.exists() else {})
    if "after" in done:
        say.line(f"{folder.path} is finished already.")
        _show_end(config, folder, done, say)
        return 0
    in_first(ranks, lambda: _refuse_other_processes(folder, ranks.size, resumes=checkpoint is not None))
    model, tokenizer = load_model(model_path, device)
    test_rows = instructed(task.rows("test", options.eval_rows), options.system_prompt)
    _refuse_unread_system_prompt(test_rows[0], options.system_prompt, task, tokenizer)
    writer = None
    if writes:
        header = {
            "task": config.task,
            "model": config.model or "embedded",
            "method": config.credit,
            "options": config.credit_options,
        }
        # The last check of what is there, so before all else that writes. Rollouts of step s were sampled before it was taken.
        writer = RecordWriter(folder.rollouts, header, after=step - 1)
        folder.cut_after(step)
        write_json(folder.versions, versions() | {"processes": str(ranks.size)})
        if "before" not in done:
            if hints_are_answers(config, test_rows):
                say.line(
                    "note: every hint is the reference answer alone. With such hints no method is shown to gain over GRPO, "
                    "and runs of GEAR collapsed (on the embedded task none with train.teacher=base). Better hints "
                    "show the steps (docs/evidence.md)."
                )
            say.line(f"evaluating on {len(test_rows)} unseen problems …")
            untrained = Sampler(options.precision)(model)
            done["before"] = evaluate_model(untrained, tokenizer, task, test_rows, say=say.line)
            write_json(folder.evaluation, done)
    ranks.wait()
    build: Any = find_engine(options.engine)
    trainer = build(config, folder, task, model, tokenizer, writer, say, *([ranks] if ranks.size > 1 else []))
    began, interrupt = time.time(), signal.getsignal(signal.SIGINT)
    try:
        with naming_failed_writes(folder), say.progress(options.steps, step), naming_lost_processes(ranks, folder.path):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        at_once = options.rollouts_per_pass or options.prompts * options.generations
        raise GearError(
            f"memory ran out: {str(error).splitlines()[0]} Lower train.rollouts_per_pass (now {at_once}), the rollouts "
            "that go through the model at once when the loss is computed: the gradient stays the same."
        ) from error
    finally:
        signal.signal(signal.SIGINT, interrupt)
    if trainer.steps_taken < options.steps:
        say.line(f"interrupted after step {trainer.steps_taken}; saved. Go on with: gear train --resume {folder.path}")
        _refuse_lost_files(folder, writer)
        return 130
    say.line(f"trained {options.steps - step} steps in {time.time() - began:.0f} s")
    parallel = trainer if isinstance(trainer, ParallelTrainer) else None
    with parallel.whole_policy() if parallel else nullcontext(trainer.policy) as policy:
        if writes:
            trained = Sampler(options.precision)(policy)
            done["after"] = evaluate_model(trained, tokenizer, task, test_rows, say=say.line)
        ranks.wait()
    scratch = folder.unfinished_model
    if writes:
        shutil.rmtree(scratch, ignore_errors=True)
    ranks.wait()
    with naming_failed_writes(folder):
        if parallel:
            parallel.save_policy(scratch)
        else:
            trainer.policy.save_pretrained(scratch)
        if writes:
            tokenizer.save_pretrained(scratch)
            if folder.model.exists():  # killed before it had written its evaluation
                shutil.rmtree(folder.model)
            scratch.replace(folder.model)
            write_json(folder.evaluation, done)
            _show_end(config, folder, done, say)
    ranks.wait()
    _refuse_lost_files(folder, writer)
    return 0


def _show_end(config: TrainConfig, folder: RunFolder, evaluation: dict[str, Any], say: Progress) -> None:
    say.summary(evaluation, folder)
    if note := note_on_equal_rewards(config, folder):
        say.line(note)


def _refuse_lost_files(folder: RunFolder, writer: RecordWriter | None) -> None:
    """A record that no one can read is not a success."""
    files = [folder.log, writer.file if writer else None]
    if lost := [file.path.name for file in files if file and file.is_lost()]:
        raise GearError(
            f"{' and '.join(lost)} in {folder.path}: deleted or replaced while the run wrote to it, so that what it wrote is "
            "lost. Everything else is saved."
        )


def _refuse_other_processes(folder: RunFolder, processes: int, resumes: bool) -> None:
    """Each process has random states and shards of its own in a checkpoint."""
    if not (resumes and folder.versions.exists()):
        return
    written = read_json(folder.versions).get("processes", 1)
    if not str(written).isdecimal():
        raise GearError(f"{folder.versions} is damaged: processes is {shown(written)}.")
    before = int(written)
    if before != processes:
        raise GearError(
            f"{folder.path} was trained by {before} process{'es' * (before > 1)}, and this is {processes}: resume with as "
            "many, or the run would not continue exactly."
        )


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
