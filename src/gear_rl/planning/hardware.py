"""GPUs, and how fast they are. The H200's rates were measured; every other GPU's are scaled by its data sheet."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gear_rl.errors import GearError, unknown_name


@dataclass(frozen=True)
class Gpu:
    name: str
    memory: float
    """GiB"""
    tflops: float
    """Dense bf16 with float32 sums, by the data sheet."""
    bandwidth: float
    """TB/s of its memory, by the data sheet."""
    node_link: float
    """GB/s into one GPU from the others of its node. Assumed."""


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("H200", 139.8, 989, 4.8, 360),
        Gpu("H100", 79.6, 989, 3.35, 360),
        Gpu("B200", 178.0, 2250, 8.0, 720),
        Gpu("A100-80GB", 79.3, 312, 2.04, 240),
        Gpu("A100-40GB", 39.4, 312, 1.56, 240),
        Gpu("L40S", 44.4, 362, 0.86, 25),
        Gpu("RTX4090", 23.6, 165, 1.01, 12),
    )
}
MEASURED_ON = GPUS["H200"]
NETWORK = 45.0
"""GB/s into one GPU from other nodes: 400 Gbit/s each. Assumed."""
NODE = 8
"""GPUs of a node. Assumed."""


def find_gpu(name: str, memory: float | None = None) -> Gpu:
    """`memory`: GiB, where it is another than the usual."""
    found = {known.lower(): gpu for known, gpu in GPUS.items()}.get(name.lower())
    if found is None:
        raise unknown_name("GPU", name, GPUS)
    if memory is None:
        return found
    if not 1 <= memory <= 10_000:
        raise GearError(f"--gpu-memory {memory:g}: must be from 1 to 10,000 GiB.")
    return replace(found, memory=memory)


def this_gpu() -> Gpu | None:
    """The first GPU of this machine; None: there is none, or none that is known."""
    import torch

    if not torch.cuda.is_available():
        return None
    here = torch.cuda.get_device_properties(0)
    return known_gpu(here.name, here.total_memory / 2**30)


def known_gpu(name: str, memory: float) -> Gpu | None:
    """The GPU that a driver calls `name` ("NVIDIA A100-SXM4-40GB"), with the `memory` in GiB that it has; None: not known.
    Of two with the same name it is the one whose memory is nearest."""
    plain = name.replace(" ", "").lower()
    known = [gpu for ours, gpu in GPUS.items() if ours.split("-")[0].lower() in plain]
    found = min(known, key=lambda gpu: abs(gpu.memory - memory), default=None)
    return found and replace(found, memory=memory)


@dataclass(frozen=True)
class Rates:
    """How fast one GPU works. Fitted to `benchmarks/step_cost.py` on one H200 (docs/scaling.md shows how well)."""

    product: float
    """FLOP/s of matrix products."""
    attention: float
    """FLOP/s of attention."""
    memory: float
    """Bytes/s."""

    @staticmethod
    def of(gpu: Gpu) -> Rates:
        compute = gpu.tflops / MEASURED_ON.tflops
        return Rates(690e12 * compute, 350e12 * compute, 4.3e12 * gpu.bandwidth / MEASURED_ON.bandwidth)
