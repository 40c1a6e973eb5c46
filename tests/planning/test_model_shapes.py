"""Dimensions of models, and the numbers that follow from them."""

import json
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from gear_rl.errors import GearError
from gear_rl.planning.model_shapes import KNOWN, find_shape

PUBLISHED = {  # billions of parameters
    "Qwen3-0.6B": 0.6, "Qwen3-1.7B": 1.7, "Qwen3-4B": 4.0, "Qwen3-8B": 8.2, "Qwen3-14B": 14.8, "Qwen3-32B": 32.8,
    "Qwen2.5-7B": 7.6, "Llama-3.2-1B": 1.24, "Llama-3.1-8B": 8.0, "Llama-3.1-70B": 70.6, "SmolLM2-135M": 0.135,
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_model_has_as_many_parameters_as_published(name):
    assert KNOWN[name].parameters / 1e9 == pytest.approx(PUBLISHED[name], rel=0.02)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("make", [LlamaConfig, Qwen3Config])
def test_a_folder_is_counted_as_transformers_counts_it(make, tied, tmp_path):
    config = make(hidden_size=256, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2, head_dim=32,
                  intermediate_size=512, vocab_size=1000, tie_word_embeddings=tied)  # fmt: skip
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        real = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    shape = find_shape(str(tmp_path))
    assert shape.tied is tied
    assert shape.parameters == pytest.approx(real, rel=0.003)  # norms are left out
    text = f"hidden=256,layers=3,heads=8,kv_heads=2,intermediate=512,vocab=1000,tied={str(tied).lower()}"
    assert replace(find_shape(text), name=shape.name) == shape


def test_names_are_found_as_people_write_them():
    assert find_shape("Qwen/Qwen3-4B") is find_shape("qwen3-4b") is find_shape("Qwen3-4B-Base") is KNOWN["Qwen3-4B"]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("Qwen3-5B", "Did you mean"),
        (" ", "empty"),
        ("hidden=64", "lack layers"),
        ("hidden=64,layers=x", "whole number"),
        ("hidden=0,layers=2,heads=2,intermediate=4", "hidden=0"),
        ("hidden=64,layers=2,heads=3,kv_heads=2,intermediate=4", "no multiple"),
        ("hidden=64,depth=2", "unknown dimension"),
        ("hidden=99999999999999999999,layers=2,heads=2,intermediate=4", "whole number"),
        ("hidden=64,layers=2,heads=2,intermediate=4,tied=yes", "true or false"),
    ],
)
def test_bad_models(model, said):
    with pytest.raises(GearError, match=said):
        find_shape(model)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("[]", "holds an empty list"),
        (json.dumps({"hidden_size": 4}), "lacks num_hidden_layers"),
        (json.dumps({"num_experts": 8}), "mixture of experts"),
        (json.dumps({"hidden_size": "64", "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 4,
                     "vocab_size": 9}), "must be a whole number"),
    ],
)  # fmt: skip
def test_bad_configurations(content, said, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(GearError, match=said):
        find_shape(str(tmp_path))


def test_a_folder_without_a_configuration(tmp_path):
    with pytest.raises(GearError, match=r"without config\.json"):
        find_shape(str(tmp_path))
