"""Shared by several test modules."""

from __future__ import annotations

from trl import GRPOConfig

from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.sampling.play import Replies, play


def arguments(folder, **changes):
    settings = dict(
        output_dir=str(folder), max_steps=2, per_device_train_batch_size=8, num_generations=4, learning_rate=1e-3,
        max_completion_length=48, use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none",
        disable_tqdm=True, save_strategy="no", logging_steps=1, seed=3, beta=0.0,
    )  # fmt: skip
    return GRPOConfig(**{**settings, **changes})


def length_reward(completion_ids, **_):
    """Varies from rollout to rollout, so that no group is without signal."""
    return [float(sum(ids) % 7) for ids in completion_ids]


def own_rollouts(task, tokenizer):
    replies = Replies(tokenizer)

    def sample(prompts, trainer):
        rows = [{"order": p[-1]["content"], "prompt": p} for p in prompts]
        played = play(trainer.model, tokenizer, task, rows, replies=replies)
        return {
            "prompt_ids": [p.prompt_ids for p in played],
            "completion_ids": [p.completion_ids for p in played],
            "env_mask": [p.action_mask for p in played],
            "logprobs": None,
        }

    return sample


def build(trainer_class, folder, task, model_and_tokenizer, data, **changes):
    model, tokenizer = model_and_tokenizer
    config = {k: changes.pop(k) for k in list(changes) if k in GRPOConfig.__dataclass_fields__}
    changes.setdefault("reward_funcs", [length_reward])
    if trainer_class is CreditGRPOTrainer:
        changes = {"hint": "hint", "hint_template": task.hint_template, **changes}
    return trainer_class(
        model=model, processing_class=tokenizer, args=arguments(folder, **config), train_dataset=data, **changes
    )
