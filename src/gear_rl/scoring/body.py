"""The transformer without its head: what scoring runs, so that no (T, V) logits ever exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gear_rl.errors import GearError

Ids = list[list[int]]


def unwrapped(model: Any) -> Any:
    """The model inside what accelerate or torch wrapped around it (DistributedDataParallel, torch.compile)."""
    while not hasattr(model, "get_output_embeddings"):
        inner = getattr(model, "module", None) or getattr(model, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            raise GearError(f"{type(model).__name__} is no Hugging Face causal language model.")
        model = inner
    return model


def has_virtual_tokens(model: Any) -> bool:
    """Whether an adapter (prompt tuning, prefix tuning) puts tokens of its own before the prompt: the body alone lacks them."""
    return any(getattr(adapter, "is_prompt_learning", False) for adapter in getattr(model, "peft_config", {}).values())


def body_of(model: Any) -> Any:
    """Ids in, final hidden states (B, T, D) out. Of a PEFT model the inner one, with its adapters in place."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    body = base.get_decoder() if hasattr(base, "get_decoder") else getattr(base, "base_model", None)
    if body is None or body is base:
        raise GearError(f"{type(base).__name__} has no separate body: scoring needs hidden states before the head.")
    return body


def rounds(model: nn.Module) -> bool:
    """Whether a forward pass rounds to 16 bits: then two ways to the same number agree only so far."""
    weight = next(model.parameters())
    return weight.dtype.itemsize < 4 or torch.is_autocast_enabled(weight.device.type)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No dropout, no gradients, and every module's mode restored: scoring must not move the random state.

    Past `nn.Module.__setattr__`: of a small model, `eval()` and `train()` cost as much as a tenth of a scoring pass.
    """
    training = [module for module in model.modules() if module.training]
    for module in training:
        vars(module)["training"] = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            vars(module)["training"] = True


@contextmanager
def reading_states(model: Any) -> Iterator[list[Tensor]]:
    """Inside, each forward of the model's body leaves its last hidden states (B, T, D) in the list."""
    read: list[Tensor] = []
    hook = body_of(model).register_forward_hook(lambda _, __, output: read.append(output[0]))
    try:
        yield read
    finally:
        hook.remove()


def has_dropout(model: nn.Module) -> bool:
    """Whether a forward in training mode differs from one in evaluation mode: dropout layers, LoRA's too, or attention's."""
    layers = any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in model.modules())
    names = ("attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop", "hidden_dropout", "dropout")
    config = getattr(model, "config", None)
    return layers or any(getattr(config, name, None) for name in names)


def plain_logprobs(
    model: Any, prompts: Ids, completions: Ids, action_mask: Tensor, temperature: float, every: bool = False
) -> Tensor:
    """The naive reference of all that scoring does: one sequence at a time through the whole model, full logits. (B, T)

    every: read empty completions too, so that processes with as many rollouts run as many passes.
    """
    out = torch.zeros(action_mask.shape, device=action_mask.device)
    for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        if not completion and not every:
            continue
        ids = torch.tensor([prompt + completion], device=action_mask.device)
        logits = model(input_ids=ids).logits[0].float() / temperature
        logps = logits[:-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        out[i, : len(completion)] = logps[len(prompt) - 1 :][: len(completion)]
    return out * action_mask
