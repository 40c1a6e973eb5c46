"""What no engine can train rightly, said before anything is loaded or sampled."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gear_rl.errors import GearError, one_line, shown
from gear_rl.methods import Method
from gear_rl.signals.providers import ANSWER_READERS, missing_source, needs_group_here
from gear_rl.signals.sources import Sources, as_text


def refuse_missing_needs(method: Method, sources: Sources) -> None:
    """What the method needs and nobody has said where to get."""
    if method.hint in ("own", "other") and sources.hint is None:
        raise GearError(f"method {method.name!r} has a teacher that reads the ground truth: pass hint='column name'.")
    if method.hint == "feedback" and not sources.knowledge.has_feedback:
        raise GearError(
            f"method {method.name!r} has a teacher that reads the environment's feedback: pass knowledge=, whose `feedback` "
            "gives a text or None for each rollout, and `has_feedback = True`."
        )
    if (
        method.fewest_channels
        and not sources.knowledge.has_channels
        and len(set(sources.channels)) < method.fewest_channels
    ):
        raise GearError(
            f"method {method.name!r} needs at least {method.fewest_channels} named parts of the reward: pass channels=, names "
            "of reward functions, or knowledge= whose `channels` gives them, and `has_channels = True`."
        )
    for need in method.needs:
        if what := missing_source(need, sources):
            raise GearError(f"method {method.name!r} {what}.")


def refuse_missing_mix(method: Method, mix_steps: int | None) -> None:
    if mix_steps and not hasattr(method.options, "mix"):
        raise GearError(f"mix_steps={mix_steps}, but method {method.name!r} has no `mix` that could fall to 0.")


def refuse_split_groups(method: Method, on_this_process: int, group_size: int, processes: int) -> None:
    """A signal of a plugin that compares the rollouts of a group is computed in one process, from the rollouts there."""
    if any(map(needs_group_here, method.needs)) and processes > 1 and on_this_process % group_size:
        raise GearError(
            f"method {method.name!r} compares the {group_size} rollouts of a group, and a process holds {on_this_process}: "
            "make per_device_train_batch_size × steps_per_generation a multiple of num_generations."
        )


def refuse_small_dataset(dataset: Any, prompts: int, processes: int) -> None:
    """TRL drops what does not fill a batch, and would train on nothing."""
    if hasattr(dataset, "__len__") and len(dataset) < prompts:
        among = f" over {processes} processes" if processes > 1 else ""
        raise GearError(
            f"the data has {len(dataset)} rows, and one batch takes {prompts} prompts{among}: give more rows, or fewer "
            "prompts per step (per_device_train_batch_size, steps_per_generation, or train.prompts)."
        )


def refuse_missing_texts(dataset: Any, method: Method, sources: Sources) -> None:
    """Every row has its ground truth. Streams, and texts made by a function, are checked as they come."""
    if not (hasattr(dataset, "column_names") and hasattr(dataset, "__len__")):
        return
    columns = []
    if method.hint in ("own", "other"):
        columns.append((sources.hint, "ground truth", "the hint"))
    if set(ANSWER_READERS) & set(method.needs):
        columns.append((sources.answer, "reference answer", "the answer"))
    for column, what, use in columns:
        if not isinstance(column, str):
            continue
        if column not in dataset.column_names:
            known = ", ".join(dataset.column_names)
            raise GearError(f"the data has no column {column!r} to take {use} from. Columns: {known}.")
        for i, value in enumerate(dataset[column]):
            if not as_text(value).strip():
                raise GearError(
                    f"row {i}: column {column!r} holds no {what} ({value!r}); method {method.name!r} needs one."
                )


def checked_rewards(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reward function, method, partial or callable object with its rewards checked. None means "not scored"; NaN and Inf
    are mistakes, and TRL would take NaN for None in silence."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", type(inner).__name__)
    wanted = "it must return a list with a number, or None for 'not scored', for each rollout"

    def check(rewards: Any, rollouts: int) -> list[float | None]:
        listed = rewards.tolist() if hasattr(rewards, "tolist") else rewards  # a tensor, or an array
        if not isinstance(listed, (list, tuple)):
            raise GearError(f"reward function {name!r} returned {shown(rewards)}; {wanted}.")
        if len(listed) != rollouts:
            raise GearError(
                f"reward function {name!r} returned {len(listed)} rewards for {rollouts} rollouts; {wanted}."
            )
        for i, reward in enumerate(listed):
            try:
                good = reward is None or math.isfinite(reward)
            except (TypeError, ValueError, OverflowError):
                good = False
            if not good:
                raise GearError(
                    f"reward function {name!r} returned {shown(reward)} for rollout {i}; return None for 'not scored'."
                )
        return list(listed)

    @contextmanager
    def naming_it() -> Iterator[None]:
        try:
            yield
        except GearError:
            raise
        except (Exception, SystemExit) as error:
            raise GearError(f"reward function {name!r} raised {one_line(error)}.") from error

    def checked(*args: Any, **kwargs: Any) -> list[float | None]:
        with naming_it():
            rewards = function(*args, **kwargs)
        return check(rewards, len(kwargs["prompts"]))

    async def checked_async(*args: Any, **kwargs: Any) -> list[float | None]:
        with naming_it():
            rewards = await function(*args, **kwargs)
        return check(rewards, len(kwargs["prompts"]))

    is_async = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)
    chosen = checked_async if is_async else checked
    chosen.__name__ = name  # what TRL calls it in logs
    return chosen
