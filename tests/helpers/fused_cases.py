"""The Triton kernels against the naive reference. `test_fused.py` runs this file, in a process of its own.

Without a GPU they run in Triton's interpreter: the same source, element by element. To see single cases:

    TRITON_INTERPRET=1 python -m pytest tests/helpers/fused_cases.py
"""

import math

import divergence_inputs
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gear_rl.errors import GearError
from gear_rl.scoring import Head, self_check, token_divergence
from gear_rl.scoring.backends import fused
from gear_rl.scoring.backends.problem import Problem

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EXTRA = ("forward_kl", "jensen_shannon")
HALF = [torch.bfloat16, torch.float16]
DTYPES = HALF if DEVICE.type == "cuda" else [torch.float32, *HALF]


def draw(n, width, vocab, dtype=torch.bfloat16, seed=0, size=3.0):
    return divergence_inputs.draw(n, width, vocab, dtype, seed, size, DEVICE)


def assert_equals_naive(student, teacher, head, ids, other=None, atol=5e-5, rtol=1e-5, **options):
    fast = token_divergence(student, teacher, head, ids, other, backend="fused", **options).items()
    twin = token_divergence(student, teacher, head, ids, other, backend="naive", **options).items()
    assert fast.keys() == twin.keys()
    for name, value in twin.items():
        torch.testing.assert_close(fast[name], value, atol=atol, rtol=rtol, msg=lambda m, n=name: f"{n}: {m}")


@settings(
    max_examples=3 if DEVICE.type == "cuda" else 6,  # on a GPU every shape is another compilation
    deadline=None,
    phases=[Phase.generate],  # no shrinking: the interpreter is slow, and these shapes are small already
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    n=st.integers(1, 34),  # up to three blocks of rows, seven tiles of columns and three splits in the interpreter
    width=st.integers(1, 70),
    vocab=st.integers(1, 200),
    dtype=st.sampled_from(DTYPES),
    shared=st.booleans(),
    temperature=st.floats(0.5, 2.0),
    seed=st.integers(0, 1000),
)
def test_equals_the_naive_twin_on_random_shapes(n, width, vocab, dtype, shared, temperature, seed):
    student, teacher, weight, ids = draw(n, width, vocab, dtype, seed)
    other = None if shared else draw(n, width, vocab, dtype, seed + 1)[2]
    assert_equals_naive(student, teacher, weight, ids, other, temperature=temperature, extra=EXTRA)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("form", ["hopper", "descriptors", "pointers"])
def test_all_forms_of_the_kernel(form, shared, monkeypatch):
    """Rows of 37 bf16 numbers are not 16-byte aligned, so TMA cannot read them."""
    if form == "hopper" and (DEVICE.type == "cpu" or torch.cuda.get_device_capability()[0] != 9):
        pytest.skip("needs a Hopper GPU: there is no interpreter for Gluon")
    if form != "hopper":
        monkeypatch.setattr(fused, "_gluon", lambda: False)
    width, n, vocab = 37 if form == "pointers" else 64, 35, 250
    if form == "hopper":  # more items than multiprocessors, a ragged end of everything, and padded rows
        width, n, vocab = 200, 2501, 15_003
    student, teacher, weight, ids = draw(n, width, vocab)
    head = Head(weight, vocab_size=vocab - 20)
    other = head if shared else Head(draw(1, width, vocab, seed=5)[2], vocab_size=vocab - 20)
    ids = ids % head.size
    tiles = fused.choose_tiles(Problem(student, teacher, head, other, ids, 1.0, 256 << 20), DEVICE.type == "cpu")
    assert (tiles.hopper, tiles.tma) == (form == "hopper", form != "pointers")
    assert_equals_naive(student, teacher, head, ids, other, temperature=0.9)


@pytest.mark.parametrize("extra", [(), EXTRA], ids=["four numbers", "all numbers"])
def test_one_token(extra):
    student, teacher, weight, ids = draw(1, 64, 300)
    assert_equals_naive(student, teacher, weight, ids, extra=extra)
    assert_equals_naive(student, teacher, weight, ids, draw(1, 64, 300, seed=5)[2], extra=extra)


