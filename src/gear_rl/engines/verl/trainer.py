"""`trainer.v1.trainer_mode=gear`: verl's synchronous trainer with a credit method between group advantages and loss.

Four of its methods are extended: the replay buffer stays the synchronous one; the teacher's prompts go to the workers with
the batch whose old log-probabilities they compute; token advantages replace verl's own; the guards see the KL that the update
computed. Everything else stays verl's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from gear_rl.chat.messages import Prompt
from gear_rl.engines.record import write_scored
from gear_rl.engines.step import CreditStep, Scored
from gear_rl.engines.verl.batch import Batch
from gear_rl.engines.verl.data import ROW
from gear_rl.engines.verl.engine import REQUEST
from gear_rl.engines.verl.prompts import AsAgentLoops
from gear_rl.engines.verl.reader import make_reader
from gear_rl.engines.verl.refusals import reads_teacher, refuse_method, refuse_settings, refuse_sources
from gear_rl.engines.verl.rows import check_data, check_lengths, task_row, value_at
from gear_rl.engines.verl.settings import Settings
from gear_rl.errors import GearError
from gear_rl.methods.base import SIBLINGS
from gear_rl.models import context_of
from gear_rl.records.writer import RecordWriter
from gear_rl.scoring.scorer import ON_REQUEST, SIGNALS
from gear_rl.signals.from_verdicts import VerdictKnowledge
from gear_rl.signals.providers import compares_group
from gear_rl.signals.sources import Sources, TaskKnowledge
from gear_rl.tasks.base import Row


@register_trainer("gear")
class CreditTrainer(PPOTrainerSync):
    def __init__(self, config: Any) -> None:
        self.settings = Settings.of(config)
        self.method = self.settings.make_method()
        refuse_method(self.method, self.settings)
        refuse_settings(config, self.method, self.settings)
        self.task, self.teacher = self.settings.make_task(), self.settings.make_teacher(self.method)
        extra = [name for name in ON_REQUEST if name in self.method.needs]
        self._read = [*SIGNALS, *extra] if reads_teacher(self.method) else []
        self._writer: RecordWriter | None = None
        super().__init__(config)

    # ------------------------------------------------------------------------------------------ before any worker starts
    def _build_replay_buffer(self) -> Any:
        self.trainer_mode = "sync"  # verl takes every other name for an asynchronous mode
        return super()._build_replay_buffer()

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        from verl.utils.config import omega_conf_to_dataclass

        model = omega_conf_to_dataclass(self.config.actor_rollout_ref.model).hf_config
        dataset, settings, task = self.train_dataset.dataframe, self.settings, self.task
        check_data(dataset, self.method, settings, task, self.config.data.train_batch_size)
        hint = self._hint = settings.hint_column(task)
        tokenize = AsAgentLoops(self.config, self.tokenizer, self.processor, getattr(model, "model_type", None), task)
        first, _ = self._row_of({**dataset[0], "raw_prompt": dataset[0][self.train_dataset.prompt_key]})
        sources = Sources(
            hint=None if hint is None else lambda row: value_at(row, hint),
            hint_template=settings.template(task),
            knowledge=TaskKnowledge() if task is None else VerdictKnowledge(task, first, self.method, self.tokenizer),
        )
        refuse_sources(self.method, settings, sources)
        data = self.config.data
        if self.method.hint in ("own", "other") and hint is not None:
            prompt = self.train_dataset.prompt_key
            pairs = (self._row_of({**line, "raw_prompt": line[prompt]}) for line in dataset)
            longest = data.max_prompt_length, data.max_response_length
            check_lengths(pairs, hint, sources.hint_template, tokenize, context_of(model), *longest)
        reader = make_reader(model, self.teacher, self.tokenizer, sources, tokenize, self.method)
        self.credit_step = CreditStep(self.method, reader, mix_steps=settings.mix_steps, recorder=self._record)

    def _row_of(self, line: dict[str, Any]) -> tuple[Row, Prompt]:
        """A line of the data → the row that hints and signals are read from, and what the policy reads."""
        if self.task is not None:
            row = task_row(line)
            return row, row["prompt"]
        return line, [dict(message) for message in line["raw_prompt"]]

    # ------------------------------------------------------------------------------------------ a step
    def _compute_old_log_prob(self, batch: Any, metrics: dict) -> Any:
        columns = [ROW] if self.task is not None else ["raw_prompt", "extra_info", "agent_name"]
        if self.task is None and self._hint is not None and (top := self._hint.split(".")[0]) not in columns:
            columns.append(top)
        self._batch = Batch(batch, columns, self._row_of, judged=self.task is not None)
        self._refuse_long_sessions()
        self._hinted = self.credit_step.read_hints(self._batch.sampled)
        self.credit_step.check(self._batch.sampled, self._hinted)
        if not self._read:
            return super()._compute_old_log_prob(batch, metrics)
        sampled = self._batch.sampled
        self._batch.put_hinted(self._hinted.prompt_ids if self._hinted else sampled.prompt_ids)
        batch.extra_info[REQUEST] = json.dumps(
            {
                "teacher": self.teacher.kind,
                "every": self.teacher.every,
                "decay": self.teacher.decay,
                "extra": [name for name in self._read if name in ON_REQUEST],
                "temperature": self.config.actor_rollout_ref.rollout.temperature,
            }
        )
        found = super()._compute_old_log_prob(batch, metrics)
        for meta in (batch, found):
            (meta.extra_info or {}).pop(REQUEST, None)
        return found

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        sampled = self._batch.scored(self._read)
        scored = self.credit_step(sampled, self.global_steps - 1, hinted=self._hinted)
        self._batch.put_advantages(scored.credit.advantages)
        metrics.update(scored.metrics)
        return batch

    def _update_actor(self, batch: Any, metrics: dict) -> Any:
        batch = super()._update_actor(batch, metrics)
        # The entropy is read with the old log-probabilities, so the guards have it already.
        self.credit_step.guards.after_loss(None, metrics.get("actor/kl_loss"))
        return batch

    def _refuse_long_sessions(self) -> None:
        method = self.method
        compares = any(map(compares_group, method.needs)) or method.fewest_channels or method.hint in SIBLINGS
        if compares and self._batch.has_long_sessions:
            raise GearError(
                f"method {method.name!r} compares the rollouts of a group, and the agent loop gave several trajectories for "
                "one session: unsupported. Use a method that weighs the tokens of each rollout, such as gear."
            )

    # ------------------------------------------------------------------------------------------ record and checkpoints
    def _record(self, scored: Scored) -> None:
        if self._writer is None or scored.step % self.settings.record_every:
            return
        verdicts = scored.sampled.verdicts
        successes = None if verdicts is None else [verdict.success for verdict in verdicts]
        write_scored(self._writer, scored, self.tokenizer, successes)

    def _open_record(self) -> None:
        if self.settings.record is None:
            return
        path = Path(self.settings.record)
        path.parent.mkdir(parents=True, exist_ok=True)
        header = {
            "task": self.settings.task.get("name") or "verl data",
            "model": str(self.config.actor_rollout_ref.model.path),
            "method": self.method.name,
            "options": self.settings.options,
        }
        # Rollouts of step s were sampled before step s was taken.
        self._writer = RecordWriter(path, header, after=self.global_steps - 1)

    def _folder(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps:
            resumed = self.config.trainer.get("resume_from_path")
            explicit = self.config.trainer.resume_mode == "resume_path" and resumed
            self.credit_step.load(Path(resumed) if explicit else self._folder())
        self._open_record()

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        self.credit_step.save(self._folder())
