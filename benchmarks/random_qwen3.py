"""Qwen3's architecture with random weights, and rollouts of random tokens: times are those of real ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from gear_rl.planning.model_shapes import KNOWN, ModelShape
from gear_rl.sampling.graph_decoding import decoder_for
from gear_rl.sampling.sampler import Sampler
from gear_rl.scoring.body import evaluating
from gear_rl.signals.sources import TaskKnowledge

GROUP = 8
HINT = 64


@dataclass(frozen=True)
class Size:
    shape: ModelShape
    prompt: int
    completion: int
    rollouts: int
    """Of one optimizer step, `GROUP` of each prompt."""


SIZES = {
    "tiny": Size(ModelShape("tiny", 64, 2, 4, 2, 16, 128, 512, True), 48, 24, 16),
    "0.6b": Size(KNOWN["Qwen3-0.6B"], 512, 256, 64),
    "1.7b": Size(KNOWN["Qwen3-1.7B"], 1024, 512, 32),
    "4b": Size(KNOWN["Qwen3-4B"], 1024, 512, 32),
}


def random_model(shape: ModelShape, device: torch.device, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(**shape.config(), max_position_embeddings=40_960, pad_token_id=0)
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            return Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(default)


class OneState(TaskKnowledge):
    """Every rollout began in the same state: what GiGPO asks a task for."""

    signals = frozenset({"anchor_state"})

    def token_signals(self, sampled: Any) -> dict[str, list[list[float]]]:
        return {"anchor_state": [[1.0] * len(ids) for ids in sampled.completion_ids]}


class RandomRollouts:
    """A `RolloutSampler` (see gear_rl.engines.trl): completions of random tokens, or sampled by our own sampler where
    `sampling` is on. All have the same length: no way has padding to pay for."""

    verdicts: Sequence[Any] = ()

    def __init__(self, size: Size, device: torch.device) -> None:
        draw = torch.Generator().manual_seed(1)
        vocab = size.shape.vocab

        def ids(n: int) -> list[int]:
            return torch.randint(1, vocab, (n,), generator=draw).tolist()

        prompts = size.rollouts // GROUP
        self.size, self.sampling = size, False
        self.own = [ids(size.prompt) for _ in range(prompts)]
        hint = min(HINT, size.prompt // 4)
        self.hinted = [[*own[:-4], *ids(hint), *own[-4:]] for own in self.own]  # within the last message
        self.completions = [ids(size.completion) for _ in range(size.rollouts)]
        self.rows = [{"prompt": f"p{i}", "hint": f"h{i}"} for i in range(prompts)]
        self._copy = Sampler("bfloat16" if device.type == "cuda" else "float32")

    def tokenize(self, prompts: Sequence[Any], rows: Sequence[dict[str, Any]]) -> list[list[int]]:
        side = [self.own if prompt == row["prompt"] else self.hinted for prompt, row in zip(prompts, rows, strict=True)]
        return [ids[int(row["prompt"][1:])] for ids, row in zip(side, rows, strict=True)]

    def sample(
        self, rows: list[dict[str, Any]], policy: Any, step: int = 0, first: int | None = None
    ) -> dict[str, Any]:
        prompts = self.tokenize([row["prompt"] for row in rows], rows)
        completions = self._sampled(prompts, policy) if self.sampling else self.completions
        return {"prompt_ids": prompts, "completion_ids": completions, "logprobs": None}

    def _sampled(self, prompts: list[list[int]], policy: Any) -> list[list[int]]:
        """Always to the full length: random weights know no end."""
        model = self._copy(policy)
        with evaluating(model):
            decoder = decoder_for(model)
            pending, out = prompts, [list[int]() for _ in prompts]
            for _ in range(self.size.completion):
                drawn = torch.multinomial(decoder.read(pending).softmax(-1), 1).tolist()
                for row, token in zip(out, drawn, strict=True):
                    row.extend(token)
                pending = drawn
        return out

    def forget_copy(self) -> None:
        self._copy = Sampler(self._copy.precision)


def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Differs within every group, so that no advantage is 0."""
    return [float(i % GROUP + sum(ids) % 7) for i, ids in enumerate(completion_ids)]
