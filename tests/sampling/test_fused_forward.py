"""Fewer kernels for a forward: the same numbers, and other models' functions are left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gear_rl.sampling import fused_forward
from gear_rl.sampling.fused_forward import FusedForward
from gear_rl.sampling.graph_decoding import GraphDecoder

CASES = Path(__file__).parents[1] / "helpers" / "sampling_kernel_cases.py"


def test_the_kernels_equal_transformers():
    pytest.importorskip("triton")
    environment = os.environ | ({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"})
    command = [sys.executable, "-m", "pytest", str(CASES), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and "[100%]" in done.stdout, done.stdout[-4000:]


def test_only_the_plain_rotary_function_is_replaced():
    from transformers.models.cohere import modeling_cohere  # interleaved
    from transformers.models.glm import modeling_glm  # a part of each head, interleaved
    from transformers.models.llama import modeling_llama

    assert fused_forward._is_plain(modeling_llama.apply_rotary_pos_emb)
    assert not fused_forward._is_plain(modeling_cohere.apply_rotary_pos_emb)
    assert not fused_forward._is_plain(modeling_glm.apply_rotary_pos_emb)
    assert not fused_forward._is_plain(lambda q, k: (q, k))


def test_a_fused_forward_that_differs_is_given_up_first(model_and_tokenizer, caplog, monkeypatch):
    """Here norms are replaced by something else: the static cache stays, the norms become the model's own."""
    model = model_and_tokenizer[0]

    class Wrong(FusedForward):
        def __init__(self, model, kernels):
            super().__init__(model, kernels)
            self.norms = [model.model.norm] if kernels else []

    monkeypatch.setattr("gear_rl.sampling.graph_decoding.FusedForward", Wrong)
    monkeypatch.setattr("gear_rl.scoring.fused_norms._forward", lambda norm, hidden: 9 * hidden.flip(-1))
    fast = GraphDecoder(model, graphs=False)
    with torch.no_grad():
        for ids in ([[5, 6, 7], [8, 9]], [[3], [4]], [[3], [4]], [[3], [4]]):
            fast.read(ids)
    assert "without fused kernels" in caplog.text and "CUDA graphs" not in caplog.text
    assert fast.plain is False and not fast.fused_forward.kernels
