"""Engines: the only place that imports a training framework. Each is a thin adapter onto the framework's own loss."""

LOSS_TYPES = ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo")
"""TRL's losses that take advantages per token. `vespo` and `luspo` assume one per rollout."""
