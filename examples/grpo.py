"""TRL's GRPO on the embedded tool-use task: the script a user has today. `examples/gear.py` is the same with GEAR."""

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from gear_rl.tasks.workshop import Workshop

task = Workshop(steps=4)


def reward(completions, order, **_):
    """1 where the agent's last message answers the order's question."""
    return [task.answer_reward(text, completion) for text, completion in zip(order, completions, strict=True)]


trainer = GRPOTrainer(
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
)
trainer.train()
