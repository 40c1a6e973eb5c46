"""SmolLM2-135M's architecture with random weights: times are the same, what it says is not. Tiny where there is no GPU."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def random_model(device: torch.device, dtype: torch.dtype) -> Any:
    full = device.type == "cuda"
    shape = dict(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3
    )
    small = dict(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        **(shape if full else small),
        vocab_size=49_152 if full else 512,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).to(device, dtype).eval()
