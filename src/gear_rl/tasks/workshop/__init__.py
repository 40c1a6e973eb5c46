"""`workshop`, the embedded default task: multi-turn tool use, generated, every wrong decision computable."""

from gear_rl.tasks.workshop.task import Workshop

__all__ = ["Workshop"]
