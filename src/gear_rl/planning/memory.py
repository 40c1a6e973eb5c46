"""Bytes on one GPU at the fullest moment of a step."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil

from gear_rl.methods import Method
from gear_rl.planning.readings import keeps_weights, readings
from gear_rl.planning.sampling import cache_bytes, sampler_weights, waves
from gear_rl.planning.setup import PRECISION, Setup
from gear_rl.scoring.batching import MOST_TOKENS

GIB = 2**30
RESERVE = 1.5 * GIB
"""The CUDA context, libraries' workspaces."""
SPARE = 0.08
"""Share of a GPU's memory that is left for fragments."""
HEAD_CHUNK = 0.6 * GIB
"""Logits of the loss that exist at a time."""


@dataclass(frozen=True)
class Memory:
    """Bytes. Training, scoring and sampling come one after another: only the largest of the three counts."""

    weights: float
    optimizer: float
    teacher: float
    gradients: float
    activations: float
    """Training: kept for the backward pass, one layer recomputed, weights gathered from shards."""
    scoring: float
    sampling: float
    """The sampler's weights and its cache."""
    sampling_waves: int = 1
    """In how many parts a GPU's rollouts are sampled."""
    accumulates: bool = False
    """Whether a step has several micro-batches."""

    @property
    def resident(self) -> float:
        return self.weights + self.optimizer + self.teacher + RESERVE

    @property
    def training(self) -> float:
        """The last micro-batch's activations are freed as gradients appear; AdamW then needs as much again as they take.
        With several micro-batches the gradients of the earlier ones are there too."""
        return max(self.activations + self.gradients * self.accumulates, 2 * self.gradients)

    @property
    def peak(self) -> float:
        return self.resident + max(self.training, self.scoring, self.sampling)

    def as_gib(self) -> dict[str, float]:
        parts = {name: value / GIB for name, value in asdict(self).items() if isinstance(value, float)}
        return {**parts, "reserve": RESERVE / GIB, "training": self.training / GIB, "peak": self.peak / GIB}


def usable(setup: Setup) -> float:
    return (1 - SPARE) * setup.gpu.memory * GIB


def memory(method: Method, setup: Setup) -> Memory:
    """With `setup.micro_batch` rollouts in a backward pass; 0: one."""
    shape, size = setup.shape, PRECISION[setup.precision]
    trained, shards = setup.trained, setup.shards
    frozen = shape.parameters if setup.lora else 0
    weights = (size * trained + 2 * frozen) / shards
    tokens = (setup.micro_batch or 1) * setup.length
    layers = shape.layers if not setup.checkpointing else 1
    activations = 2 * shape.layers * shape.hidden * tokens * setup.checkpointing + layers * layer_bytes(setup) * tokens
    read = readings(method, setup)
    most = min(MOST_TOKENS, max((reading.tokens for reading in read), default=0))
    kept = sum(2 * setup.here * setup.completion * shape.hidden for reading in read if reading.distilled)
    gathered = 2 * 2 * shape.layer_parameters + 2 * 2 * shape.head if shards > 1 else 0
    teacher = keeps_weights(method, setup) * size * trained / shards
    optimizer = 2 * size * trained / shards
    parts = waves(setup, usable(setup) - weights - optimizer - teacher - RESERVE)
    return Memory(
        weights=weights,
        optimizer=optimizer,
        teacher=float(teacher),
        gradients=size * trained / shards,
        activations=activations + HEAD_CHUNK + gathered + min(kept, 2 * GIB),
        scoring=float(scoring_bytes(setup) * most + gathered),
        sampling=sampler_weights(setup) + ceil(setup.here / parts) * setup.length * cache_bytes(setup),
        sampling_waves=parts,
        accumulates=(setup.micro_batch or 1) < setup.here,
    )


def layer_bytes(setup: Setup) -> float:
    """Per token: what one layer holds between its forward and its backward."""
    s = setup.shape
    return 2 * (12 * s.hidden + 5 * (s.heads + s.kv_heads) * s.head_dim + 5 * s.intermediate)


def scoring_bytes(setup: Setup) -> float:
    """Per token of a pass without gradient."""
    s = setup.shape
    return 2 * (8 * s.hidden + 4 * (s.heads + s.kv_heads) * s.head_dim + 2 * s.intermediate)
