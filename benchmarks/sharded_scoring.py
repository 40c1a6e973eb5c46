"""Does scoring take longer where FSDP2 has sharded the weights? Simulated in one process; `step_cost.py --sharded` runs it.

One process is rank 0 of several that do not exist. Its weights are cut by `fully_shard`, layer by layer, and every forward
gathers them again through FSDP2's own hooks and streams. Only the transfer is simulated: the shard is copied into the
place of each rank's, and the stream then waits as long as the link would still take. The copy writes what a transfer
would write; a real one also keeps a few multiprocessors busy while it lasts, which this does not show. The values are
meaningless (every shard is the first), the work is not: that sharded and whole weights give the same signals is tested on
two real processes.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from random_qwen3 import RandomRollouts, Size, random_model
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.scoring.weights import Weights

LINKS = {"no link at all": math.inf, "NVLink, 360 GB/s": 360e9, "400 Gbit/s network, 45 GB/s": 45e9}
"""Bytes/s that an all-gather brings into a GPU: a node's other GPUs, other nodes. The first is what FSDP2 costs itself."""
REPEATS = 7


class CopiedShards:
    """Stands in for FSDP2's all-gather."""

    def __init__(self, shards: int, device: torch.device) -> None:
        self.shards, self.on_gpu, self.link = shards, device.type == "cuda", math.inf
        self.copied = math.inf  # bytes/s of the copy itself
        self.cycles = 0.0  # of the GPU's clock, per second
        if self.on_gpu:
            self.cycles = 1e8 / min(_seconds(lambda: torch.cuda._sleep(10**8), device) for _ in range(3))
            out = torch.empty(2**28, dtype=torch.uint8, device=device)
            self.copied = 2**28 / min(
                _seconds(lambda: self(out, out[: 2**28 // shards], None), device) for _ in range(9)
            )

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        mine = input_tensor.clone()  # it lies in the output
        output_tensor.view(self.shards, -1).copy_(mine.expand(self.shards, -1))
        size = output_tensor.numel() * output_tensor.element_size()
        left = size * (self.shards - 1) / self.shards / self.link - size / self.copied
        if self.on_gpu and left > 0:
            torch.cuda._sleep(int(left * self.cycles))

    def whole(self, weight: Any) -> Tensor:
        """In the place of `DTensor.full_tensor`, for the head."""
        local = weight.detach().to_local()
        out = self.allocate((self.shards * local.numel(),), dtype=local.dtype, device=local.device)
        self(out, local.flatten(), None)
        return out[: weight.numel()].view(weight.shape)


def sharded(size: Size, device: torch.device, dtype: torch.dtype, gather: CopiedShards) -> Weights:
    model: Any = random_model(size.shape, device, dtype)
    mesh = init_device_mesh(device.type, (gather.shards,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(gather)  # type: ignore[arg-type]
    weights = Weights(model)
    weights.layout.head_weight = lambda weight, trainable: gather.whole(weight)  # type: ignore[method-assign]
    return weights


def compare(size: Size, device: torch.device, shards: int) -> dict[str, Any]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=shards)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    gather = CopiedShards(shards, device)
    models = {
        "whole": Weights(random_model(size.shape, device, dtype)),
        "sharded": sharded(size, device, dtype, gather),
    }
    score = {name: _scoring(weights, size, device) for name, weights in models.items()}
    out: dict[str, Any] = {"shards": shards, "links": {}}
    for link, gather.link in LINKS.items():
        times: dict[str, list[float]] = {name: [] for name in score}
        for i in range(REPEATS + 2):
            for name, run in score.items():  # in turns
                seconds = _seconds(run, device)
                if i > 1:
                    times[name].append(seconds)
        medians = {name: 1e3 * statistics.median(taken) for name, taken in times.items()}
        ratios = sorted(a / b for a, b in zip(times["sharded"], times["whole"], strict=True))
        ratio = statistics.median(ratios)
        out["links"][link] = {"ms": medians, "ratio": ratio, "ratios": ratios}
        print(
            f"{size.shape.name}, {size.rollouts} rollouts, {shards} shards, simulated, {link}: scoring of whole weights "
            f"{medians['whole']:.1f} ms, sharded {medians['sharded']:.1f} ms, {ratio:.3f} "
            f"({ratios[0]:.3f}–{ratios[-1]:.3f})",
            flush=True,
        )
    return out


def _scoring(weights: Weights, size: Size, device: torch.device) -> Any:
    rollouts = RandomRollouts(size, device)
    rows = [row for row in rollouts.rows for _ in range(size.rollouts // len(rollouts.rows))]
    own = rollouts.tokenize([row["prompt"] for row in rows], rows)
    hinted = rollouts.tokenize(["hinted"] * len(rows), rows)
    ids = torch.tensor(rollouts.completions, device=device)
    mask = torch.ones_like(ids, dtype=torch.bool)
    scorer, teacher = Scorer(weights), Teacher(weights)
    return lambda: scorer.score(own, hinted, ids, mask, teacher)


def _seconds(run: Any, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began
