"""A decoder layer of Llama's form in nine kernels, for a forward of a few tokens with a static cache.

    x  = norm(h)                  1
    q, k, v = x W                 1, where the three weights lie side by side in memory (`lay_side_by_side`), else 4
    rotate q and k, store k, v    1
    attention                     1 (`attention_kernel`)
    h += a W                      1: the residual is the product's third operand
    x  = norm(h)                  1
    gate, up = x W                1, or 3
    silu(gate) · up               1
    h += m W                      1

Of layers that are not known to compute exactly this, none is replaced; and the decoder compares the first token with the
model's own forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm

KNOWN = {
    f"transformers.models.{family}.modeling_{family}.{name}DecoderLayer"
    for family, name in (("llama", "Llama"), ("mistral", "Mistral"), ("qwen2", "Qwen2"))
}
SIDE_BY_SIDE = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def known_layers(model: nn.Module, norms: Sequence[nn.Module]) -> list[Any]:
    """All decoder layers of the model, if each has the form above; else none. `norms`: those proven to be plain."""
    layers = [module for module in model.modules() if type(module).__name__.endswith("DecoderLayer")]
    return layers if layers and all(_is_known(layer, set(norms)) for layer in layers) else []


def _is_known(layer: Any, plain: set[nn.Module]) -> bool:
    if f"{type(layer).__module__}.{type(layer).__qualname__}" not in KNOWN:
        return False
    if not plain.issuperset((layer.input_layernorm, layer.post_attention_layernorm)):
        return False
    attention, mlp = layer.self_attn, layer.mlp
    linears = [getattr(attention, name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")]
    linears += [getattr(mlp, name) for name in ("gate_proj", "up_proj", "down_proj")]
    touched = any("forward" in vars(m) or m._forward_hooks or m._forward_pre_hooks for m in (layer, attention, mlp, *linears))
    biases = [one.bias is not None for one in linears if isinstance(one, nn.Linear)]
    as_known = biases in ([False] * 7, [True] * 3 + [False] * 4) and all(type(one) is nn.Linear for one in linears)
    return as_known and not touched and type(mlp.act_fn).__name__ in ("SiLU", "SiLUActivation")


@torch.no_grad()
def lay_side_by_side(model: nn.Module) -> None:
    """Gives weights that are multiplied with the same input one buffer, so that one product serves them all. Parameters keep
    their values and stay what they are; for a copy that only samples."""
    for module in model.modules():
        for names in SIDE_BY_SIDE:
            parts = [getattr(module, name, None) for name in names]
            if not all(type(part) is nn.Linear and part.weight.is_contiguous() for part in parts):
                continue
            for kind in ("weight", "bias"):
                held = [getattr(part, kind) for part in parts]
                if all(isinstance(one, Tensor) for one in held) and len({one.shape[1:] for one in held}) == 1:
                    whole = torch.cat([one.data for one in held])
                    for one, place in zip(held, whole.split([one.size(0) for one in held]), strict=True):
                        one.data = place


def joined(parts: Sequence[Tensor]) -> Tensor | None:
    """The parts as one tensor, without a copy; None where they do not lie side by side."""
    first, end = parts[0], parts[0].storage_offset()
    for part in parts:
        same = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (same and part.storage_offset() == end and part.is_contiguous()):
            return None
        end += part.numel()
    rows = sum(part.size(0) for part in parts)
    return first.detach().as_strided((rows, *first.shape[1:]), first.stride(), first.storage_offset())


def _products(x: Tensor, parts: Sequence[Any]) -> Tensor:
    """x (N, C) by several linear layers → (N, all their features)."""
    weight = joined([part.weight for part in parts])
    has_bias = parts[0].bias is not None
    bias = joined([part.bias for part in parts]) if has_bias else None
    if weight is None or (has_bias and bias is None):
        return torch.cat([linear(x, part.weight, part.bias) for part in parts], dim=1)
    return linear(x, weight, bias)


def forward(
    layer: Any, hidden_states: Tensor, attention_mask: Tensor, past_key_values: Any,
    position_embeddings: tuple[Tensor, Tensor], **_: Any,
) -> Tensor:  # fmt: skip
    """In place of the layer's own. hidden_states (B, tokens, C), changed in place; attention_mask (B, 1, tokens, capacity),
    True where a token sees a column; past_key_values: the decoder's buffers."""
    from gear_rl.sampling.attention_kernel import attention as attend
    from gear_rl.sampling.layer_kernels import store, swiglu

    attention, mlp = layer.self_attn, layer.mlp
    keys, values = past_key_values.keys[attention.layer_idx], past_key_values.values[attention.layer_idx]
    columns, heads = past_key_values.columns, attention.q_proj.out_features // attention.head_dim
    with torch.autocast(hidden_states.device.type, enabled=False):
        hidden = hidden_states.view(-1, hidden_states.size(-1))
        x = _norm(layer.input_layernorm, hidden)
        qkv = _products(x, (attention.q_proj, attention.k_proj, attention.v_proj))
        store(qkv, *position_embeddings, keys, values, columns, heads)
        read = attend(qkv, keys, values, attention_mask, columns, heads, attention.scaling)
        hidden.addmm_(read, attention.o_proj.weight.t())
        x = _norm(layer.post_attention_layernorm, hidden)
        hidden.addmm_(swiglu(_products(x, (mlp.gate_proj, mlp.up_proj))), mlp.down_proj.weight.t())
    return hidden_states


def _norm(norm: Any, hidden: Tensor) -> Tensor:
    return rms_norm(hidden, norm.weight.shape, norm.weight, norm.variance_epsilon)
