"""Engines: the only place that imports a training framework. Each is a thin adapter onto the framework's own loss."""

from typing import Any

LOSS_TYPES = ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo")
"""TRL's losses. All take advantages per token (`vespo`: see `CreditGRPOTrainer.get_gamma_weights`)."""
TRAINER_SETTINGS: dict[str, Any] = dict(
    gradient_checkpointing=False, logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False
)
"""What all our runs set in TRL's configurations, beyond the defaults. Checkpointing would read the activations twice."""
