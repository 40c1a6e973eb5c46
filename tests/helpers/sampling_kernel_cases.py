"""Kernels of sampling against transformers, and a whole forward with them. `test_fused_forward.py` runs this file in a
process of its own; without a GPU the kernels run in Triton's interpreter."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)  # fmt: skip
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from gear_rl.sampling.attention_kernel import MOST_QUERIES, attention
from gear_rl.sampling.decoding import Decoder
from gear_rl.sampling.fused_layers import joined
from gear_rl.sampling.graph_decoding import GraphDecoder
from gear_rl.sampling.layer_kernels import swiglu
from gear_rl.sampling.rotary_kernel import rotate
from gear_rl.sampling.sampler import Sampler

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPE = {"vocab_size": 50, "hidden_size": 48, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 12}
HEADS = {"num_attention_heads": 6, "num_key_value_heads": 2, "pad_token_id": 0}


@pytest.mark.parametrize(("batch", "tokens", "heads", "groups", "width"), [(3, 1, 9, 3, 64), (2, 5, 4, 4, 12)])
@pytest.mark.parametrize("rows", [1, None])
def test_equals_transformers(batch, tokens, heads, groups, width, rows):
    draw = torch.Generator().manual_seed(0)
    q, k = (torch.randn(batch, tokens, n, width, generator=draw).to(DEVICE).transpose(1, 2) for n in (heads, groups))
    cos, sin = (torch.randn(rows or batch, tokens, width, generator=draw).to(DEVICE) for _ in range(2))
    expected = apply_rotary_pos_emb(q, k, cos, sin)
    torch.testing.assert_close(rotate(q, k, cos, sin), expected)


def test_swiglu_equals_torch():
    both = torch.randn(5, 2 * 1100, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    gate, up = both.chunk(2, dim=1)
    torch.testing.assert_close(swiglu(both), torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize(
    ("batch", "tokens", "heads", "groups", "width", "start"),
    [(3, 1, 9, 3, 64, 70), (2, 8, 6, 2, 12, 5), (2, 3, 4, 4, 16, 64), (1, 30, 9, 3, 64, 150), (2, 1, 2, 1, 32, 0)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_equals_torch(batch, tokens, heads, groups, width, start, dtype):
    draw = torch.Generator().manual_seed(0)
    qkv = torch.randn(batch * tokens, (heads + 2 * groups) * width, generator=draw).to(DEVICE, dtype)
    keys, values = (torch.randn(batch, groups, 256, width, generator=draw).to(DEVICE, dtype) for _ in range(2))
    columns = start + torch.arange(tokens, device=DEVICE)
    seen = torch.rand(batch, 1, 1, 256, generator=draw).to(DEVICE) < 0.7
    seen = (seen & (torch.arange(256, device=DEVICE) <= columns[:, None])).contiguous()
    seen[:, 0, torch.arange(tokens), columns] = True
    keys[:, :, start + tokens :] = values[:, :, start + tokens :] = torch.nan  # unused columns are not read
    found = attention(qkv, keys, values, seen, columns, heads, 0.3)
    queries = qkv[:, : heads * width].view(batch, tokens, heads, width).transpose(1, 2).double()
    k, v = (x.nan_to_num().double().repeat_interleave(heads // groups, 1) for x in (keys, values))
    expected = torch.nn.functional.scaled_dot_product_attention(queries, k, v, attn_mask=seen, scale=0.3)
    expected = expected.transpose(1, 2).reshape(batch * tokens, -1)
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
    assert tokens < 30 or tokens * heads // groups > MOST_QUERIES  # one case with several programs for a head


FAMILIES = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}, 2),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": None}, 2),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}, 2),  # its queries, keys and values have a bias
    "llama with another activation": (LlamaForCausalLM, LlamaConfig, {"hidden_act": "gelu"}, 0),
    "llama with biases": (LlamaForCausalLM, LlamaConfig, {"attention_bias": True}, 0),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {}, 0),  # norms of queries and keys
}
"""Model, configuration, options, and how many layers are replaced as a whole."""


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_forward_with_fewer_kernels_is_the_same_forward(family, side_by_side):
    torch.manual_seed(0)
    kind, config, options, layers = FAMILIES[family]
    model = kind(config(**SHAPE, **HEADS, **options)).to(DEVICE).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():  # as made, biases are 0 and layers hardly change what they read
            weight.normal_(float("norm" in name), 0.25)
    model = Sampler("bfloat16")(model) if side_by_side else model.to(torch.bfloat16)
    weights = [part.weight for part in (model.model.layers[0].mlp.gate_proj, model.model.layers[0].mlp.up_proj)]
    assert (joined(weights) is not None) == side_by_side
    fast, slow = GraphDecoder(model, graphs=False), Decoder(model)
    plain = modeling_llama.apply_rotary_pos_emb
    assert len(fast.fused_forward.norms) >= 5 and len(fast.fused_forward.rotary) == 1
    assert len(fast.fused_forward.layers) == layers
    with torch.no_grad():
        for ids in ([[5, 6, 7], [8, 9]], [[3], [4]], [[1, 2, 3], [4]], [[3], [4]]):
            ours, theirs = fast.read(ids).softmax(-1), slow.read(ids).softmax(-1)
            torch.testing.assert_close(ours, theirs, atol=0.02, rtol=0.02)
            assert float(theirs.max()) > 0.1  # not so flat that anything would agree
    assert fast.plain is False and fast.fused_forward.kernels
    assert modeling_llama.apply_rotary_pos_emb is plain  # theirs again outside of a forward
    assert "forward" not in vars(model.model.layers[0])


def test_layers_that_somebody_changed_are_left_alone():
    model = LlamaForCausalLM(LlamaConfig(**SHAPE, **HEADS)).to(DEVICE, torch.bfloat16)
    assert len(GraphDecoder(model).fused_forward.layers) == 2
    hook = model.model.layers[1].mlp.register_forward_hook(lambda *_: None)
    assert not GraphDecoder(model).fused_forward.layers
    hook.remove()
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert not GraphDecoder(adapted).fused_forward.layers
