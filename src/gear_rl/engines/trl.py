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
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from gear_rl.assignment import Credit
from gear_rl.engines.trl_refusals import finite, refuse_missing_hints, refuse_unsupported
from gear_rl.errors import GearError
from gear_rl.hints import DEFAULT_TEMPLATE, check_template, hinted_prompt
from gear_rl.methods import method
from gear_rl.rollouts import Rollouts
from gear_rl.scoring.guards import Guards, copied_share, focus
from gear_rl.scoring.scorer import SIGNALS, Scorer
from gear_rl.scoring.teacher import Teacher

Ids = list[list[int]]


class Recorder(Protocol):
    """Sees every scored batch: where a run folder, a report or a test looks in."""

    def __call__(
        self,
        step: int,
        rows: list[dict],
        rollouts: Rollouts,
        credit: Credit,
        prompts: Ids,
        hinted: Ids | None,
        completions: Ids,
    ) -> None: ...


class CreditGRPOTrainer(GRPOTrainer):
    """`trl.GRPOTrainer` with a credit method between rewards and loss.

    Beyond TRL's own arguments:
        credit: name of the method; `credit_options` its options. `gear methods` lists them.
        hint: the column with the ground truth the teacher reads, or a function of the row. Needed by methods with a teacher.
        hint_template: how prompt and hint become the teacher's prompt.
        teacher, teacher_every, teacher_decay: see `gear_rl.scoring.teacher`.
        mix_steps: let λ (`mix`) fall linearly to 0 over so many optimizer steps. None: constant.
        token_signals: rows, completions (ids) → name → per-token lists. For what only the task knows, such as "decision".
        recorder: called with every scored batch.
    """

    def __init__(
        self,
        *args: Any,
        credit: str = "gear",
        credit_options: dict[str, Any] | None = None,
        hint: str | Callable[[dict], str] | None = None,
        hint_template: str = DEFAULT_TEMPLATE,
        teacher: str = "live",
        teacher_every: int = 20,
        teacher_decay: float = 0.05,
        mix_steps: int | None = None,
        token_signals: Callable[[list[dict], Ids], dict[str, list[list[float]]]] | None = None,
        recorder: Recorder | None = None,
        **kwargs: Any,
    ) -> None:
        self.credit_name, self.credit_options = credit, dict(credit_options or {})
        self.method = method(credit, **self.credit_options)
        self.hint, self.hint_template, self.mix_steps = hint, hint_template, mix_steps
        self.token_signals, self.recorder = token_signals, recorder
        check_template(hint_template)
        bound = inspect.signature(GRPOTrainer.__init__).bind_partial(self, *args, **kwargs).arguments
        refuse_unsupported(bound.get("args"), self.method, hint, token_signals)
        refuse_missing_hints(bound.get("train_dataset"), self.method, hint)
        functions = bound.get("reward_funcs")
        if functions is not None:
            listed = functions if isinstance(functions, list) else [functions]
            bound["reward_funcs"] = [finite(f) if inspect.isfunction(f) else f for f in listed]
        super().__init__(**{name: value for name, value in bound.items() if name != "self"})

        self.policy: Any = self.accelerator.unwrap_model(self.model)
        self.group_size: int = self.num_generations or 1
        self.teacher = Teacher(self.policy, teacher, teacher_every, teacher_decay)
        self.scorer = Scorer(self.policy, self._tokenizer.pad_token_id, self.temperature)
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
        prompts = _unpadded(batch["prompt_ids"], batch["prompt_mask"])
        completions = _unpadded(batch["completion_ids"], batch["completion_mask"])
        hinted = self._hinted_prompts(prompts, completions) if self.method.hint else None
        signals = self._signals(prompts, hinted, completions, actions)
        first = self.accelerator.process_index * len(inputs)
        index = torch.arange(first, first + len(inputs), device=actions.device)
        rollouts = Rollouts(
            action_mask=actions,
            rewards=self._rewards[index],
            group_ids=index // self.group_size,
            advantages=batch["advantages"].float(),
            token_ids=batch["completion_ids"],
            signals=signals,
        )
        credit = self._current_method().assign(rollouts)
        self._log_credit(rollouts, credit, completions, hinted)
        if self.recorder is not None:
            self.recorder(self.state.global_step, inputs, rollouts, credit, prompts, hinted, completions)
        batch["advantages"] = credit.advantages.to(batch["advantages"].dtype)
        return batch

    def _current_method(self) -> Any:
        """The method with λ as it stands at this step."""
        if self.mix_steps is None:
            return self.method
        left = max(0.0, 1.0 - self.state.global_step / self.mix_steps)
        return method(self.credit_name, **{**self.credit_options, "mix": left * self.credit_options.get("mix", 1.0)})

    # ------------------------------------------------------------------------------------------ hints and signals
    def _hint_of(self, row: dict, i: int) -> str:
        text = self.hint(row) if callable(self.hint) else row.get(self.hint)
        if not isinstance(text, str) or not text.strip():
            raise GearError(
                f"rollout {i} of this batch has no ground truth for its hint ({text!r}); method {self.credit_name!r} needs one."
            )
        return text

    def _hinted_prompts(self, prompts: Ids, completions: Ids) -> Ids:
        """The teacher's prompt of each rollout, tokenised by TRL exactly as the student's own was."""
        hints = [self._hint_of(row, i) for i, row in enumerate(self.rows)]
        self._hint_texts = hints
        if self.method.hint == "other":
            hints = self._other_hints(hints)
        hinted = self._tokenized(
            [hinted_prompt(p, h, self.hint_template) for p, h in zip(self._prompts, hints, strict=True)]
        )
        if not self._checked and self._tokenized(self._prompts) != prompts:
            raise GearError(
                "start-up self-check failed: the prompt's tokens differ from what TRL's template gives, so a hinted "
                "prompt would differ by more than the hint."
            )
        limit = getattr(self.policy.config, "max_position_embeddings", None) or math.inf
        for i, (prompt, completion) in enumerate(zip(hinted, completions, strict=True)):
            if len(prompt) + len(completion) > limit:
                raise GearError(
                    f"rollout {i}: hinted prompt ({len(prompt)} tokens) and completion ({len(completion)}) exceed the "
                    f"model's context of {limit}. Shorten the hint."
                )
        return hinted

    def _tokenized(self, prompts: list) -> Ids:
        """By TRL's own template, tools and settings. A group repeats its prompt; without environments each is done once."""
        if self.environment_factories is not None:  # tools may differ by rollout
            return self._tokenize_prompts(prompts)[0]
        unique = list({repr(p): p for p in prompts}.values())
        ids = dict(zip(map(repr, unique), self._tokenize_prompts(unique)[0], strict=True))
        return [list(ids[repr(p)]) for p in prompts]

    def _other_hints(self, hints: list[str]) -> list[str]:
        """Each rollout gets the hint of the next prompt in the batch: a real hint, for another problem."""
        keys = [json.dumps(p, sort_keys=True) if not isinstance(p, str) else p for p in self._prompts]
        order = list(dict.fromkeys(keys))
        if len(order) < 2:
            raise GearError(
                "wrong_hint needs two different prompts in a generation batch: raise per_device_train_batch_size or "
                "gradient_accumulation_steps."
            )
        own = dict(zip(keys, hints, strict=True))
        return [own[order[(order.index(key) + 1) % len(order)]] for key in keys]

    def _signals(self, prompts: Ids, hinted: Ids | None, completions: Ids, actions: Tensor) -> dict[str, Tensor]:
        signals: dict[str, Tensor] = {}
        if set(self.method.needs) & set(SIGNALS):
            with self.accelerator.autocast():
                if not self._checked:
                    few = slice(0, 2 * self.group_size)
                    self.scorer.self_check(
                        prompts[few], (hinted or prompts)[few], completions[few], actions[few], self.teacher
                    )
                signals.update(self.scorer.score(prompts, hinted or prompts, completions, actions, self.teacher))
        self._checked = True
        if self.token_signals is not None:
            for name, rows in self.token_signals(self.rows, completions).items():
                padded = [[*row, *[0.0] * (actions.shape[1] - len(row))] for row in rows]
                signals[name] = torch.tensor(padded, dtype=torch.float32, device=actions.device)
        return signals

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

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and (path := Path(checkpoint) / "gear_teacher.safetensors").exists():
            self.teacher.load_state(load_file(path))
            self.guards = Guards(**json.loads((Path(checkpoint) / "gear_guards.json").read_text()))


class _AfterStep(TrainerCallback):
    def __init__(self, teacher: Teacher) -> None:
        self.teacher = teacher

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.teacher.after_step(state.global_step)


def _unpadded(ids: Tensor, mask: Tensor) -> Ids:
    return [row[keep].tolist() for row, keep in zip(ids, mask.bool(), strict=True)]
