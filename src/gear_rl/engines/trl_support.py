"""What of TRL does not go with a credit method, and how credit takes TRL's shape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor
from trl import GRPOConfig

from gear_rl.assignment.signals import find_signal
from gear_rl.errors import GearError, unknown_name
from gear_rl.methods import Method
from gear_rl.signals.sources import Sources


def refuse_unsupported(config: GRPOConfig | None, method: Method) -> None:
    scaled = "group" if config is None else config.scale_rewards
    if method.name == "dr_grpo" and str(scaled).lower() not in ("none", "false"):
        raise GearError(
            "credit='dr_grpo' leaves out the standard deviation: set GRPOConfig(scale_rewards='none', loss_type='dr_grpo')."
        )
    if config is not None and config.num_generations is not None and config.num_generations < 2:
        raise GearError(f"num_generations={config.num_generations}: a group of one has no baseline. Use at least 2.")


def reads_policy(method: Method) -> bool:
    """Whether a step runs the model for the method. What only scoring cannot do is no matter for the others."""
    reads = any((signal := find_signal(need)) and signal.source == "model" for need in method.needs)
    return bool(reads or method.hint or method.distillation)


def in_trl_shape(advantages: Tensor, action_mask: Tensor) -> Tensor:
    """(B, T) → (B,), TRL's own shape, where every action token of a rollout has the same advantage (`grpo` and all that credit
    whole rollouts); else (B, T), which TRL's losses take as well."""
    first = action_mask.int().argmax(1, keepdim=True)
    of_rollout = advantages.gather(1, first)  # (B, 1); 0 in a rollout without action tokens
    same = bool(((advantages == of_rollout) | ~action_mask).all())
    return of_rollout[:, 0] if same else advantages


def refuse_unknown_channels(sources: Sources, functions: list[str]) -> None:
    for name in sources.channels:
        if name not in functions:
            raise unknown_name("reward function in channels=", name, functions)


def will_be_sharded(accelerator: Accelerator, method: Method) -> bool:
    """Whether accelerate will shard the model's parameters before the first step. Kinds that cannot be scored are an error
    where the method runs the model."""
    kind, plugin, scored = accelerator.distributed_type, accelerator.state.deepspeed_plugin, reads_policy(method)
    if scored and kind == DistributedType.FSDP and not accelerator.is_fsdp2:
        raise GearError("FSDP 1 is not supported: set fsdp_version: 2 (FSDP_VERSION=2) in accelerate's configuration.")
    if scored and kind in (DistributedType.MEGATRON_LM, DistributedType.XLA):
        raise GearError(f"{kind.value} is not supported: use DDP, FSDP2 or DeepSpeed ZeRO.")
    return kind == DistributedType.FSDP or (plugin is not None and plugin.zero_stage == 3)


@contextmanager
def alone(engine: Any) -> Iterator[None]:
    """Inside, a forward of a DeepSpeed ZeRO-3 engine's gathered module asks no other process. TRL takes away the hooks that
    gather parameters, but not the one at the root, which compares the order of modules among all processes: with unequal
    numbers of forwards these wait for each other for ever."""
    offload = engine.optimizer.parameter_offload
    hooks, number = offload.module._forward_pre_hooks, offload.fwd_pre_hook.id
    kept = hooks.pop(number)
    try:
        yield
    finally:
        hooks[number] = kept
