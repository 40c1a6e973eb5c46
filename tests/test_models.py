"""Models load in the dtype they run in, and what is computed from the configuration stays exact."""

import pytest
import torch

from gear_rl.errors import printable
from gear_rl.models import context_of, load_model


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_are_read_in_the_dtype_they_run_in(workshop, dtype):
    """And the rotary frequencies stay in float32, unrounded."""
    exact, _ = load_model(workshop.default_model(), "cpu")
    model, _ = load_model(workshop.default_model(), "cpu", dtype)
    wanted = getattr(torch, dtype)
    frequencies = [name for name, _ in exact.named_buffers() if "inv_freq" in name]
    assert frequencies and {weight.dtype for weight in model.parameters()} == {wanted}
    for name in frequencies:
        ours = model.get_buffer(name)
        assert ours.dtype == torch.float32 and torch.equal(ours, exact.get_buffer(name))
    for (name, weight), (_, long) in zip(model.named_parameters(), exact.named_parameters(), strict=True):
        assert torch.equal(weight, long.to(wanted)), name


def test_room():
    class Config:
        max_position_embeddings = 7

    assert context_of(Config()) == 7 and context_of(object()) > 10**9


def test_printable_text_cannot_steer_a_terminal():
    assert printable("\x1b[31mred\r\n\u202e") == "?[31mred???" and printable("a\tb", " ") == "a b" and printable("é") == "é"
