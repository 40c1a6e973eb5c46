"""`gear train` in several processes: `torchrun --nproc_per_node 2 --no-python gear train …`, or `accelerate launch`.

The first process makes the run folder, evaluates and writes; the others wait. All train, each its part of every batch.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch

from gear_rl.engines.ranks import Alone, Ranks, join
from gear_rl.errors import GearError
from gear_rl.training.config import TrainOptions

T = TypeVar("T")
LONGEST_WAIT = timedelta(hours=6)
"""For another process: the first one evaluates while the others wait. A process that died is noticed at once."""
_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL", "timed out", "Timed out")


def join_processes(device: str) -> Ranks:
    """The processes that were launched with this one. `device`: train.device."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return Alone()
    if ":" in device:
        raise GearError(f"train.device={device} is one device for all processes: leave it out, or say cpu or cuda.")
    from accelerate import PartialState

    cpu = device == "cpu" or not torch.cuda.is_available()
    return join(PartialState(cpu=cpu, timeout=LONGEST_WAIT).device)


def in_first(ranks: Ranks, function: Callable[[], T]) -> T:
    """`function()` in the first process; its result in all. What it refuses is said once, and ends all."""
    result, refused = None, None
    if ranks.index == 0:
        try:
            result = function()
        except GearError as error:
            refused = str(error)
    result, refused = ranks.objects((result, refused))[0]
    if refused is not None:
        raise GearError(refused) if ranks.index == 0 else SystemExit(2)
    return result  # type: ignore[return-value]


def rollouts_here(options: TrainOptions, processes: int) -> tuple[int, int]:
    """(rollouts of a step that one process samples, how many of them go through the model at once)."""
    rollouts = options.prompts * options.generations
    if rollouts % processes:
        raise GearError(
            f"train.prompts × train.generations are {rollouts} rollouts a step, which {processes} processes cannot share "
            "evenly: change one of the three."
        )
    here = rollouts // processes
    part = options.rollouts_per_pass or here
    if here % part:
        raise GearError(
            f"train.rollouts_per_pass={part}: must divide the {here} rollouts that each of {processes} processes samples."
        )
    return here, part


@contextmanager
def naming_lost_processes(ranks: Ranks, folder: Path) -> Iterator[None]:
    """When a process dies, the others see it in their next exchange, or the launcher ends them before (SIGTERM). Either way
    they say so."""
    if ranks.size == 1:
        yield
        return

    def lost(why: str) -> GearError:
        return GearError(
            f"another process of this run died, so process {ranks.index} stopped ({why}). Checkpoints are whole. "
            f"Resume with {ranks.size} processes: gear train --resume {folder}"
        )

    def ended(*_: Any) -> None:
        raise lost("ended by the launcher")

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    except Exception as error:
        if is_lost_process(error):
            raise lost(str(error).splitlines()[0][:200]) from error
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def is_lost_process(error: Exception) -> bool:
    """Whether `error` is what the others see when a process dies."""
    return isinstance(error, torch.distributed.DistError) or any(words in str(error) for words in _LOST)
