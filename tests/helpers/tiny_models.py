"""Tiny models of real families with random weights, random rollouts, and the slowest honest scorer to compare with."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM
from transformers.models.bloom import BloomConfig
from transformers.models.gemma2 import Gemma2Config
from transformers.models.gemma3 import Gemma3TextConfig
from transformers.models.gpt2 import GPT2Config
from transformers.models.llama import LlamaConfig
from transformers.models.mamba import MambaConfig
from transformers.models.mistral import MistralConfig
from transformers.models.qwen2_moe import Qwen2MoeConfig
from transformers.models.qwen3 import Qwen3Config

from gear_rl.scoring.scorer import SIGNALS

VOCAB = 97
_SIZE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256)  # fmt: skip
_NO_IDS = dict(bos_token_id=None, eos_token_id=None)
CONFIGS = {
    "llama": lambda: LlamaConfig(**_SIZE),
    "qwen3": lambda: Qwen3Config(**_SIZE, head_dim=16),
    "gpt2": lambda: GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=256, **_NO_IDS),
    "mistral": lambda: MistralConfig(**_SIZE, sliding_window=9),
    "gemma3": lambda: Gemma3TextConfig(
        **_SIZE, head_dim=8, sliding_window=9, layer_types=["sliding_attention", "full_attention"]
    ),
    "qwen2_moe": lambda: Qwen2MoeConfig(
        **_SIZE, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, shared_expert_intermediate_size=16
    ),
    # those whose prompts cannot be shared
    "gemma2": lambda: Gemma2Config(**_SIZE, head_dim=8, sliding_window=9),
    "bloom": lambda: BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4),
    "mamba": lambda: MambaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2),
}
SHARING = ("llama", "qwen3", "gpt2", "mistral", "gemma3", "qwen2_moe")


def tiny(family, seed=0):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[family]())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)  # wide enough that attention to a wrong token shows
    return model.eval()


@dataclass
class Batch:
    prompts: list
    hinted: list
    completions: list
    mask: torch.Tensor

    def __iter__(self):
        return iter((self.prompts, self.hinted, self.completions, self.mask))

    def rows(self, keep):
        pick = [[values[i] for i in keep] for values in (self.prompts, self.hinted, self.completions)]
        return Batch(*pick, self.mask[keep])


def rollouts(groups=2, size=4, prompt=(23, 14), completion=(0, 20), hint=5, seed=0):
    """A hinted prompt begins like the prompt. Among the completions: an empty one, one of one token, one all masked."""
    draw = random.Random(seed)

    def ids(n):
        return [draw.randrange(VOCAB) for _ in range(n)]

    own = [ids(prompt[g % len(prompt)]) for g in range(groups)]
    hinted = [p[:-2] + ids(hint) + p[-2:] for p in own]
    completions = [ids(draw.randint(*completion)) for _ in range(groups * size)]
    completions[1], completions[2] = [], ids(1)
    mask = torch.zeros(len(completions), max(map(len, completions)) + 2, dtype=torch.bool)
    for i, c in enumerate(completions):
        for j in range(len(c)):
            mask[i, j] = draw.random() < 0.8
    mask[2, 0], mask[3] = True, False
    # equal prompts as equal lists, not as one: as an engine hands them over
    return Batch(
        [list(own[i // size]) for i in range(len(mask))],
        [list(hinted[i // size]) for i in range(len(mask))],
        completions,
        mask,
    )


@torch.no_grad()
def from_full_logits(model, batch, temperature, teacher_model=None):
    """All four signals from log-softmaxes of full logits, one sequence at a time."""
    out = {name: torch.zeros(batch.mask.shape) for name in SIGNALS}

    def log_softmax(of, prompt, completion):
        ids = torch.tensor([prompt + completion])
        return (of(input_ids=ids).logits[0, len(prompt) - 1 : -1] / temperature).log_softmax(-1)

    for i, (prompt, hinted, completion, mask) in enumerate(zip(*batch, strict=True)):
        if not completion:
            continue
        p, q = log_softmax(model, prompt, completion), log_softmax(teacher_model or model, hinted, completion)
        ids = torch.tensor(completion)[:, None]
        values = (
            (p.exp() * (p - q)).sum(1),
            -(p.exp() * p).sum(1),
            p.gather(1, ids)[:, 0],
            q.gather(1, ids)[:, 0],
        )
        for name, value in zip(SIGNALS, values, strict=True):
            out[name][i, : len(completion)] = value * mask[: len(completion)]
    return out


def largest_gap(left, right):
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


class Passes:
    """Counts what goes through a model's body: tokens of each forward pass, and the largest tensor in it."""

    def __init__(self, body):
        self.tokens, self.largest = [], 0
        self._hooks = [body.register_forward_pre_hook(self._before, with_kwargs=True)]
        self._hooks += [module.register_forward_hook(self._after) for module in body.modules()]

    def _before(self, module, args, kwargs):
        self.tokens.append(kwargs["input_ids"].numel())

    def _after(self, module, args, output):
        for tensor in output if isinstance(output, tuple) else [output]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for hook in self._hooks:
            hook.remove()
