"""Which of TRL's own settings do not go with one advantage per token."""

from __future__ import annotations

from collections.abc import Iterable

from accelerate import Accelerator
from accelerate.utils import DistributedType
from trl import GRPOConfig

from gear_rl.assignment.signals import find_signal
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


IMAGES = ("image", "images", "pixel_values", "image_grid_thw", "pixel_attention_mask", "image_sizes")
"""Columns of a data set, or fields of TRL's batch, that hold images."""


def refuse_images(method: Method, names: Iterable[str]) -> None:
    """Scoring reads token ids alone: with images it would read another prompt than the policy did."""
    reads = any((signal := find_signal(need)) and signal.source == "model" for need in method.needs)
    found = [name for name in names if name in IMAGES]
    if found and (reads or method.hint or method.distillation):
        raise GearError(
            f"method {method.name!r} reads the policy's probabilities, which is not supported for prompts or tool results with "
            f"images (found {found[0]!r}). Methods without signals, such as grpo, are."
        )


def refuse_unknown_channels(sources: Sources, functions: list[str]) -> None:
    for name in sources.channels:
        if name not in functions:
            raise unknown_name("reward function in channels=", name, functions)


def will_be_sharded(accelerator: Accelerator) -> bool:
    """Whether accelerate will shard the model's parameters before the first step. Kinds that cannot be scored are refused."""
    kind, plugin = accelerator.distributed_type, accelerator.state.deepspeed_plugin
    if kind == DistributedType.FSDP and not accelerator.is_fsdp2:
        raise GearError("FSDP 1 is not supported: set fsdp_version: 2 (FSDP_VERSION=2) in accelerate's configuration.")
    if kind in (DistributedType.MEGATRON_LM, DistributedType.XLA):
        raise GearError(f"{kind.value} is not supported: use DDP, FSDP2 or DeepSpeed ZeRO.")
    return kind == DistributedType.FSDP or (plugin is not None and plugin.zero_stage == 3)
