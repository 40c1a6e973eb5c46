"""Test only: rollouts for verl by transformers, one Ray actor per replica with its own copy of the model."""

from __future__ import annotations

import asyncio
import os
import zlib
from collections import Counter

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

WEIGHTS = "GEAR_TEST_WEIGHTS"
"""A folder: each replica leaves there the weights that it is given."""


@ray.remote(num_cpus=0)
class HFCounter:
    """How often a prompt was asked in a step, whichever replica was asked: rollouts do not depend on the number of workers."""

    def __init__(self):
        self.step, self.asked = 0, Counter()

    def next(self, step, prompt_ids):
        if step != self.step:
            self.step, self.asked = step, Counter()
        self.asked[prompt_ids] += 1
        return self.asked[prompt_ids]


@ray.remote(num_cpus=0)
class HFServer:
    def __init__(self, path, rank):
        torch.set_num_threads(1)
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.end = AutoTokenizer.from_pretrained(path).eos_token_id
        self.step, self.rank, self.asked = 0, rank, []
        self.counter = HFCounter.options(name="hf_counter", get_if_exists=True).remote()

    @torch.no_grad()
    def _sample(self, asked):
        """One batch, prompts padded on the left. Each is seeded by what is asked, not by the order in which rollouts ask: a
        resumed run draws as the first one did."""
        seeds = [zlib.crc32(repr((self.step, prompt, number)).encode()) for prompt, number, *_ in asked]
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        width = max(len(prompt) for prompt, *_ in asked)
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt, *_ in asked])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt, *_ in asked])
        place, cache = (mask.cumsum(1) - 1).clamp(min=0), None
        said, logps = [[] for _ in asked], [[] for _ in asked]
        left = list(range(len(asked)))
        while left:
            out = self.model(
                input_ids=ids, attention_mask=mask, position_ids=place, past_key_values=cache, use_cache=True, logits_to_keep=1
            )
            cache, logits = out.past_key_values, out.logits[:, -1].float()
            tokens = [self.end] * len(asked)
            for i in left:
                temperature = asked[i][2]
                logp = (logits[i] / (temperature or 1.0)).log_softmax(-1)
                drawn = torch.multinomial(logp.exp(), 1, generator=generators[i]) if temperature else logp.argmax()
                tokens[i] = int(drawn)
                said[i].append(tokens[i])
                logps[i].append(float(logp[tokens[i]]))
            left = [i for i in left if said[i][-1] != self.end and len(said[i]) < asked[i][3]]
            ids, place = torch.tensor(tokens)[:, None], place[:, -1:] + 1
            mask = torch.cat([mask, torch.ones_like(ids)], 1)
        return list(zip(said, logps, strict=True))

    async def generate(self, request_id, prompt_ids, sampling_params, **_):
        number = await self.counter.next.remote(self.step, tuple(prompt_ids))
        answer = asyncio.get_running_loop().create_future()
        temperature, most = sampling_params.get("temperature", 1.0), sampling_params.get("max_tokens", 8)
        self.asked.append((list(prompt_ids), number, temperature, most, answer))
        if len(self.asked) == 1:
            await asyncio.sleep(0.02)  # for others to ask along
            asked, self.asked = self.asked, []
            for (*_, waits), found in zip(asked, self._sample(asked), strict=True):
                waits.set_result(found)
        said, logps = await answer
        return TokenOutput(
            token_ids=said, log_probs=logps, stop_reason="completed", extra_fields={"global_steps": self.step}
        )

    async def load(self, weights, step):
        unexpected = self.model.load_state_dict(dict(weights), strict=False).unexpected_keys
        self.step = step
        if folder := os.environ.get(WEIGHTS):
            torch.save(dict(weights), f"{folder}/weights-{step}-{self.rank}.pt")
        return unexpected

    async def sleep(self, *args, **kwargs): ...
    async def wake_up(self, *args, **kwargs): ...
    async def abort_all_requests(self, *args, **kwargs): ...
    async def resume_generation(self, *args, **kwargs): ...
    async def clear_kv_cache(self, *args, **kwargs): ...
    async def release_kv_cache(self, *args, **kwargs): ...
    async def resume_kv_cache(self, *args, **kwargs): ...


class HFReplica(RolloutReplica):
    async def launch_servers(self):
        name = f"hf_server_{self.replica_rank}"
        server = HFServer.options(name=name).remote(self.model_config.path, self.replica_rank)
        self.servers, self._server_handle, self._server_address = [server], server, name


class HFAdapter(BaseRollout):
    """In the training worker: takes the weights out of the engine and hands them to its replica."""

    sleep_level = 2

    def __init__(self, config, model_config, device_mesh, *args, **kwargs):
        super().__init__(config, model_config, device_mesh)
        self.rank = torch.distributed.get_rank()

    async def resume(self, tags): ...
    async def release(self): ...

    async def update_weights(self, weights, global_steps=0, **kwargs):
        named = [(name, weight.detach().to("cpu").clone()) for name, weight in weights]
        unexpected = await ray.get_actor(f"hf_server_{self.rank}").load.remote(named, global_steps)
        if unexpected:
            raise RuntimeError(f"weights that do not fit the replica: {unexpected}")
