"""The rotary kernel against transformers, and a whole forward with it. `test_fused_forward.py` runs this file in a process of
its own; without a GPU the kernel runs in Triton's interpreter."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from gear_rl.sampling.decoding import Decoder
from gear_rl.sampling.graph_decoding import GraphDecoder
from gear_rl.sampling.rotary_kernel import rotate

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


@pytest.mark.parametrize("kind", [(LlamaForCausalLM, LlamaConfig), (Qwen3ForCausalLM, Qwen3Config)])
def test_a_forward_with_fewer_kernels_is_the_same_forward(kind):
    torch.manual_seed(0)
    model = kind[0](kind[1](**SHAPE, **HEADS)).to(DEVICE, torch.bfloat16).eval()
    fast, slow = GraphDecoder(model, graphs=False), Decoder(model)
    plain = modeling_llama.apply_rotary_pos_emb
    assert len(fast.fused_forward.norms) >= 5 and len(fast.fused_forward.rotary) == 1
    with torch.no_grad():
        for ids in ([[5, 6, 7], [8, 9]], [[3], [4]], [[1, 2, 3], [4]], [[3], [4]]):
            torch.testing.assert_close(fast.read(ids), slow.read(ids), atol=0.02, rtol=0.02)
    assert fast.plain is False and fast.fused_forward.kernels
    assert modeling_llama.apply_rotary_pos_emb is plain  # theirs again outside of a forward
