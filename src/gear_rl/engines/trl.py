"""GEAR and its peers inside Hugging Face TRL: `CreditGRPOTrainer`, a drop-in for `trl.GRPOTrainer`.

One seam: `_generate_and_score_completions` returns group advantages of shape (B,); we return (B, T) instead, which TRL's
losses accept by design. Sampling, rewards, group statistics, the loss, LoRA, accumulation and logging stay TRL's own.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.chat.hints import DEFAULT_TEMPLATE, hinted_prompt
from gear_rl.engines import trl_refusals as refusals
from gear_rl.errors import GearError
from gear_rl.methods import method
from gear_rl.scoring.guards import Guards, copied_share, focus
from gear_rl.scoring.masking import BUDGET
from gear_rl.scoring.scorer import SIGNALS, Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.collector import SignalCollector
from gear_rl.signals.distillation import DistillationTerm
from gear_rl.signals.hint_texts import hint_texts
from gear_rl.signals.sources import FromRow, Ids, Recorder, Sampled, Sources


class CreditGRPOTrainer(GRPOTrainer):
    """`trl.GRPOTrainer` with a credit method between rewards and loss.

    Beyond TRL's own arguments:
        credit: name of the method; `credit_options` its options. `gear methods` lists them.
        hint: the column with the ground truth the teacher reads, or a function of the row. Needed by methods with a teacher
            that reads it.
        hint_template: how prompt and hint become the teacher's prompt.
        teacher, teacher_every, teacher_decay: see `gear_rl.scoring.teacher`. None: the kind the method's source uses.
        mix_steps: let λ (`mix`) fall linearly to 0 over so many optimizer steps. None: constant.
        token_signals: rows, completions (ids) → name → per-token lists. For what only the task knows: "decision",
            "turn_reward", "anchor_state", "tool_call", "answer_span" (1 on the rollout's own final answer).
        channels: the parts of the reward. Names of reward functions, or: rows, completions → name → one number each.
        answer: the column with the gold answer as the policy would say it, or a function of the row. `answer_prefix`: what
            is said before it, and is no part of it.
        feedback: rows, completions → for each a text, what the environment said about it, or None.
        sibling: row, a successful rollout of its group (ids), the row's own feedback or None → the hint's text. Default:
            what the policy said in it, and below that the feedback.
        mask_budget: tokens, or runs of them, that masking hides in each rollout; see `gear_rl.scoring.masking`.
        tokenize: prompts, rows → ids, where `rollout_func` renders prompts in a way of its own, such as tools that differ
            by row. None: by TRL's template.
        recorder: called with every scored batch.
    """

    def __init__(
        self,
        *args: Any,
        credit: str = "gear",
        credit_options: dict[str, Any] | None = None,
        hint: FromRow | None = None,
        hint_template: str = DEFAULT_TEMPLATE,
        teacher: str | None = None,
        teacher_every: int = 20,
        teacher_decay: float = 0.05,
        mix_steps: int | None = None,
        token_signals: Callable[[list[dict], Ids], dict[str, list[list[float]]]] | None = None,
        channels: Callable[[list[dict], Ids], dict[str, list[float]]] | list[str] | None = None,
        answer: FromRow | None = None,
        answer_prefix: str = "",
        feedback: Callable[[list[dict], Ids], list[str | None]] | None = None,
        sibling: Callable[[dict, list[int], str | None], str] | None = None,
        mask_budget: int = BUDGET,
        tokenize: Callable[[list, list[dict]], Ids] | None = None,
        recorder: Recorder | None = None,
        **kwargs: Any,
    ) -> None:
        self.credit_name, self.credit_options = credit, dict(credit_options or {})
        self.method = method(credit, **self.credit_options)
        self.mix_steps, self.tokenize, self.recorder = mix_steps, tokenize, recorder
        self.sources = Sources(
            hint, hint_template, token_signals, channels, answer, answer_prefix, feedback, sibling, mask_budget
        )
        bound = inspect.signature(GRPOTrainer.__init__).bind_partial(self, *args, **kwargs).arguments
        refusals.refuse_unsupported(bound.get("args"), self.method, mix_steps)
        refusals.refuse_missing_needs(self.method, self.sources)
        refusals.refuse_missing_texts(bound.get("train_dataset"), self.method, self.sources)
        functions = bound.get("reward_funcs")
        if functions is not None:
            listed = functions if isinstance(functions, list) else [functions]
            bound["reward_funcs"] = [refusals.finite(f) if inspect.isfunction(f) else f for f in listed]
        super().__init__(**{name: value for name, value in bound.items() if name != "self"})

        self.policy: Any = self.accelerator.unwrap_model(self.model)
        self.group_size: int = self.num_generations or 1
        refusals.refuse_unknown_channels(self.sources, self.reward_func_names)
        per_process = self.args.per_device_train_batch_size * self.args.steps_per_generation  # type: ignore[attr-defined]
        refusals.refuse_split_groups(self.method, per_process, self.group_size, self.accelerator.num_processes)
        loss = self.method.distillation
        self.teacher = Teacher(self.policy, teacher or (loss.teacher if loss else "live"), teacher_every, teacher_decay)
        self.scorer = Scorer(self.policy, self.temperature)
        self.signals = SignalCollector(self.method, self.sources, self.scorer, self.teacher, self._tokenizer)
        self.distillation = DistillationTerm(loss, self.scorer, self.teacher) if loss else None
        self.guards = Guards()
        self.rows: list[dict] = []
        """The rows of the batch being sampled, one per rollout, for `rollout_func`."""
        self._checked = False
        self.add_callback(_AfterStep(self.teacher))

    # ------------------------------------------------------------------------------------------ the seam
    def _generate(self, prompts: list) -> Any:
        self._prompts = [
            list(p) if isinstance(p, list) else p for p in prompts
        ]  # with what an environment added to them
        return super()._generate(prompts)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        per_function = super()._calculate_rewards(*args, **kwargs)  # (all processes' rollouts, functions)
        if per_function.isinf().any():
            raise GearError(f"a reward is infinite at rollout {int(per_function.isinf().any(1).nonzero()[0])}.")
        self._per_function = per_function
        self._rewards = (per_function * self.reward_weights.to(per_function.device)).nansum(1)
        return per_function

    def _generate_and_score_completions(self, inputs: list[dict]) -> dict[str, Any]:
        self.rows = inputs
        batch = super()._generate_and_score_completions(inputs)
        if not self.policy.training:
            return batch  # evaluation reports rewards; it has no use for credit
        actions = batch["completion_mask"].bool()
        if "tool_mask" in batch:
            actions &= batch["tool_mask"].bool()
        first = self.accelerator.process_index * len(inputs)
        index = torch.arange(first, first + len(inputs), device=actions.device)
        old = batch.get("old_per_token_logps")  # where the step has read the student anyway
        sampled = Sampled(
            rows=inputs,
            prompts=_unpadded(batch["prompt_ids"], batch["prompt_mask"]),
            completions=_unpadded(batch["completion_ids"], batch["completion_mask"]),
            ids=batch["completion_ids"],
            actions=actions,
            rewards=self._rewards[index],
            groups=index // self.group_size,
            known={} if old is None else {"student_logprob": old},
        )
        hinted, unread = self._hinted_prompts(sampled) if self.method.hint else (None, [])
        with self.accelerator.autocast():
            self._check(sampled, hinted)
            signals = self.signals.collect(sampled, hinted, unread)
            if self.distillation is not None:
                assert hinted is not None
                batch |= self.distillation.prepare(sampled, hinted, unread, self.state.global_step, self._total)
        rollouts = Rollouts(
            action_mask=actions,
            rewards=sampled.rewards,
            group_ids=sampled.groups,
            advantages=batch["advantages"].float(),
            token_ids=batch["completion_ids"],
            signals=signals,
            channels=self.signals.channels(sampled, self._per_function[index], self.reward_func_names),
        )
        credit = self._current_method().assign(rollouts)
        self._log_credit(rollouts, credit, sampled.completions, hinted)
        if self.recorder is not None:
            self.recorder(
                self.state.global_step, inputs, rollouts, credit, sampled.prompts, hinted, sampled.completions
            )
        batch["advantages"] = credit.advantages.to(batch["advantages"].dtype)
        return batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if self.distillation is None or "gear_step" not in inputs:  # evaluation has no teacher
            return super()._compute_loss(model, inputs)
        with self.distillation.overhearing() as heard:
            loss = super()._compute_loss(model, inputs)
        share = self.current_gradient_accumulation_steps / self.args.steps_per_generation  # type: ignore[attr-defined]
        term, metrics = self.distillation.loss(
            heard, inputs, self.state.global_step, share / self.accelerator.num_processes
        )
        for name, value in metrics.items():
            self._metrics["train"][name].append(float(self.accelerator.gather(loss.new_tensor([value])).mean()))
        return loss + term

    def _total(self, count: Tensor) -> Tensor:
        return self.accelerator.gather(count.float().view(1)).sum()

    def _current_method(self) -> Any:
        """The method with λ as it stands at this step."""
        if self.mix_steps is None:
            return self.method
        left = max(0.0, 1.0 - self.state.global_step / self.mix_steps)
        whole = self.method.options.mix  # type: ignore[attr-defined]  # refused at the start where there is none
        return method(self.credit_name, **{**self.credit_options, "mix": left * whole})

    # ------------------------------------------------------------------------------------------ hints
    def _check(self, sampled: Sampled, hinted: Ids | None) -> None:
        """Once, before the first step: do teacher and student read what they should, where they should?"""
        if not self._checked and (self.distillation is not None or set(self.method.needs) & set(SIGNALS)):
            few, other = slice(0, 2 * self.group_size), hinted or sampled.prompts
            self.scorer.self_check(
                sampled.prompts[few], other[few], sampled.completions[few], sampled.actions[few], self.teacher
            )
        self._checked = True

    def _hinted_prompts(self, sampled: Sampled) -> tuple[Ids, list[int]]:
        """The teacher's prompt of each rollout, tokenised by TRL exactly as the student's own was; and the rollouts for
        which there is nothing to read beside the prompt."""
        self._hint_texts = hint_texts(self.method, self.sources, sampled, self._prompts, self._tokenizer)
        template = self.sources.hint_template
        hinted = self._tokenized(
            [hinted_prompt(p, h, template) for p, h in zip(self._prompts, self._hint_texts, strict=True)]
        )
        if not self._checked and self._tokenized(self._prompts) != sampled.prompts:
            raise GearError(
                "start-up self-check failed: the prompt's tokens differ from what TRL's template gives, so a hinted "
                "prompt would differ by more than the hint."
            )
        limit = getattr(self.policy.config, "max_position_embeddings", None) or math.inf
        for i, (prompt, completion) in enumerate(zip(hinted, sampled.completions, strict=True)):
            if len(prompt) + len(completion) > limit:
                raise GearError(
                    f"rollout {i}: hinted prompt ({len(prompt)} tokens) and completion ({len(completion)}) exceed the "
                    f"model's context of {limit}. Shorten the hint."
                )
        return hinted, [i for i, text in enumerate(self._hint_texts) if not text]

    def _tokenized(self, prompts: list) -> Ids:
        """By TRL's own template, tools and settings. A group repeats its prompt; without environments each is done once."""
        if self.tokenize is not None:
            return self.tokenize(prompts, self.rows)
        if self.environment_factories is not None:  # tools may differ by rollout
            return self._tokenize_prompts(prompts)[0]
        unique = list({repr(p): p for p in prompts}.values())
        ids = dict(zip(map(repr, unique), self._tokenize_prompts(unique)[0], strict=True))
        return [list(ids[repr(p)]) for p in prompts]

    # ------------------------------------------------------------------------------------------ logging
    def _log_credit(self, rollouts: Rollouts, credit: Credit, completions: Ids, hinted: Ids | None) -> None:
        """Token credit, signals and guards, through TRL's own `report_to`. TRL logs advantages before we change them."""
        mask, n = rollouts.action_mask, rollouts.action_mask.sum().clamp(min=1)
        values = {f"signals/{name}": float((signal * mask).sum() / n) for name, signal in rollouts.signals.items()}
        values["credit/mean_abs_advantage"] = float(credit.advantages.abs().sum() / n)
        values["credit/weight_max"] = float(credit.weights.max())
        values["credit/onsets_per_rollout"] = float(credit.onsets.sum(1).float().mean())
        guarded = {"length": float(n) / len(mask), "focus": focus(credit.weights, mask)}
        if "entropy" in rollouts.signals:
            guarded["entropy"] = values["signals/entropy"]
        if hinted is not None:
            unique = list(dict.fromkeys(self._hint_texts))
            ids = dict(zip(unique, self._tokenizer(unique, add_special_tokens=False)["input_ids"], strict=True))
            guarded["leak"] = copied_share(completions, [ids[text] for text in self._hint_texts], mask)
        values |= {f"guards/{name}": value for name, value in self.guards.watch(guarded).items()}
        for name, value in values.items():
            total = self.accelerator.gather(torch.tensor([value], device=mask.device)).mean()
            self._metrics["train"][name].append(float(total))

    # ------------------------------------------------------------------------------------------ checkpoints
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            save_file({k: v.contiguous() for k, v in self.teacher.state().items()}, folder / "gear_teacher.safetensors")
            (folder / "gear_guards.json").write_text(json.dumps(vars(self.guards)))
            if self.distillation is not None and self.distillation.reference is not None:
                reference = self.distillation.reference.state()
                save_file({k: v.contiguous() for k, v in reference.items()}, folder / "gear_reference.safetensors")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and (path := Path(checkpoint) / "gear_teacher.safetensors").exists():
            self.teacher.load_state(load_file(path))
            self.guards = Guards(**json.loads((Path(checkpoint) / "gear_guards.json").read_text()))
            if self.distillation is not None and self.distillation.reference is not None:
                self.distillation.reference.load_state(load_file(Path(checkpoint) / "gear_reference.safetensors"))


class _AfterStep(TrainerCallback):
    def __init__(self, teacher: Teacher) -> None:
        self.teacher = teacher

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.teacher.after_step(state.global_step)


def _unpadded(ids: Tensor, mask: Tensor) -> Ids:
    return [row[keep].tolist() for row, keep in zip(ids, mask.bool(), strict=True)]