@pytest.mark.parametrize("shared", [True, False])
def test_head_options(shared):
    student, teacher, weight, ids = draw(18, 48, 200)
    bias = torch.randn(200, device=DEVICE).bfloat16()
    for options in ({"bias": bias}, {"bias": bias, "scale": 0.5, "softcap": 2.0, "vocab_size": 170}):
        head = Head(weight, **options)
        other = None if shared else Head(draw(1, 48, 200, seed=3)[2], bias, softcap=4.0, vocab_size=head.vocab_size)
        assert_equals_naive(student, teacher, head, ids % head.size, other, extra=EXTRA, temperature=0.8)


@pytest.mark.parametrize("shared", [True, False])
def test_extreme_logits_and_a_common_offset(shared):
    student, teacher, weight, ids = draw(16, 32, 200)
    other = None if shared else Head(draw(1, 32, 200, seed=3)[2], scale=1.0)
    largest = float((student.float() @ weight.float().T).abs().max())
    huge = None if other is None else Head(other.weight, scale=1e4 / largest)
    assert_equals_naive(student, teacher, Head(weight, scale=1e4 / largest), ids, huge, atol=2e-2, rtol=1e-5)
    student[:, 0] = teacher[:, 0] = 50.0
    weight[:, 0] = 1.0
    if other is not None:
        other.weight[:, 0] = 1.0
    assert_equals_naive(student, teacher, weight, ids, other)


def test_a_maximum_that_grows_with_every_tile():
    """Sorted logits move the running maximum at each step: every rescaling counts."""
    student, teacher, weight, ids = draw(16, 32, 300, torch.float16)
    order = (student[:1].float() @ weight.float().T)[0].argsort()
    assert_equals_naive(student, teacher, weight[order].contiguous(), ids)
    assert_equals_naive(student, teacher, weight[order.flip(0)].contiguous(), ids, weight.clone())


def test_the_same_bits_on_every_run_and_in_any_batch():
    student, teacher, weight, ids = draw(40, 48, 130)
    other = draw(1, 48, 130, seed=2)[2]
    for teacher_head in (None, other):
        whole = token_divergence(student, teacher, weight, ids, teacher_head, backend="fused").items()
        again = token_divergence(student, teacher, weight, ids, teacher_head, backend="fused").items()
        part = token_divergence(student[23:], teacher[23:], weight, ids[23:], teacher_head, backend="fused").items()
        for name, value in whole.items():
            assert torch.equal(value, again[name]), name
            if DEVICE.type == "cuda":
                assert torch.equal(value[23:], part[name]), name
            else:  # the interpreter multiplies with numpy, whose products may round by the shape on some processors
                torch.testing.assert_close(value[23:], part[name], rtol=1e-5, atol=1e-6)


def test_many_launches_under_a_small_workspace():
    student, teacher, weight, ids = draw(70, 32, 130)
    smallest = 24 * 128 * 2 if DEVICE.type == "cuda" else 24 * 16 * 2
    assert_equals_naive(student, teacher, weight, ids, workspace=smallest)
    with pytest.raises(GearError, match="workspace of 100 bytes is too small"):
        token_divergence(student, teacher, weight, ids, backend="fused", workspace=100)


def test_no_tokens_nan_and_ids_outside():
    student, teacher, weight, ids = draw(5, 32, 100)
    empty = token_divergence(student[:0], teacher[:0], weight, ids[:0], backend="fused")
    assert empty.reverse_kl.shape == (0,)
    teacher[3, 7] = math.nan
    with pytest.raises(GearError, match="teacher_hidden has NaN or Inf in row 3"):
        token_divergence(student, teacher, weight, ids, backend="fused")
    with pytest.raises(GearError, match=r"token_ids\[0\] = 100 is outside the vocabulary of 100"):
        token_divergence(
            student, student, weight, ids.index_fill(0, torch.tensor([0], device=DEVICE), 100), backend="fused"
        )


def test_a_slice_of_the_vocabulary_leaves_other_ranks_tokens_absent():
    student, teacher, weight, ids = draw(20, 32, 200)
    head = Head(weight[:120])
    state = fused.vocab_state(Problem(student, teacher, head, head, ids, 1.0, 64 << 20))
    assert torch.equal(state.target_s < -1e29, ids >= 120)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a CUDA device")
def test_self_check_on_the_gpu():
    check = self_check("cuda")
    assert check.passed and check.backend == "fused"
