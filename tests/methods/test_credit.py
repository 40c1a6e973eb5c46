"""`credit()`: defaults, types, and what each field of the result says, on cases small enough to work out by hand."""

from __future__ import annotations

import pytest
import torch
from reference import CHANNELS, SIGNALS

import gear_rl
from gear_rl import Credit, Rollouts, credit
from gear_rl.assignment.rollouts import ActionTokens
from gear_rl.assignment.weights import preserve_mass, row_quantile, token_advantages
from gear_rl.methods import METHODS
from gear_rl.methods.base import Method


def one_pair(reverse_kl, entropy=None, teacher_minus_student=None, turns=None, rewards=(1.0, 0.0)) -> Rollouts:
    """Two rollouts of one group with the same signals; the first won, the second lost."""
    rows = [reverse_kl, entropy or [0.0] * len(reverse_kl), teacher_minus_student or [1.0] * len(reverse_kl)]
    kl, h, gap = (torch.tensor([row, row], dtype=torch.float64) for row in rows)
    return Rollouts(
        torch.ones(kl.shape, dtype=torch.bool),
        torch.tensor(rewards),
        torch.tensor([0, 0]),
        turn_ids=None if turns is None else torch.tensor([turns, turns]),
        signals={"reverse_kl": kl, "entropy": h, "student_logprob": -2 + 0 * gap, "teacher_logprob": -2 + gap},
    )


def test_group_advantage_by_hand():
    mask = torch.tensor([[True, False], [True, True], [True, True], [False, False], [True, False]])
    rewards = torch.tensor([1.0, 0.0, 3.0, 5.0, 5.0])
    rollouts = Rollouts(mask, rewards, torch.tensor([7, 7, 2, 7, 2]))  # the fourth has no action token: its reward counts
    a = credit("grpo", rollouts).advantages
    std = 7**0.5 + 1e-4  # of 1, 0, 5
    assert a[0].tolist() == pytest.approx([-1 / std, 0.0])
    assert a[1].tolist() == pytest.approx([-2 / std, -2 / std])
    assert a[3].tolist() == [0.0, 0.0]
    assert a[4, 0].item() == pytest.approx(1.0 / (2**0.5 + 1e-4))
    assert credit("dr_grpo", rollouts).advantages[:, 0].tolist() == [-1.0, -2.0, -1.0, 0.0, 1.0]


def test_gear_by_hand():
    # peak at 1; entropy bounds its segment at 3; 4 agrees with the teacher and keeps its own credit
    rollouts = one_pair([0.0, 2.0, 1.0, 0.5, 0.2], entropy=[0.0, 0.0, 0.0, 1.0, 0.0])
    c = credit("gear", rollouts, direction="outcome", alpha=2.0)
    assert c.onsets[0].tolist() == [False, True, False, False, False]
    assert c.segments[0].tolist() == [1, 2, 2, 3, 3]
    rho = [1.0, 3.0, 3.0, 1.5, 1.2]
    assert c.weights[0].tolist() == pytest.approx([5 * r / sum(rho) for r in rho])
    assert torch.equal(c.advantages[1], -c.advantages[0])


def test_direction_consistent_asks_whether_outcome_and_teacher_agree():
    rollouts = one_pair([0.1, 1.0, 0.1, 1.0], teacher_minus_student=[0.0, 1.0, 0.0, -1.0])
    c = credit("gear", rollouts)
    assert c.weights[0].argmax() == 1  # won: the token that the teacher finds likelier
    assert c.weights[1].argmax() == 3  # lost: the one it finds less likely


def test_direction_teacher_rewards_departures_less_and_blames_them_more():
    c = credit("gear", one_pair([0.1, 1.0, 0.1, 0.1], entropy=[1.0] * 4), direction="teacher", alpha=0.5)
    assert c.weights[0].argmin() == 1 and c.weights[1].argmax() == 1


def test_a_peak_is_looked_for_within_its_turn():
    kl = [0.9, 1.0, 0.9, 0.8]
    assert credit("gear", one_pair(kl)).onsets[0].tolist() == [False, True, False, False]
    assert credit("gear", one_pair(kl, turns=[0, 1, 1, 1])).onsets[0].tolist() == [True, True, False, False]
    assert credit("gear", one_pair(kl, turns=[0, 0, 1, 1])).onsets[0].tolist() == [False, True, True, False]


def test_given_advantages_are_used_as_they_are():
    rollouts = Rollouts(torch.ones(2, 3, dtype=torch.bool), torch.tensor([1.0, 0.0]), torch.tensor([0, 1]),
                        advantages=torch.tensor([0.3, -0.7]))  # fmt: skip
    expected = torch.tensor([[0.3] * 3, [-0.7] * 3])
    assert torch.equal(credit("grpo", rollouts).advantages, expected)
    assert torch.equal(credit("dr_grpo", rollouts).advantages, expected)


def test_small_divergence_stays_uniform_instead_of_amplified():
    c = credit("token", one_pair([1e-4, 2e-4, 0.0]), direction="outcome")
    assert c.weights[0].tolist() == pytest.approx([1.0] * 3, abs=0.005)


def test_negative_rounding_of_a_divergence_counts_as_zero():
    got = credit("token", one_pair([-1e-7, 0.3, -0.2]), direction="outcome")
    expected = credit("token", one_pair([0.0, 0.3, 0.0]), direction="outcome")
    assert torch.equal(got.weights, expected.weights)


