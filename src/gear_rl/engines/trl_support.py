"""Which of TRL's own settings do not go with one advantage per token."""

from __future__ import annotations

from trl import GRPOConfig

from gear_rl.engines import LOSS_TYPES
from gear_rl.errors import GearError, unknown_name
from gear_rl.methods import Method
from gear_rl.signals.sources import Sources


def refuse_unsupported(config: GRPOConfig | None, method: Method) -> None:
    config = config or GRPOConfig(output_dir=".")
    if getattr(config, "use_liger_kernel", False):
        raise GearError(
            "use_liger_kernel: Liger's GRPO loss takes one advantage per rollout, not per token. Turn it off."
        )
    if config.loss_type not in LOSS_TYPES:
        raise GearError(
            f"loss_type={config.loss_type!r} assumes one advantage per rollout; use one of {', '.join(LOSS_TYPES)}."
        )
    if config.off_policy_mask_threshold is not None:
        raise GearError(
            "off_policy_mask_threshold assumes one sign per rollout: it does not go with token credit. Unset it."
        )
    if method.name == "dr_grpo" and str(config.scale_rewards).lower() not in ("none", "false"):
        raise GearError(
            "credit='dr_grpo' leaves out the standard deviation: set GRPOConfig(scale_rewards='none', loss_type='dr_grpo')."
        )
    if config.num_generations is not None and config.num_generations < 2:
        raise GearError(f"num_generations={config.num_generations}: a group of one has no baseline. Use at least 2.")


def refuse_unknown_channels(sources: Sources, functions: list[str]) -> None:
    for name in sources.channels:
        if name not in functions:
            raise unknown_name("reward function in channels=", name, functions)
