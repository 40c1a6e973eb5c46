"""GEAR and its peers inside Hugging Face TRL: `CreditGRPOTrainer`, a drop-in for `trl.GRPOTrainer`.

One seam: `_generate_and_score_completions` returns group advantages of shape (B,); we return (B, T) instead, which TRL's
losses accept by design. Sampling, rewards, group statistics, the loss, LoRA, accumulation and logging stay TRL's own.
What is not TRL's is in `gear_rl.engines.step`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from gear_rl.engines.versions import check_version

check_version("trl")  # first: another version may have moved what is imported below
from trl import GRPOConfig, GRPOTrainer
from trl.models import unwrap_model_for_generation
from trl.models.utils import disable_gradient_checkpointing

from gear_rl.chat.hints import DEFAULT_TEMPLATE
from gear_rl.chat.messages import Prompt
from gear_rl.engines import refusals
from gear_rl.engines.ranks import check_agreement, join, weighted_means
from gear_rl.engines.step import CreditStep, Recorder, teacher_of
from gear_rl.engines.trl_images import refuse_image_tools, refuse_images, refuse_virtual_tokens, seeing_images
from gear_rl.engines.trl_support import (
    alone,
    in_trl_shape,
    reads_policy,
    refuse_unknown_channels,
    refuse_unsupported,
    will_be_sharded,
)
from gear_rl.errors import GearError
from gear_rl.methods import method
from gear_rl.scoring.body import body_of, has_dropout, has_virtual_tokens, reading_states
from gear_rl.scoring.images import ImageScorer
from gear_rl.scoring.masking import BUDGET
from gear_rl.scoring.padding import padded
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.weights import Weights
from gear_rl.signals.providers import Reader
from gear_rl.signals.sampled import Ids, Sampled
from gear_rl.signals.sources import FromRow, Sources, TaskKnowledge
from gear_rl.tasks.base import Row, Verdict

__all__ = ["CreditGRPOTrainer", "GRPOConfig", "RolloutSampler"]


class RolloutSampler(Protocol):
    """Samples rollouts in TRL's place, for tasks with a world of their own. `gear train` brings one."""

    def sample(self, rows: list[Row], policy: Any, step: int = 0, first: int | None = None) -> dict[str, Any]:
        """One rollout per row: what TRL wants of a `rollout_func`.

        step: optimizer steps taken. first: the place of the first row in the batch of all processes; None: there is one.
        """

    def tokenize(self, prompts: Sequence[Prompt], rows: Sequence[Row]) -> Ids:
        """Prompts as `sample` tokenises them."""

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """On the rollouts of the last call of `sample`."""


