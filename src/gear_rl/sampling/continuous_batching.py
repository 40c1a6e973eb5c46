"""Turns sampled by transformers' continuous batching: a paged cache, shared prefixes, no padding.

One manager per batch of rollouts, so that no cached prefix outlives the weights it was computed with. All turns of a round
are submitted while the generation loop rests, and awaited together: which requests share a forward then depends on the
batch alone, and the same seed gives the same rollouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from gear_rl.errors import GearError
from gear_rl.models import context_of
from gear_rl.sampling.turns import Request, Seeds, Turn, TurnSampler

CPU_PAGE, CPU_FORWARD, CPU_CACHE = 32, 256, 2**16
"""On a CPU: tokens of a page of the cache, of a forward, and of the cache at most. transformers, which sizes them by the
memory of a GPU, would fill the machine's memory (two minutes for the embedded model)."""
PATIENCE = 600.0
"""Seconds without any finished turn after which we give up."""


class ContinuousTurns:
    """`close` ends its thread."""

    def __init__(self, policy: Any, ends: set[int], temperature: float, seed: int, top_p: float = 1.0) -> None:
        self._policy, self._ends, self._temperature, self._seed = policy, ends, temperature, seed
        self._top_p = top_p
        self._manager: Any = None
        self._waiting: dict[str, Request] = {}
        self._round = 0

    def submit(self, requests: list[Request]) -> None:
        first = self._manager is None
        if first:
            self._manager = self._open(len(requests))
        self._round += 1
        with nullcontext() if first else self._manager.pause():
            for request in requests:
                name = f"{self._round}-{request.rollout}"
                self._waiting[name] = request
                self._manager.add_request(request.context, request_id=name, max_new_tokens=request.most)
        if first:
            self._manager.start()

    def finished(self) -> list[Turn]:
        found: dict[str, Turn] = {}
        while len(found) < len(self._waiting):
            result = self._manager.get_result(timeout=PATIENCE)
            if result is None or result.error is not None:
                raise GearError(f"continuous batching could not sample: {result.error if result else 'no answer'}.")
            if result.is_finished():
                tokens = list(result.generated_tokens)
                rollout = self._waiting[result.request_id].rollout
                found[result.request_id] = Turn(rollout, tokens, tokens[-1] in self._ends)
        turns = [found[name] for name in self._waiting]
        self._waiting.clear()
        return turns

    def close(self) -> None:
        if self._manager is not None:
            self._manager.stop(block=True, timeout=PATIENCE, hard_stop=True)
            self._manager.destroy()

    def _open(self, rollouts: int) -> Any:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        generation = GenerationConfig(
            do_sample=True, temperature=self._temperature, top_k=0, top_p=self._top_p, eos_token_id=sorted(self._ends),
            pad_token_id=min(self._ends),
        )  # fmt: skip
        config = ContinuousBatchingConfig(seed=self._seed)
        if self._policy.device.type == "cpu":
            config.page_size, config.max_batch_tokens = CPU_PAGE, CPU_FORWARD
            config.num_blocks = -(-min(rollouts * context_of(self._policy.config), CPU_CACHE) // CPU_PAGE)
        return self._policy.init_continuous_batching(generation, config)


@contextmanager
def continuous_turns(
    policy: Any, ends: set[int], temperature: float, rngs: Seeds = None, top_p: float = 1.0
) -> Iterator[TurnSampler]:
    """Random numbers: one stream for the whole batch, whose seed is drawn from torch's global state. Numbers of its own for
    each rollout (`rngs`) are not possible."""
    if rngs is not None:
        raise GearError("continuous batching has one stream of random numbers for a batch, not one per rollout.")
    sampler = ContinuousTurns(policy, ends, temperature, int(torch.randint(2**31, ())), top_p)
    training = policy.training
    on_gpu = [policy.device] if policy.device.type == "cuda" else []
    with torch.random.fork_rng(devices=on_gpu):  # the seed is set for the whole process
        try:
            yield sampler
        finally:
            sampler.close()
            policy.train(training)  # transformers leaves it in evaluation mode
