"""GEAR inside TRL: `examples/grpo.py` with five lines changed."""

from datasets import Dataset
from trl import GRPOConfig

from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.tasks.workshop import Workshop

task = Workshop(steps=4)


def reward(completions, order, **_):
    """1 where the agent's last message answers the order's question."""
    return [task.answer_reward(text, completion) for text, completion in zip(order, completions, strict=True)]


trainer = CreditGRPOTrainer(
    model=task.default_model(),
    args=GRPOConfig(
        output_dir="runs/example",
        max_steps=2,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=48,
        learning_rate=3e-4,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        model_init_kwargs={"dtype": "float32"},
        report_to="none",
        save_strategy="no",
        logging_steps=1,
    ),
    train_dataset=Dataset.from_list(task.rows("train", 64)),
    environment_factory=task.environment,
    reward_funcs=reward,
    hint="hint",  # the column with the ground truth the teacher reads; credit="gear" is the default
    hint_template=task.hint_template,
)
trainer.train()
