"""What of TRL does not go with a credit method, and how credit takes TRL's shape."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
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
    config = config or GRPOConfig(output_dir=".")
    if method.name == "dr_grpo" and str(config.scale_rewards).lower() not in ("none", "false"):
        raise GearError(
            "credit='dr_grpo' leaves out the standard deviation: set GRPOConfig(scale_rewards='none', loss_type='dr_grpo')."
        )
    if config.num_generations is not None and config.num_generations < 2:
        raise GearError(f"num_generations={config.num_generations}: a group of one has no baseline. Use at least 2.")


IMAGES = ("image", "images", "pixel_values", "image_grid_thw", "pixel_attention_mask", "image_sizes")
"""Columns of a data set, or fields of TRL's batch, that hold images."""


TEXT = ("str", "int", "float", "bool", "dict", "None")
"""Return types of tools that TRL writes as text; a list it takes as parts of a message, of which some may be images."""


def refuse_images(method: Method, names: Iterable[str]) -> None:
    """Scoring reads token ids alone: with images it would read another prompt than the policy did."""
    found = [name for name in names if name in IMAGES]
    if found and _reads_policy(method):
        raise GearError(_unsupported_images(method) + f" (found {found[0]!r}). Methods without signals, such as grpo, are.")


def refuse_image_tools(method: Method, tools: Iterable[Callable[..., Any]]) -> None:
    """For a model with vision, before anything is sampled: TRL takes images from tools that return a list."""
    for tool in tools if _reads_policy(method) else ():
        returned = inspect.signature(tool).return_annotation
        if (returned if isinstance(returned, str) else getattr(returned, "__name__", str(returned))) not in TEXT:
            name = getattr(tool, "__name__", repr(tool))
            raise GearError(
                f"{_unsupported_images(method)}, and the tool {name!r} may return some: this model has vision, and the tool's "
                "return type is not given as text. Annotate it (-> str), or use a method without signals, such as grpo."
            )


def _reads_policy(method: Method) -> bool:
    reads = any((signal := find_signal(need)) and signal.source == "model" for need in method.needs)
    return bool(reads or method.hint or method.distillation)


def _unsupported_images(method: Method) -> str:
    return (
        f"method {method.name!r} reads the policy's probabilities, which is not supported for prompts or tool results with "
        "images"
    )


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


def will_be_sharded(accelerator: Accelerator) -> bool:
    """Whether accelerate will shard the model's parameters before the first step. Kinds that cannot be scored are refused."""
    kind, plugin = accelerator.distributed_type, accelerator.state.deepspeed_plugin
    if kind == DistributedType.FSDP and not accelerator.is_fsdp2:
        raise GearError("FSDP 1 is not supported: set fsdp_version: 2 (FSDP_VERSION=2) in accelerate's configuration.")
    if kind in (DistributedType.MEGATRON_LM, DistributedType.XLA):
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
