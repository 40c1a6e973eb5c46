"""Parameters in shards: FSDP2 (torch's `fully_shard`) and DeepSpeed ZeRO-3. Any other kind is unsupported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from gear_rl.errors import GearError

T = TypeVar("T")


def kind_of(model: nn.Module) -> str:
    """ "plain", "FSDP2" or "ZeRO-3"."""
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    if isinstance(model, FSDPModule):
        return "FSDP2"
    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise GearError("the model is sharded by FSDP 1, which is not supported: set fsdp_version: 2.")
    for parameter in model.parameters():
        if hasattr(parameter, "ds_id"):
            return "ZeRO-3"
        if isinstance(parameter, DTensor):
            raise GearError(
                f"{type(model).__name__} has sharded parameters (DTensor), but is not an FSDP2 root module: tensor "
                "parallelism, or `fully_shard` on some layers only, is not supported."
            )
    return "plain"


def looks_sharded(model: nn.Module) -> bool:
    """Cheap: asked again and again."""
    from torch.distributed.fsdp import FSDPModule

    return isinstance(model, FSDPModule) or hasattr(next(model.parameters(), None), "ds_id")


class FSDP2:
    """Each parameter is a DTensor, and a module's forward gathers those of its group (`fully_shard`).

    Parameters are kept as they are between forwards: while a group is gathered, the module shows other objects.
    """

    name, sharded = "FSDP2", True

    def __init__(self, model: Any) -> None:
        from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method

        self.model = model
        self.groups = [module for module in model.modules() if isinstance(module, FSDPModule)]
        self.at_rest()
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not hasattr(
            model, "gear_reading"
        ):  # the body alone is no FSDP root: it is read inside the model's own hooks
            model.gear_reading = lambda function: function()
            register_fsdp_forward_method(model, "gear_reading")

    def at_rest(self) -> None:
        for group in self.groups:
            group.reshard()

    @torch.no_grad()
    def shard(self, name: str) -> Tensor:
        return self.parameters[name].detach().to_local()

    @torch.no_grad()
    def swap(self, shadow: dict[str, Tensor]) -> None:
        """By content: FSDP keeps pointers of its own into the shards. What is gathered has the old values, and goes."""
        self.at_rest()
        for name, kept in shadow.items():
            mine = self.shard(name)
            held = mine.clone()
            mine.copy_(kept)
            kept.copy_(held)

    @torch.no_grad()
    def gathered(self, name: str, shard: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        like = self.parameters[name]
        return DTensor.from_local(
            shard, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        ).full_tensor()

    @torch.no_grad()
    def part(self, name: str, whole: Tensor) -> Tensor:
        from torch.distributed.tensor import distribute_tensor

        like = self.parameters[name]
        whole = whole.to(like.device)
        return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None).to_local()

    def reading(self, function: Callable[[], T]) -> T:
        try:
            return self.model.gear_reading(function)
        except Exception:
            self.model.reset_iter_state()  # or the next forward would find this one half done
            raise

    def head_weight(self, weight: Any, trainable: bool) -> Tensor:
        from torch.distributed.tensor import DTensor, Partial

        if not isinstance(weight, DTensor):
            raise GearError("the head's weight is gathered or not sharded while the model is: FSDP2 left it out.")
        if not (trainable and weight.requires_grad):
            with torch.no_grad():
                return weight.full_tensor().detach()
        mesh = weight.device_mesh
        whole = weight.full_tensor(grad_placements=[Partial()] * mesh.ndim)
        # FSDP averages gradients over processes; gloo cannot average, so it is a sum over their number
        whole.register_hook(lambda gradient: gradient / mesh.size())
        return whole

    @contextmanager
    def whole(self) -> Iterator[None]:
        self.reading(lambda: None)  # FSDP sets itself up in the first forward of its root
        states = [group._get_fsdp_state()._fsdp_param_groups for group in self.groups]
        before = [(group, group.post_forward_mesh_info) for groups in states for group in groups]
        self.model.set_reshard_after_forward(False)
        try:
            for group in self.groups:
                group.unshard()
            yield
        finally:
            for parameters, mesh in before:
                parameters.post_forward_mesh_info = mesh
            self.at_rest()


class Zero3:
    """Each parameter's data is empty, and its partition is `ds_tensor`; forward hooks gather it. Small parameters
    ("persistent") stay gathered all the time."""

    name, sharded = "ZeRO-3", True

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def shard(self, name: str) -> Tensor:
        return self.parameters[name].ds_tensor.data  # type: ignore[attr-defined]

    @torch.no_grad()
    def swap(self, shadow: dict[str, Tensor]) -> None:
        from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

        swapped: list[Any] = [self.parameters[name] for name in shadow]
        gathered = [p for p in swapped if p.ds_status == ZeroParamStatus.AVAILABLE]
        for name, kept in shadow.items():
            mine = self.shard(name)
            held = mine.clone()
            mine.copy_(kept)
            kept.copy_(held)
        if gathered:  # all processes have the same ones gathered
            for parameter in gathered:
                parameter.partition(has_been_updated=False)
            gathered[0].all_gather(gathered)

    def gathered(self, name: str, shard: Tensor) -> Tensor:
        parameter: Any = self.parameters[name]
        parts = [torch.empty_like(shard) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(parts, shard.contiguous())
        return torch.cat(parts)[: parameter.ds_numel].view(parameter.ds_shape)

    def part(self, name: str, whole: Tensor) -> Tensor:
        size, rank = self.shard(name).numel(), torch.distributed.get_rank()
        mine = torch.zeros_like(self.shard(name))
        piece = whole.flatten()[rank * size : (rank + 1) * size]
        mine[: piece.numel()] = piece
        return mine

    def at_rest(self) -> None:
        pass  # its hooks leave nothing gathered

    def reading(self, function: Callable[[], T]) -> T:
        return function()

    def head_weight(self, weight: Any, trainable: bool) -> Tensor:
        from deepspeed.runtime.zero.partition_parameters import GatheredParameters

        if not hasattr(weight, "ds_id"):
            return weight
        with GatheredParameters([weight]):
            if trainable and weight.requires_grad:
                return _Copy.apply(weight)
            return weight.detach().clone()

    @contextmanager
    def whole(self) -> Iterator[None]:
        raise GearError("ZeRO-3: sample inside the engine's own context (TRL's unwrap_model_for_generation).")
        yield


class _Copy(torch.autograd.Function):
    """A copy that outlives the gathered parameter; its gradient is the parameter's."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient
