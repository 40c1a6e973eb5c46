"""What `CreditGRPOTrainer` refuses, by name and before anything expensive: combinations that would train wrongly."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from trl import GRPOConfig

from gear_rl.engines import LOSS_TYPES
from gear_rl.errors import GearError, unknown_name
from gear_rl.methods import Method
from gear_rl.methods.base import HOW_TO_GET
from gear_rl.scoring.answer_logprob import SIGNALS as ANSWER_SIGNALS
from gear_rl.scoring.scorer import SIGNALS
from gear_rl.signals.collector import ANSWER_SPAN, SALIENCY
from gear_rl.signals.sources import Sources


def refuse_unsupported(config: GRPOConfig | None, method: Method, mix_steps: int | None) -> None:
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
    if mix_steps is not None and not hasattr(method.options, "mix"):
        raise GearError(f"mix_steps={mix_steps}, but method {method.name!r} has no `mix` that could fall to 0.")


def refuse_missing_needs(method: Method, sources: Sources) -> None:
    """What the method needs and nobody has said where to get, before anything is loaded or sampled."""
    if method.hint in ("own", "other") and sources.hint is None:
        raise GearError(f"method {method.name!r} has a teacher that reads the ground truth: pass hint='column name'.")
    if method.hint == "feedback" and sources.feedback is None:
        raise GearError(
            f"method {method.name!r} has a teacher that reads the environment's feedback: pass feedback=, a function "
            "rows, completions (ids) → a text or None for each."
        )
    if method.fewest_channels:
        names = sources.channels if isinstance(sources.channels, list) else None
        if sources.channels is None or (names is not None and len(set(names)) < method.fewest_channels):
            raise GearError(
                f"method {method.name!r} needs at least {method.fewest_channels} named parts of the reward: pass channels=, "
                "names of reward functions, or a function rows, completions (ids) → name → a number for each rollout."
            )
    told = _told(sources)
    for need in method.needs:
        if need in SIGNALS or need in ("tool_call", "hidden_distance") or (told is not None and need in told):
            continue
        if need in ANSWER_SIGNALS and sources.answer is None:
            raise GearError(f"method {method.name!r} reads the gold answer after each turn: pass answer='column name'.")
        if need in SALIENCY and sources.answer is None and not (told and ANSWER_SPAN in told):
            raise GearError(
                f"method {method.name!r} asks what the final answer depends on: pass answer='column name', or "
                f"token_signals= that mark each rollout's own answer as {ANSWER_SPAN!r}."
            )
        if need not in (*ANSWER_SIGNALS, *SALIENCY) and (sources.token_signals is None or told):
            how = f" ({HOW_TO_GET[need]})" if need in HOW_TO_GET else ""
            raise GearError(
                f"method {method.name!r} needs {need!r}{how}: pass token_signals=, a function rows, completions (ids) → "
                "name → a number for each token."
            )


def _told(sources: Sources) -> set[str] | None:
    """Which signals `token_signals` gives, by asking for none; None where that cannot be told before the first batch."""
    if sources.token_signals is None:
        return set()
    try:
        return set(sources.token_signals([], [])) or None
    except Exception:  # a user's function need not know what to do with nothing
        return None


def refuse_split_groups(method: Method, on_this_process: int, group_size: int, processes: int) -> None:
    """Where a method compares the rollouts of a group among themselves, a process must hold whole groups."""
    among_group = {"turn_reward", "anchor_state", "hidden_distance", *ANSWER_SIGNALS} & set(method.needs)
    compares = among_group or method.fewest_channels or method.hint == "sibling"
    if compares and processes > 1 and on_this_process % group_size:
        raise GearError(
            f"method {method.name!r} compares the {group_size} rollouts of a group, and a process holds {on_this_process}: "
            "make per_device_train_batch_size × steps_per_generation a multiple of num_generations."
        )


def refuse_unknown_channels(sources: Sources, functions: list[str]) -> None:
    for name in sources.channels if isinstance(sources.channels, list) else []:
        if name not in functions:
            raise unknown_name("reward function in channels=", name, functions)


def refuse_missing_texts(dataset: Any, method: Method, sources: Sources) -> None:
    """Every row has its ground truth. Streams, and texts made by a function, are checked as they come."""
    if not (hasattr(dataset, "column_names") and hasattr(dataset, "__len__")):
        return
    columns = []
    if method.hint in ("own", "other"):
        columns.append((sources.hint, "ground truth", "the hint"))
    if {*ANSWER_SIGNALS, *SALIENCY} & set(method.needs):
        columns.append((sources.answer, "gold answer", "the answer"))
    for column, what, use in columns:
        if not isinstance(column, str):
            continue
        if column not in dataset.column_names:
            known = ", ".join(dataset.column_names)
            raise GearError(f"the data has no column {column!r} to take {use} from. Columns: {known}.")
        for i, value in enumerate(dataset[column]):
            if not isinstance(value, str) or not value.strip():
                raise GearError(
                    f"row {i}: column {column!r} holds no {what} ({value!r}); method {method.name!r} needs one."
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
