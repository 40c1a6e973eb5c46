"""What `CreditGRPOTrainer` refuses, by name and before anything expensive: combinations that would train wrongly."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from trl import GRPOConfig

from gear_rl.errors import GearError
from gear_rl.methods import Method

LOSS_TYPES = ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo")
"""TRL's losses that take advantages per token. `vespo` and `luspo` assume one per rollout."""


def refuse_unsupported(config: GRPOConfig | None, method: Method, hint: Any, token_signals: Any) -> None:
    config = config or GRPOConfig(output_dir=".")
    if getattr(config, "use_liger_kernel", False):
        raise GearError("use_liger_kernel: Liger's GRPO loss takes one advantage per rollout, not per token. Turn it off.")
    if config.loss_type not in LOSS_TYPES:
        raise GearError(
            f"loss_type={config.loss_type!r} assumes one advantage per rollout; use one of {', '.join(LOSS_TYPES)}."
        )
    if config.off_policy_mask_threshold is not None:
        raise GearError("off_policy_mask_threshold assumes one sign per rollout: it does not go with token credit. Unset it.")
    if method.name == "dr_grpo" and str(config.scale_rewards).lower() not in ("none", "false"):
        raise GearError(
            "credit='dr_grpo' leaves out the standard deviation: set GRPOConfig(scale_rewards='none', loss_type='dr_grpo')."
        )
    if config.num_generations is not None and config.num_generations < 2:
        raise GearError(f"num_generations={config.num_generations}: a group of one has no baseline. Use at least 2.")
    if method.hint and hint is None:
        raise GearError(f"method {method.name!r} has a teacher that reads the ground truth: pass hint='column name'.")
    if "decision" in method.needs and token_signals is None:
        raise GearError(f"method {method.name!r} needs to know which decisions were wrong: pass token_signals=….")


def refuse_missing_hints(dataset: Any, method: Method, hint: Any) -> None:
    """Every row has its ground truth. Streams, and hints made by a function, are checked as they come."""
    has_rows = hasattr(dataset, "column_names") and hasattr(dataset, "__len__")
    if method.hint is None or not isinstance(hint, str) or not has_rows:
        return
    if hint not in dataset.column_names:
        columns = ", ".join(dataset.column_names)
        raise GearError(f"the data has no column {hint!r} to take the hint from. Columns: {columns}.")
    for i, value in enumerate(dataset[hint]):
        if not isinstance(value, str) or not value.strip():
            raise GearError(
                f"row {i}: column {hint!r} holds no ground truth ({value!r}); method {method.name!r} needs one."
            )


def finite(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reward of None means "not scored"; NaN and Inf are mistakes, and TRL would take NaN for None in silence."""

    def check(rewards: list) -> list:
        for i, reward in enumerate(rewards):
            if reward is not None and not math.isfinite(reward):
                raise GearError(
                    f"reward function {function.__name__!r} returned {reward} for rollout {i}; "
                    "return None for 'not scored'."
                )
        return rewards

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> list:
        return check(function(*args, **kwargs))

    @functools.wraps(function)
    async def checked_async(*args: Any, **kwargs: Any) -> list:
        return check(await function(*args, **kwargs))

    return checked_async if inspect.iscoroutinefunction(function) else checked
