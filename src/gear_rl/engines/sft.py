"""Supervised training on token sequences, by TRL's SFTTrainer: what the warm start runs on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from gear_rl.engines import TRAINER_SETTINGS

Example = tuple[list[int], list[int]]
"""Token ids, and 1 for each that counts in the loss."""
IGNORED = -100
"""The label of a token that does not count."""


def train_supervised(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    batch: int,
    pass_tokens: int,
    learning_rate: float,
    seed: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Train `model` in place, `batch` examples an update, in the order given; the loss is a mean over an update's tokens.

    AdamW; the rate rises over a twentieth of the updates, then falls along a cosine to a tenth. One pass reads at most
    `pass_tokens` tokens with padding, or one example. Returns the curve: update, loss in nats per token before it, and
    tokens read per second.
    """
    rows = _rows_per_pass(batch, max(len(ids) for ids, _ in examples), pass_tokens)
    updates = -(-len(examples) // batch)
    curve, use_cache = _Curve(updates, say), model.config.use_cache
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SFTConfig(
            output_dir=scratch,
            max_steps=updates,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=batch // rows,
            train_sampling_strategy="sequential",
            learning_rate=learning_rate,
            lr_scheduler_type="cosine_warmup_with_min_lr",
            lr_scheduler_kwargs={"min_lr_rate": 0.1},
            warmup_steps=max(1, updates // 20),
            adam_beta2=0.95,
            weight_decay=0.0,
            max_grad_norm=1.0,
            max_length=None,  # the caller leaves out what is too long; nothing is cut
            dataset_kwargs={"skip_prepare_dataset": True},  # tokens and labels are ours, and exact across tool turns
            bf16=model.device.type == "cuda",
            use_cpu=model.device.type == "cpu",
            seed=seed,
            save_strategy="no",
            report_to="none",
            **TRAINER_SETTINGS,
        )
        trainer = SFTTrainer(
            model=model,
            args=arguments,
            train_dataset=_dataset(examples, batch),
            processing_class=tokenizer,
            callbacks=[curve],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    model.config.use_cache = use_cache  # the trainer turns it off, and a saved model would keep it so
    model.eval()
    return curve.points


def _rows_per_pass(batch: int, longest: int, pass_tokens: int) -> int:
    """The largest divisor of `batch` whose rows fit into a pass; 1 where not even two do."""
    return max(
        rows for rows in range(1, batch + 1) if batch % rows == 0 and (rows == 1 or rows * longest <= pass_tokens)
    )


def _dataset(examples: Sequence[Example], batch: int) -> Dataset:
    """The examples of each update sorted by length, so that a pass has little padding; the update is the same."""
    ordered: list[Example] = []
    for start in range(0, len(examples), batch):
        ordered += sorted(examples[start : start + batch], key=lambda example: len(example[0]))
    labels = [[t if counts else IGNORED for t, counts in zip(*example, strict=True)] for example in ordered]
    return Dataset.from_dict({"input_ids": [ids for ids, _ in ordered], "labels": labels})


class _Curve(TrainerCallback):
    """Collects the curve, shows progress, and skips an update whose gradient is not finite."""

    def __init__(self, updates: int, say: Callable[[str], None]) -> None:
        self.updates, self.say = updates, say
        self.points: list[dict[str, Any]] = []
        self._shown = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._began = time.monotonic()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if gradients and not torch.stack(torch._foreach_norm(gradients)).isfinite().all():
            self.say(
                f"update {state.global_step + 1}/{self.updates}: the gradient is not finite; the update is skipped"
            )
            for weight in model.parameters():
                weight.grad = None  # the optimizer skips weights without a gradient

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if not logs or "loss" not in logs:
            return
        seconds = max(time.monotonic() - self._began, 1e-9)
        rate = round(logs["num_tokens"] / seconds)
        self.points.append({"update": state.global_step, "loss": round(logs["loss"], 4), "tokens_per_second": rate})
        if seconds - self._shown > 5 or state.global_step in (1, self.updates):
            self._shown = seconds
            self.say(f"update {state.global_step}/{self.updates}  loss {logs['loss']:.3f}  {rate} tokens/s")
