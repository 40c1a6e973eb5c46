"""Where a model's parameters lie, and how they are read and swapped there: whole in this process, or in shards.

    plain   every process has all of them (one process, DDP, ZeRO-1 and 2)
    FSDP2   each process has a shard of each (`gear_rl.scoring.sharded_weights`)
    ZeRO-3  each process has a partition of each (the same module)

Shards are never made whole all at once, except for sampling (`whole`): a forward pass gathers one layer at a time through
the framework's own hooks, and a head is gathered alone. Such a pass needs all processes, so all must run the same number
of passes: `most` says how many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from gear_rl.errors import GearError
from gear_rl.scoring.body import body_of, has_virtual_tokens, unwrapped
from gear_rl.scoring.head import Head
from gear_rl.scoring.sharded_weights import FSDP2, Zero3, kind_of, looks_sharded

T = TypeVar("T")


class Layout(Protocol):
    """One way that parameters lie."""

    name: str
    sharded: bool
    """Whether a forward pass needs the other processes."""
    parameters: dict[str, nn.Parameter]
    """The trainable ones."""

    def shard(self, name: str) -> Tensor:
        """What this process holds of a parameter; writing to it changes the parameter."""

    def swap(self, shadow: dict[str, Tensor]) -> None:
        """Exchange the parameters' values with those of `shadow`, which has their shards."""

    def gathered(self, name: str, shard: Tensor) -> Tensor:
        """The whole of a tensor from every process's shard of it. All processes call it."""

    def part(self, name: str, whole: Tensor) -> Tensor:
        """The inverse: this process's shard."""

    def at_rest(self) -> None:
        """Let modules show parameters as they lie between forward passes."""

    def reading(self, function: Callable[[], T]) -> T:
        """`function()`, a forward pass of the model's body or of a part of it."""

    def head_weight(self, weight: Tensor, trainable: bool) -> Tensor:
        """A parameter of the head, whole. `trainable`: gradients reach the parameter."""

    def whole(self) -> AbstractContextManager[None]:
        """Inside, each process has all weights, and forward passes need no other process."""


class Weights:
    """A model's parameters. Look at `layout` late: an engine may shard them after it has been given the model.

    sharded_later: the engine will shard the model before its first step.
    """

    def __init__(self, model: Any, sharded_later: bool = False) -> None:
        wrapped = any(hasattr(model, name) for name in ("module", "_orig_mod"))
        self.model = unwrapped(model) if wrapped else model
        self._later = sharded_later
        self.divided_by = 1
        """Of a scoring pass's usual size only this part is read at once: memory has run out (`gear_rl.scoring.backing_off`)."""
        self._layout: Layout | None = None

    @staticmethod
    def of(model: Any) -> Weights:
        return model if isinstance(model, Weights) else Weights(model)

    @property
    def ready(self) -> bool:
        """Whether the parameters lie where they will be trained."""
        return not self._later or self.layout.sharded

    @property
    def layout(self) -> Layout:
        if self._layout is None or (not self._layout.sharded and looks_sharded(self.model)):
            self._layout = layout_of(self.model)
        return self._layout

    @property
    def sharded(self) -> bool:
        return self.layout.sharded

    def shards(self) -> dict[str, Tensor]:
        """A copy of what this process holds of each trainable parameter."""
        return {name: self.layout.shard(name).detach().clone() for name in self.layout.parameters}

    @contextmanager
    def swapped(self, shadow: dict[str, Tensor]) -> Iterator[None]:
        """Inside, the model has the weights in `shadow`, and `shadow` has the model's."""
        if shadow.keys() - self.layout.parameters.keys():
            raise GearError("the kept weights are not those of this model's trainable parameters.")
        self.layout.swap(shadow)
        try:
            yield
        finally:
            self.layout.swap(shadow)

    @property
    def body(self) -> Body:
        return Body(self)

    def head(self, trainable: bool = False) -> Head:
        """The output head as it stands now. It stays as it is when weights are swapped afterwards.

        trainable: with gradients to the parameters themselves. Otherwise it is cut off from them.
        """
        layout = self.layout
        layout.at_rest()
        head = Head.of(self.model, gather=(lambda w: layout.head_weight(w, trainable)) if layout.sharded else None)
        if not trainable or layout.sharded:
            return head
        parameters = {p.data_ptr(): p for p in self.model.parameters()}
        found = [None if w is None else parameters.get(w.data_ptr()) for w in (head.weight, head.bias)]
        if found[0] is None or (head.bias is not None and found[1] is None):
            raise GearError("the head's weight is none of the model's parameters, so the loss could not train it.")
        return replace(head, weight=found[0], bias=found[1])

    def part_of(self, budget: int) -> int:
        """Tokens of one pass, where `budget` is the usual number."""
        return max(1, budget // self.divided_by)

    def most(self, passes: int) -> int:
        """How many passes each process has to run, where this one has `passes`."""
        if not self.sharded or not torch.distributed.is_initialized():
            return passes
        count = torch.tensor([passes], device=_communicating(next(self.model.parameters()).device))
        torch.distributed.all_reduce(count, torch.distributed.ReduceOp.MAX)
        return int(count)

    def whole(self) -> AbstractContextManager[None]:
        return self.layout.whole()


class Body:
    """The model's body, to be called as itself: ids in, hidden states out, its weights gathered on the way."""

    def __init__(self, weights: Weights) -> None:
        self._weights, self._body = weights, body_of(weights.model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if has_virtual_tokens(self._weights.model):
            raise GearError(
                "an adapter puts virtual tokens before the prompt (prompt or prefix tuning), and the model's body does not see "
                "those. Use LoRA or another adapter of weights."
            )
        return self._weights.layout.reading(lambda: self._body(*args, **kwargs))

    @property
    def sharded(self) -> bool:
        return self._weights.sharded

    def embedded(self, ids: Tensor) -> Tensor:
        """The input embeddings of `ids`."""
        return self._weights.layout.reading(lambda: self._body.get_input_embeddings()(ids))

    def idle(self, device: torch.device) -> None:
        """A pass for the sake of the other processes, which have more to read."""
        self(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device), use_cache=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


class Plain:
    name, sharded = "plain", False

    def __init__(self, model: nn.Module) -> None:
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def shard(self, name: str) -> Tensor:
        return self.parameters[name].data

    def swap(self, shadow: dict[str, Tensor]) -> None:
        for name in shadow:  # pointer by pointer
            self.parameters[name].data, shadow[name] = shadow[name], self.parameters[name].data

    def gathered(self, name: str, shard: Tensor) -> Tensor:
        return shard

    def part(self, name: str, whole: Tensor) -> Tensor:
        return whole

    def at_rest(self) -> None:
        pass

    def reading(self, function: Callable[[], T]) -> T:
        return function()

    def head_weight(self, weight: Tensor, trainable: bool) -> Tensor:
        return weight

    def whole(self) -> AbstractContextManager[None]:
        return nullcontext()


def layout_of(model: Any) -> Layout:
    """How `model`'s parameters lie now."""
    layouts: dict[str, type[Layout]] = {"plain": Plain, "FSDP2": FSDP2, "ZeRO-3": Zero3}
    return layouts[kind_of(model)](model)  # type: ignore[call-arg]


def _communicating(device: torch.device) -> torch.device:
    """Where the process group's tensors must be."""
    return device if torch.distributed.get_backend() != "gloo" else torch.device("cpu")
