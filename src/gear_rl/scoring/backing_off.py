"""Memory that runs out while scoring: read again in passes of half the size, and of that size from then on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import nn

from gear_rl.errors import GearError
from gear_rl.models import free_memory, is_out_of_memory
from gear_rl.scoring.weights import Weights

SMALLEST = 2**10
"""The least part of a pass. Rollouts are read one by one long before that."""
log = logging.getLogger("gear_rl")


def backing_off(function: Callable[..., Any]) -> Callable[..., Any]:
    """For a function whose first argument is a Scorer, a model or its Weights, and whose passes `Weights.part_of` bounds."""

    @wraps(function)
    def read(first: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(first, nn.Module):
            first = Weights.of(first)
        while True:
            try:
                return function(first, *args, **kwargs)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                _halve(first if isinstance(first, Weights) else first.weights, error)

    return read


def _halve(weights: Weights, error: RuntimeError) -> None:
    advice = "Shorter rollouts, LoRA or a smaller model need less; `gear plan` computes it."
    if weights.sharded:
        raise GearError(
            f"memory ran out while scoring with sharded weights, where no process can make its passes smaller alone. {advice}"
        ) from error
    if weights.divided_by >= SMALLEST:
        raise GearError(f"memory ran out while scoring, one rollout at a time too. {advice}") from error
    weights.divided_by *= 2
    free_memory(error)
    log.warning("memory ran out while scoring: passes have 1/%d of their size from here on.", weights.divided_by)