def test_oracle_weights_what_deserves_it():
    decision = torch.tensor([[1, -1, 0], [1, -1, 0], [0, 0, 0]])  # any real dtype will do for a signal
    rollouts = Rollouts(torch.ones(3, 3, dtype=torch.bool), torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0, 0, 0]),
                        signals={"decision": decision})  # fmt: skip
    c = credit("oracle", rollouts)
    assert c.weights[0].tolist() == pytest.approx([3 / 1.1, 0.15 / 1.1, 0.15 / 1.1])
    assert c.weights[1].tolist() == pytest.approx([0.15 / 1.1, 3 / 1.1, 0.15 / 1.1])
    assert c.weights[2].tolist() == [1.0, 1.0, 1.0]


def test_oracle_is_grpo_to_the_last_bit_where_nothing_qualifies():
    rollouts = Rollouts(torch.ones(2, 3, dtype=torch.bool), torch.tensor([1.0, 0.0], dtype=torch.float64),
                        torch.tensor([0, 0]), signals={"decision": torch.zeros(2, 3)})  # fmt: skip
    assert torch.equal(credit("oracle", rollouts).advantages, credit("grpo", rollouts).advantages)


def test_opd_reads_no_reward():
    rollouts = one_pair([1.0, 1.0, 1.0], teacher_minus_student=[0.5, -3.0, 5.0])
    assert credit("opd", rollouts).advantages.tolist() == [[0.5, -2.0, 2.0]] * 2


def test_even_weights_give_the_advantage_bit_for_bit_whatever_the_mix():
    advantage, even = torch.randn(5, generator=torch.Generator().manual_seed(0)), torch.ones(5, 3)
    for step in range(1000):
        assert torch.equal(token_advantages(advantage, even, step / 999), advantage[:, None] * even)


def test_quantile_is_torchs_over_the_action_tokens():
    g = torch.Generator().manual_seed(0)
    mask = torch.rand(6, 30, generator=g) < 0.6
    mask[3] = False
    values, actions = torch.rand(6, 30, generator=g, dtype=torch.float64), ActionTokens(mask, None)
    for q in (0.01, 0.3, 0.5, 0.95, 1.0):
        expected = [row[m].quantile(q).item() if m.any() else 0.0 for row, m in zip(values, mask, strict=True)]
        assert row_quantile(actions.pack(values), actions, q).tolist() == pytest.approx(expected)


def test_a_rollout_without_action_tokens_stays_finite_inside_too():
    actions = ActionTokens(torch.tensor([[True, True], [False, False]]), None)
    assert preserve_mass(torch.tensor([[1.0, 3.0], [1.0, 1.0]]), actions).tolist() == [[0.5, 1.5], [1.0, 1.0]]


def random_rollouts(dtype: torch.dtype, device: str = "cpu", B: int = 8, T: int = 40) -> Rollouts:
    g = torch.Generator().manual_seed(1)
    signals = {name: torch.rand(B, T, generator=g).sub(0.3 if name == "decision" else 0.0) for name in SIGNALS}
    return Rollouts(
        (torch.rand(B, T, generator=g) < 0.7).to(device),
        torch.rand(B, generator=g).to(device, dtype),
        (torch.arange(B) // 4).to(device),
        signals={k: (-v if "logprob" in k else v).to(device, dtype) for k, v in signals.items()},
        channels={name: torch.rand(B, generator=g).to(device, dtype) for name in CHANNELS},
    )


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_shapes_and_types(name, dtype):
    rollouts = random_rollouts(dtype)
    c = credit(name, rollouts)
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    assert isinstance(c, Credit)
    assert (c.advantages.dtype, c.weights.dtype) == (expected, expected)
    assert (c.segments.dtype, c.onsets.dtype) == (torch.int64, torch.bool)
    for values in (c.advantages, c.weights, c.segments, c.onsets):
        assert values.shape == rollouts.action_mask.shape
        assert not values[~rollouts.action_mask].any()
    assert (c.segments[rollouts.action_mask] >= 1).all()


@pytest.mark.parametrize("name", METHODS)
def test_same_result_every_time(name):
    first, second = (credit(name, random_rollouts(torch.float32)) for _ in range(2))
    said = [name for name, values in vars(first).items() if values is not None]
    assert said == [name for name, values in vars(second).items() if values is not None]
    assert all(torch.equal(getattr(first, name), getattr(second, name)) for name in said)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", METHODS)
def test_same_result_on_every_device(name):
    torch.use_deterministic_algorithms(True)
    try:
        cpu, gpu = (credit(name, random_rollouts(torch.float32, device, B=64, T=900)) for device in ("cpu", "cuda"))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(cpu.segments, gpu.segments.cpu()) and torch.equal(cpu.onsets, gpu.onsets.cpu())
    # exp and log are not rounded alike everywhere
    inexact = ("low_probability", "rlsd", "serl", "crest", "cepo", "oar_p", "oar_g", "grail")
    exact = name not in inexact
    torch.testing.assert_close(gpu.weights.cpu(), cpu.weights, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-6)
    by_turns = name in ("igpo", "trace", "hcapo", "turn_ppo", "vine_ppo", "rlcsd")
    loose = 1e-5 if by_turns else 1e-7  # sums over turns before a mean is taken away; large factors
    torch.testing.assert_close(gpu.advantages.cpu(), cpu.advantages, rtol=1e-6, atol=loose)


def test_rollouts_are_left_untouched():
    rollouts = random_rollouts(torch.float32)
    before = {k: v.clone() for k, v in rollouts.signals.items()}
    for name in METHODS:
        credit(name, rollouts)
    assert all(torch.equal(before[k], v) for k, v in rollouts.signals.items())


def test_public_names():
    assert gear_rl.credit is credit and gear_rl.METHODS is METHODS
    assert all(issubclass(m, Method) for m in METHODS.values())
