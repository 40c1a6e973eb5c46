"""`workshop`, the embedded default task: multi-turn tool use, generated, every wrong decision computable.

The world, its tokenizer and model, the environment and the verdict. The script that trained the model is
`training/embedded_model.py`, because a task may not train."""

from gear_rl.tasks.workshop.task import Workshop

__all__ = ["Workshop"]