class CreditGRPOTrainer(GRPOTrainer):
    """`trl.GRPOTrainer` with a credit method between rewards and loss.

    It takes all arguments of `trl.GRPOTrainer`, and these:

    Args:
        credit: Name of the method. `gear methods` lists them.
        credit_options: Options of the method by name.
        hint: The column with the reference answer that the teacher reads, or a function of the row. Needed by methods with
            a teacher that reads it.
        hint_template: How `{prompt}` and `{hint}` become the teacher's prompt.
        teacher: The teacher's weights: live, sync, ema or base (see `gear_rl.scoring.teacher`). None: the kind that the
            method's source uses, else live.
        teacher_every: Optimizer steps between two copies of the policy, for teacher="sync". None: as the method's
            source, else 20.
        teacher_decay: Share of the policy in each update of the average, for teacher="ema". None: as the method's
            source, else 0.05.
        mix_steps: Let λ (`mix`) fall linearly to 0 over so many optimizer steps. None: as the method's source does. 0:
            constant.
        answer: The column with the reference answer as the policy would write it, or a function of the row.
        answer_prefix: What is written before the answer, and is not part of it.
        channels: Names of the reward functions that are the parts of the reward.
        knowledge: What only your task can tell about tokens, turns and rewards.
        mask_budget: Tokens, or runs of tokens, that masking hides in each rollout; see `gear_rl.scoring.masking`.
        sampler: Samples in TRL's place, instead of `rollout_func`.
        recorder: Called with every scored batch; with several processes in the first one, with the batch of all.
    """

    def __init__(
        self,
        *args: Any,
        credit: str = "gear",
        credit_options: dict[str, Any] | None = None,
        hint: FromRow | None = None,
        hint_template: str = DEFAULT_TEMPLATE,
        teacher: str | None = None,
        teacher_every: int | None = None,
        teacher_decay: float | None = None,
        mix_steps: int | None = None,
        answer: FromRow | None = None,
        answer_prefix: str = "",
        channels: Sequence[str] = (),
        knowledge: TaskKnowledge | None = None,
        mask_budget: int = BUDGET,
        sampler: RolloutSampler | None = None,
        recorder: Recorder | None = None,
        **kwargs: Any,
    ) -> None:
        self.method = method(credit, **(credit_options or {}))
        self.sampler = sampler
        sources = Sources(
            hint=hint,
            hint_template=hint_template,
            answer=answer,
            answer_prefix=answer_prefix,
            knowledge=knowledge or TaskKnowledge(),
            channels=tuple(channels),
            mask_budget=mask_budget,
        )
        if sampler is not None:
            kwargs["rollout_func"] = lambda prompts, trainer: self._play(sampler)
        bound = inspect.signature(GRPOTrainer.__init__).bind_partial(self, *args, **kwargs).arguments
        refuse_unsupported(bound.get("args"), self.method)
        refuse_images(self.method, getattr(bound.get("train_dataset"), "column_names", None) or ())
        refusals.refuse_missing_mix(self.method, mix_steps)
        refusals.refuse_missing_needs(self.method, sources)
        refusals.refuse_missing_texts(bound.get("train_dataset"), self.method, sources)
        functions = bound.get("reward_funcs")
        if functions is not None:
            listed = functions if isinstance(functions, list) else [functions]
            bound["reward_funcs"] = [
                f if isinstance(f, (str, torch.nn.Module)) or not callable(f) else refusals.checked_rewards(f)
                for f in listed
            ]
        super().__init__(**{name: value for name, value in bound.items() if name != "self"})

        self.policy: Any = self.accelerator.unwrap_model(self.model)
        self.group_size: int = self.num_generations or 1
        refuse_unknown_channels(sources, self.reward_func_names)
        if self._is_vlm:
            refuse_image_tools(self.method, self.tools or [])
        processes = self.accelerator.num_processes
        per_process = self.args.per_device_train_batch_size * self.args.steps_per_generation  # type: ignore[attr-defined]
        refusals.refuse_split_groups(self.method, per_process, self.group_size, processes)
        refusals.refuse_small_dataset(self.train_dataset, per_process * processes // self.group_size, processes)
        virtual = has_virtual_tokens(self.policy)
        if virtual:
            refuse_virtual_tokens(self.method)
        if reads_policy(self.method):
            body_of(self.policy)  # an error where scoring cannot read this model
        self.weights = Weights(self.policy, sharded_later=will_be_sharded(self.accelerator, self.method))
        self.teacher = t = teacher_of(self.method, self.weights, teacher, teacher_every, teacher_decay)
        ranks = join(self.accelerator.device)
        settings = dict(credit=credit, credit_options=self.method.options, teacher=(t.kind, t.every, t.decay))
        check_agreement(ranks, "settings", settings | dict(mix_steps=mix_steps, mask_budget=mask_budget))
        scorer = (ImageScorer if self._is_vlm or virtual else Scorer)(self.weights, self.temperature)
        name, success = self.method.name, self.method.success_at
        reader = Reader(scorer, self.teacher, self._tokenizer, sources, self._tokenized, name, success)
        self.credit_step = CreditStep(self.method, reader, mix_steps=mix_steps, ranks=ranks, recorder=recorder)
        self.distillation = self.credit_step.distillation
        self.add_callback(_AfterStep(self))

    @property
    def steps_taken(self) -> int:
        return self.state.global_step

    # ------------------------------------------------------------------------------------------ the seam
    @contextmanager
    def whole_policy(self) -> Iterator[Any]:
        """Inside, the policy can be run by this process alone: sharded weights are gathered, all of them, and gradient
        checkpointing, which goes with no cache, is off."""
        with self._without_checkpointing(), self._gathered() as policy:
            yield policy

    def _without_checkpointing(self) -> AbstractContextManager[Any]:
        model: Any = self.model
        settings: Any = self.args.gradient_checkpointing_kwargs
        return disable_gradient_checkpointing(model, settings)

    @contextmanager
    def _gathered(self) -> Iterator[Any]:
        if self.weights.layout.name == "ZeRO-3":
            with unwrap_model_for_generation(self.model_wrapped, self.accelerator) as policy, alone(self.model_wrapped):
                yield policy
        else:
            with self.weights.whole():
                yield self.policy

    def save_policy(self, folder: Path) -> None:
        """The policy as a model folder, with adapters merged for good. All processes call it; the first one writes."""
        state = self.accelerator.get_state_dict(self.model_wrapped) if self.weights.sharded else None
        if self.credit_step.ranks.index:
            return
        if state is None:
            policy = self.policy.merge_and_unload() if hasattr(self.policy, "merge_and_unload") else self.policy
            policy.save_pretrained(folder)
        else:  # gathered, a tied weight is there twice
            tied = getattr(self.policy, "all_tied_weights_keys", {})
            self.policy.save_pretrained(folder, state_dict={k: v for k, v in state.items() if k not in tied})

    def _play(self, sampler: RolloutSampler) -> dict[str, Any]:
        ranks, rows = self.credit_step.ranks, self._inputs
        first = ranks.index * len(rows) if ranks.size > 1 else None
        # vLLM holds the weights itself: none are gathered here.
        with nullcontext(self.policy) if self.use_vllm else self.whole_policy() as policy:
            return sampler.sample(rows, policy, self.state.global_step, first)

    def _generate(self, prompts: list) -> Any:
        # Kept as they are sampled from: an environment may have added to them.
        self._prompts = [list(p) if isinstance(p, list) else p for p in prompts]
        generated = super()._generate(prompts)
        if self.policy.training and any(generated[6] or []):  # of prompts and of tools; before rewards and any scoring
            refuse_images(self.method, ["images"])
        # Whole, also where TRL masks a truncated completion.
        self._completion_ids, self._tool_mask = [list(ids) for ids in generated[1]], generated[2]
        return generated

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        per_function = super()._calculate_rewards(*args, **kwargs)  # (all processes' rollouts, functions)
        if per_function.isinf().any():
            raise GearError(f"a reward is infinite at rollout {int(per_function.isinf().any(1).nonzero()[0])}.")
        self._per_function = per_function
        return per_function

    def _generate_and_score_completions(self, inputs: list[dict]) -> dict[str, Any]:
        with self._without_checkpointing():  # nothing here has a gradient
            return self._sampled_and_credited(inputs)

    def _sampled_and_credited(self, inputs: list[dict]) -> dict[str, Any]:
        self._inputs = inputs
        batch = super()._generate_and_score_completions(inputs)
        if not self.policy.training:
            return batch  # evaluation reports rewards; it has no use for credit
        refuse_images(self.method, batch)
        sampled = self._sampled(inputs, batch)
        with self.accelerator.autocast(), seeing_images(self, batch):
            scored = self.credit_step(sampled, self.state.global_step)
            if self.distillation is not None:
                assert scored.hinted is not None
                batch |= self.distillation.prepare(
                    sampled,
                    scored.hinted,
                    self.state.global_step,
                    self.credit_step.ranks.total,
                    scored.credit.distillation,
                )
        for name, value in scored.metrics.items():
            self._metrics["train"][name].append(value)
        advantages = scored.credit.advantages.to(batch["advantages"].dtype)
        batch["advantages"] = in_trl_shape(advantages, sampled.action_mask)
        return batch

    def _sampled(self, inputs: list[dict], batch: dict[str, Any]) -> Sampled:
        device, width = batch["completion_mask"].device, batch["completion_mask"].shape[1]
        said = self._tool_mask or [[1] * len(ids) for ids in self._completion_ids]
        actions = padded(said, torch.bool, device, width=width)
        first = self.accelerator.process_index * len(inputs)
        index = torch.arange(first, first + len(inputs), device=device)
        per_function = self._per_function[index]
        # Where the step has read the student anyway. With dropout it has read another model than the teacher is, and
        # masked completions without what came before.
        unread = has_dropout(self.policy) or self.mask_truncated_completions
        old = None if unread else batch.get("old_per_token_logps")
        names = self.reward_func_names
        rewards = (per_function * self.reward_weights.to(per_function.device)).nansum(1)
        return Sampled(
            rows=inputs,
            prompts=self._prompts,
            prompt_ids=_unpadded(batch["prompt_ids"], batch["prompt_mask"]),
            completion_ids=self._completion_ids,
            token_ids=batch["completion_ids"],
            action_mask=actions,
            rewards=rewards.where(~per_function.isnan().all(1), torch.nan),  # every function said None: not scored
            group_ids=index // self.group_size,
            advantages=batch["advantages"].float(),
            channels={name: per_function[:, names.index(name)] for name in self.credit_step.reader.sources.channels},
            verdicts=self.sampler.verdicts if self.sampler is not None else None,
            known={} if old is None else {"student_logprob": old},
            trained=batch["completion_mask"].any(1) if self.mask_truncated_completions else None,
        )

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        distillation = self.distillation
        if distillation is None or "gear_step" not in inputs:  # evaluation has no teacher
            return super()._compute_loss(model, inputs)
        with reading_states(self.policy) as states:
            loss = super()._compute_loss(model, inputs)
        share = self.current_gradient_accumulation_steps / self.args.steps_per_generation  # type: ignore[attr-defined]
        term, metrics = distillation.loss(
            states, inputs, self.state.global_step, share / self.accelerator.num_processes
        )
        for name, value in weighted_means(self.credit_step.ranks, metrics).items():
            self._metrics["train"][name].append(value)
        return loss + term

    # TRL decides for a whole rollout, by the sign of its advantage, whether the off-policy mask may drop it and which of
    # VESPO's two weights it gets. With one advantage per token we decide by the sign of their sum, which for methods that
    # keep mass is n_i A_i. Ours: neither source speaks of token credit.
    @staticmethod
    def get_off_policy_mask(advantages: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return GRPOTrainer.get_off_policy_mask(advantages.sum(1, keepdim=True), *args, **kwargs)  # (B, 1)

    @staticmethod
    def get_gamma_weights(advantages: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return GRPOTrainer.get_gamma_weights(advantages.sum(1, keepdim=True), *args, **kwargs)  # (B, 1)

    def _tokenized(self, prompts: Sequence[Prompt], rows: Sequence[Row]) -> Ids:
        """By TRL's own template, tools and settings. A group repeats its prompt; without environments each is done once."""
        if self.sampler is not None:
            return self.sampler.tokenize(prompts, rows)
        if self.environment_factories is not None:  # tools may differ by rollout
            return self._tokenize_prompts(list(prompts))[0]
        unique = list({repr(p): p for p in prompts}.values())
        ids = dict(zip(map(repr, unique), self._tokenize_prompts(unique)[0], strict=True))
        return [list(ids[repr(p)]) for p in prompts]

    # ------------------------------------------------------------------------------------------ checkpoints
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        self.credit_step.save(folder)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.credit_step.load(Path(checkpoint))


class _AfterStep(TrainerCallback):
    def __init__(self, trainer: CreditGRPOTrainer) -> None:
        self.trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step, logged = self.trainer.credit_step, self.trainer._metrics["train"]
        step.after_step(state.global_step)
        # Of this step: TRL averages and clears its lists when it logs, which is later.
        last = -args.gradient_accumulation_steps
        entropy, kl = (fmean(v) if (v := logged.get(name, [])[last:]) else None for name in ("entropy", "kl"))
        step.guards.after_loss(entropy, kl)


def _unpadded(ids: Tensor, mask: Tensor) -> Ids:
    return [row[keep].tolist() for row, keep in zip(ids, mask.bool(), strict=True)]
