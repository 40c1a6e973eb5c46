"""The sampler's weights, its cache and its time: token by token, all weights and the cache so far are read for each."""

from __future__ import annotations

from math import ceil

from gear_rl.planning.hardware import Rates
from gear_rl.planning.setup import Setup
from gear_rl.sampling.graph_decoding import SPARE

TOKEN = 0.0035
"""Fitted to our own sampler: seconds of a token of all rollouts beside reading. From before kernels were fused; less now."""
READ = 0.36
"""Fitted to our own sampler: rate of reading weights and cache, over that of a copy."""
WEIGHTS_SHARE = 0.45
"""Of a GPU's memory, for the sampler's weights. Assumed."""


def cache_bytes(setup: Setup) -> int:
    """Of keys and values in bf16, per token of context."""
    return 2 * 2 * setup.shape.layers * setup.shape.kv_heads * setup.shape.head_dim


def tensor_parallel(setup: Setup) -> int:
    """Over how many GPUs the sampler splits the weights."""
    split = 1
    while 2 * setup.shape.parameters / split > WEIGHTS_SHARE * setup.gpu.memory * 2**30 and split * 2 <= setup.gpus:
        split *= 2
    return split


def sampler_weights(setup: Setup) -> float:
    return 2 * setup.shape.parameters / tensor_parallel(setup)


def waves(setup: Setup, free: float) -> int:
    """In how many parts a GPU's rollouts are sampled, so that weights and cache fit into `free` bytes; at most one
    rollout at a time."""
    rollout = setup.length * cache_bytes(setup)
    at_once = max(1, int((free - sampler_weights(setup)) // rollout))
    return ceil(setup.here / at_once)


def sampling_time(setup: Setup, parts: int = 1) -> float:
    """Seconds on one GPU, in `parts` waves."""
    rates = Rates.of(setup.gpu)
    read = setup.here * (setup.prompt + (setup.turns - 1) * setup.reply)
    prefill = 2 * setup.shape.body * read / rates.product
    mean_length = setup.prompt + setup.response / 2 + SPARE / 2  # free columns are read too
    cache = setup.here / parts * cache_bytes(setup) * mean_length
    token = TOKEN + (sampler_weights(setup) + cache) / (READ * rates.memory)
    return prefill + parts * setup.completion * token
