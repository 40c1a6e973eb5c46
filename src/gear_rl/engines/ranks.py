"""Who else takes part in a step: one process alone, or several that must agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.functional import pad

from gear_rl.errors import GearError

T = TypeVar("T")


class Ranks(Protocol):
    """All processes call the same methods in the same order."""

    index: int
    size: int

    def total(self, count: Tensor) -> Tensor:
        """The sum of a number () over all processes."""

    def most(self, count: int) -> int:
        """The largest of a number over all processes."""

    def rows(self, values: Tensor) -> Tensor:
        """This process's rows (b, …) → those of all processes in order (B, …). Where widths differ, 0 fills the right."""

    def objects(self, value: T) -> list[T]:
        """What each process gives, in order."""

    def wait(self) -> None:
        """Go on once all processes are here."""


class Alone:
    """One process."""

    index, size = 0, 1

    def total(self, count: Tensor) -> Tensor:
        return count.float()

    def most(self, count: int) -> int:
        return count

    def rows(self, values: Tensor) -> Tensor:
        return values

    def objects(self, value: T) -> list[T]:
        return [value]

    def wait(self) -> None:
        pass


class Processes:
    """The processes of torch's process group. `device`: where tensors of collective calls have to be."""

    def __init__(self, device: torch.device) -> None:
        self.index, self.size = dist.get_rank(), dist.get_world_size()
        self._device = torch.device("cpu") if dist.get_backend() == "gloo" else device

    def total(self, count: Tensor) -> Tensor:
        summed = count.to(self._device, torch.float32).clone()
        dist.all_reduce(summed)
        return summed.to(count.device)

    def most(self, count: int) -> int:
        largest = torch.tensor([count], device=self._device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    def rows(self, values: Tensor) -> Tensor:
        here = values.to(self._device)
        here = here.byte() if values.dtype == torch.bool else here
        if here.ndim > 1:
            here = pad(here, [0, 0] * (here.ndim - 2) + [0, self.most(here.shape[1]) - here.shape[1]])
        counts = self.objects(len(here))
        here = torch.cat([here, here.new_zeros(max(counts) - len(here), *here.shape[1:])]).contiguous()
        parts = [torch.empty_like(here) for _ in range(self.size)]
        dist.all_gather(parts, here)
        return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)]).to(values.device, values.dtype)

    def objects(self, value: T) -> list[T]:
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def wait(self) -> None:
        dist.barrier()


def join(device: torch.device) -> Ranks:
    """All processes of this run, or this one alone."""
    return Processes(device) if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 else Alone()


def weighted_means(ranks: Ranks, values: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Name → (mean in this process, over how many) → the mean over all processes; 0 over nothing."""
    sums, counts = dict[str, float](), dict[str, float]()
    for part in ranks.objects(dict(values)):
        for name, (value, count) in part.items():
            sums[name] = sums.get(name, 0.0) + value * count
            counts[name] = counts.get(name, 0.0) + count
    return {name: total / counts[name] if counts[name] else 0.0 for name, total in sums.items()}


def check_agreement(ranks: Ranks, what: str, settings: Mapping[str, Any]) -> None:
    """Every process must have the same settings: they would wait for one another forever, or train different methods."""
    mine = {name: repr(value) for name, value in settings.items()}
    everyone = ranks.objects(mine)
    for index, theirs in enumerate(everyone):
        for name in sorted({*everyone[0], *theirs}):
            first, other = everyone[0].get(name, "not set"), theirs.get(name, "not set")
            if first != other:
                raise GearError(
                    f"the processes of this run have different {what}: {name} is {first} in process 0 and {other} in "
                    f"process {index}. Start all with the same arguments."
                )
