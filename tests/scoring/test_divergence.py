"""Four exact numbers per token: the chunked backend against the naive reference and float64, and refusals of bad input."""

import logging
import math

import pytest
import torch
from divergence_inputs import draw
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gear_rl.errors import GearError
from gear_rl.scoring import Head, backends, self_check, token_divergence
from gear_rl.scoring.backends import chunked, fused
from gear_rl.scoring.backends.problem import Problem

EXTRA = ("forward_kl", "jensen_shannon")


def float64(student, teacher, head, ids, teacher_head=None, temperature=1.0):
    """The definitions, in float64, written without any code of the package."""

    def log_softmax(hidden, head):
        z = hidden.double() @ head.weight[: head.size].double().T
        if head.bias is not None:
            z = z + head.bias[: head.size].double()
        z = z * head.scale
        if head.softcap is not None:
            z = head.softcap * torch.tanh(z / head.softcap)
        return (z / temperature).log_softmax(-1)

    log_p, log_q = log_softmax(student, head), log_softmax(teacher, teacher_head or head)
    p, q = log_p.exp(), log_q.exp()
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return {
        "reverse_kl": (p * (log_p - log_q)).sum(-1),
        "entropy": -(p * log_p).sum(-1),
        "student_logprob": log_p.gather(-1, ids[:, None])[:, 0],
        "teacher_logprob": log_q.gather(-1, ids[:, None])[:, 0],
        "forward_kl": (q * (log_q - log_p)).sum(-1),
        "jensen_shannon": 0.5 * (p * (log_p - log_m)).sum(-1) + 0.5 * (q * (log_q - log_m)).sum(-1),
    }


def assert_close(result, truth, atol=2e-5, rtol=2e-6):
    for name, value in result.items().items():
        assert value.dtype == torch.float32 and value.isfinite().all()
        torch.testing.assert_close(value.double(), truth[name], atol=atol, rtol=rtol, msg=lambda m, n=name: f"{n}: {m}")


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 40),
    width=st.integers(1, 33),
    vocab=st.integers(1, 700),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    shared=st.booleans(),
    temperature=st.floats(0.3, 3.0),
    kibibytes=st.integers(40, 400),
    seed=st.integers(0, 10_000),
)
def test_every_backend_equals_float64_on_random_shapes(n, width, vocab, dtype, shared, temperature, kibibytes, seed):
    student, teacher, weight, ids = draw(n, width, vocab, dtype, seed, size=3.0)
    head = Head(weight)
    other = head if shared else Head((weight.float() + 0.1 * torch.randn_like(weight.float())).to(dtype))
    truth = float64(student, teacher, head, ids, other, temperature)
    for backend in ("naive", "chunked", "auto"):
        result = token_divergence(
            student, teacher, head, ids, other, temperature, backend=backend, workspace=kibibytes << 10, extra=EXTRA
        )
        assert_close(result, truth, atol=3e-5)
        assert all(value.shape == (n,) for value in result.items().values())


@pytest.mark.parametrize("backend", ["naive", "chunked"])
def test_head_options_are_exact(backend):
    student, teacher, weight, ids = draw(17, 24, 300, size=4.0)
    bias = torch.randn(300)
    for head in (
        Head(weight, bias),
        Head(weight, scale=1 / 8),
        Head(weight, softcap=3.0),
        Head(weight, bias, scale=0.5, softcap=2.0, vocab_size=290),
    ):
        low = ids.clamp_max(head.size - 1)
        result = token_divergence(
            student, teacher, head, low, temperature=0.7, backend=backend, extra=EXTRA, workspace=20_000
        )
        assert_close(result, float64(student, teacher, head, low, temperature=0.7))


def test_padded_rows_do_not_count():
    student, teacher, weight, ids = draw(9, 8, 50)
    padded = torch.cat([weight, torch.full((14, 8), 100.0)])
    plain = token_divergence(student, teacher, weight, ids).items()
    for name, value in token_divergence(student, teacher, Head(padded, vocab_size=50), ids).items().items():
        torch.testing.assert_close(value, plain[name])


@pytest.mark.parametrize("backend", ["naive", "chunked"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_stay_finite(backend, dtype):
    """Logits of ±1e4: float32 resolves them to 1e-3, so the tolerance is relative to their size."""
    student, teacher, weight, ids = draw(12, 16, 400, dtype)
    largest = float((student.double() @ weight.double().T).abs().max())
    scale = 1e4 / largest
    head = Head(weight, scale=scale)
    truth = float64(student, teacher, head, ids)
    result = token_divergence(student, teacher, head, ids, backend=backend, workspace=40_000, extra=EXTRA)
    assert_close(result, truth, atol=1e-2, rtol=1e-5)
    assert (result.reverse_kl >= 0).all() and (result.entropy >= 0).all() and (result.student_logprob <= 0).all()


@pytest.mark.parametrize("backend", ["naive", "chunked"])
@pytest.mark.parametrize("offset", [50.0, -50.0])
def test_a_common_offset_of_all_logits_costs_nothing(backend, offset):
    student, teacher, weight, ids = draw(20, 32, 500)
    teacher = student + 0.01 * (teacher - student)  # divergences of 1e-4: an offset must not drown them
    student[:, 0] = teacher[:, 0] = offset
    weight[:, 0] = 1.0
    truth = float64(student, teacher, Head(weight), ids)
    result = token_divergence(student, teacher, weight, ids, backend=backend, workspace=50_000)
    assert_close(result, truth, atol=3e-5)
    assert ((result.reverse_kl.double() - truth["reverse_kl"]).abs() < 0.05 * truth["reverse_kl"] + 1e-6).all()


def test_equal_sides_have_no_divergence():
    student, _, weight, ids = draw(8, 16, 100)
    result = token_divergence(student, student.clone(), weight, ids, extra=EXTRA)
    assert torch.equal(result.reverse_kl, torch.zeros(8)) and torch.equal(result.forward_kl, torch.zeros(8))
    assert float(result.jensen_shannon.max()) < 1e-6
    assert torch.equal(result.student_logprob, result.teacher_logprob)


def test_tiles_hold_the_workspace_and_one_tile_suffices_for_small_inputs():
    student, teacher, weight, ids = draw(1000, 64, 200)
    head = Head(weight)
    assert chunked.tile_shape(Problem(student, teacher, head, head, ids, 1.0, 256 << 20)) == (1000, 200)
    for workspace in (1 << 14, 1 << 16, 1 << 20):
        rows, columns = chunked.tile_shape(Problem(student, teacher, head, head, ids, 1.0, workspace))
        assert 16 * rows * columns <= workspace


def test_float32_products_stay_float32_under_autocast_and_reduced_precision():
    student, teacher, weight, ids = draw(16, 64, 300)
    plain = token_divergence(student, teacher, weight, ids).items()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            result = token_divergence(student, teacher, weight, ids).items()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    for name, value in result.items():
        torch.testing.assert_close(value, plain[name], atol=1e-6, rtol=1e-6)


def test_linear_weight_and_head_are_the_same_head_and_no_gradient_flows():
    student, teacher, weight, ids = draw(5, 8, 30)
    linear = nn.Linear(8, 30, bias=False)
    linear.weight.data = weight
    student.requires_grad_(True)
    results = [token_divergence(student, teacher, head, ids).items() for head in (weight, linear, Head(weight))]
    for name, value in results[0].items():
        assert not value.requires_grad
        assert torch.equal(value, results[1][name]) and torch.equal(value, results[2][name])


def bad(message, **changes):
    student, teacher, weight, ids = draw(6, 8, 30)
    arguments = {"student_hidden": student, "teacher_hidden": teacher, "lm_head": weight, "token_ids": ids} | changes
    with pytest.raises(GearError, match=message):
        token_divergence(**arguments)


def test_bad_input_is_refused():
    student, _, weight, ids = draw(6, 8, 30)
    nan = student.clone()
    nan[4, 2] = math.nan
    bad(r"student_hidden has NaN or Inf in row 4 \(1 such rows\)", student_hidden=nan)
    bad("teacher_hidden has NaN or Inf in row 4", teacher_hidden=nan)
    bad(r"teacher_hidden has 5 rows and student_hidden 6", teacher_hidden=student[:5])
    bad(r"student_hidden must be \(N, D\)", student_hidden=student[None])
    bad("is 8 wide, the student's head 7", lm_head=weight[:, :7])
    bad("student and teacher have vocabularies of 30 and 29", teacher_lm_head=weight[:29])
    ignored = ids.index_fill(0, torch.tensor([2]), -100)
    bad(r"token_ids\[2\] = -100 is outside the vocabulary of 30 \(1 such rows\). −100 marks", token_ids=ignored)
    bad(r"token_ids\[0\] = 30 is outside", token_ids=ids.index_fill(0, torch.tensor([0]), 30))
    bad(r"token_ids must be \(6,\)", token_ids=ids[:3])
    bad("token_ids must be integers", token_ids=ids.float())
    bad("student_hidden is torch.bfloat16 and the student's head torch.float32", student_hidden=student.bfloat16())
    bad(
        "supported are float32",
        student_hidden=student.double(),
        teacher_hidden=student.double(),
        lm_head=weight.double(),
    )
    bad("student_hidden is on cpu and the student's head on meta", lm_head=weight.to("meta"))
    bad("temperature must be positive", temperature=0.0)
    bad("too small for one row", workspace=100)
    bad("workspace must be a positive", workspace=0)
    bad("Did you mean 'chunked'", backend="chunk")
    bad("Did you mean 'forward_kl'", extra=("forward-kl",))
    bad("lm_head weight has NaN or Inf at entry 3", lm_head=weight.index_fill(0, torch.tensor([3]), math.inf))
    bad("overflow float32", lm_head=weight * 1e30, student_hidden=student * 1e30)
    bad("must be a weight", lm_head="lm_head")
    bad("no rows", lm_head=weight[:0])


def test_no_triton_and_old_gpus_fall_back_once_and_say_so(monkeypatch, caplog):
    student, teacher, weight, ids = draw(3, 8, 30)
    head = Head(weight)
    problem = Problem(student, teacher, head, head, ids, 1.0, 1 << 20)
    monkeypatch.setattr(fused, "_has", lambda module: False)
    assert fused.why_not(problem) == "Triton is not installed"
    with pytest.raises(GearError, match=r"cannot run here: Triton is not installed. Use backend='auto'"):
        token_divergence(student, teacher, weight, ids, backend="fused")

    class OnGpu:  # as much of a CUDA tensor as the choice looks at
        device, dtype, shape, is_cuda = torch.device("cuda:0"), torch.bfloat16, student.shape, True

        def stride(self, _):
            return 1

    gpu_head = type("GpuHead", (), {"weight": OnGpu()})()
    on_gpu = Problem(OnGpu(), OnGpu(), gpu_head, gpu_head, ids, 1.0, 1 << 20)
    monkeypatch.setattr(backends, "_said", set())
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert backends.choose(on_gpu) == ("chunked", "Triton is not installed")
        monkeypatch.setattr(fused, "_has", lambda module: True)
        monkeypatch.setattr(fused, "_device_limits", lambda device: (7, 64 << 10))
        assert backends.choose(on_gpu) == ("chunked", "compute capability 7.x is below 8.0")
        monkeypatch.setattr(fused, "_device_limits", lambda device: (8, 160 << 10))
        assert backends.choose(on_gpu) == ("fused", None)
    assert len(caplog.records) == 2


def test_self_check_proves_the_chosen_backend():
    check = self_check("cpu")
    assert check.passed and check.backend == "chunked" and check.fallback == "the inputs are on the CPU"
    assert set(check.max_errors) == {"reverse_kl", "entropy", "student_logprob", "teacher_logprob"}
    assert self_check("cpu", torch.bfloat16).passed
