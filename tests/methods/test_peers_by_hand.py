"""Peers that credit tokens and rollouts: cases worked out by hand, and the consequences of their formulas."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rollouts import random_options, to_rollouts
from reference import random_batch
from small_rollouts import four, pair

from gear_rl import credit

seeds, either = st.integers(0, 10**9), st.booleans()
batches = st.builds(
    random_batch, seeds, coarse=either, turns=either, advantages=either, unscorable=either, truncated=either
)
few = settings(max_examples=25, deadline=None, derandomize=True)


def test_rlsd_by_hand():
    c = credit("rlsd", pair(student_logprob=[-1.0, -1.0, -1.0], teacher_logprob=[-0.9, -5.0, -1.0]), mix=1.0)
    assert c.advantages[0].tolist() == pytest.approx([math.exp(0.1), 0.8, 1.0])
    assert c.advantages[1].tolist() == pytest.approx([-math.exp(-0.1), -1.2, -1.0])


def test_serl_leaves_thinking_alone():
    logprobs = dict(student_logprob=[-1.0, -1.0], teacher_logprob=[-0.9, -0.9])
    c = credit("serl", pair(**logprobs, tool_call=[0.0, 1.0]))
    assert c.weights[0].tolist() == pytest.approx([1.0, math.exp(0.1)])
    everything = credit("serl", pair(**logprobs, tool_call=[1.0, 1.0]))
    assert torch.equal(everything.advantages, credit("rlsd", pair(**logprobs)).advantages)


def test_crest_only_ever_amplifies_and_by_8_percent_at_most():
    """λ ≤ 0.3, the direction gate leaves w ≥ 1 alone, and w ≤ 1.28: φ lies in [1, 1 + 0.3 · 0.28]."""
    phis = [credit("crest", to_rollouts(random_batch(seed, unscorable=True))) for seed in range(40)]
    found = torch.cat([c.weights[c.segments > 0] for c in phis])
    assert found.min() == 1.0 and found.max() <= 1.084 + 1e-6 and (found > 1).sum() > 100
    logprobs = dict(student_logprob=[-9.0, -1.0, -1.0], teacher_logprob=[-1.0, -1.0, -9.0], request_ids=[1.0] * 3)
    top = credit("crest", pair(**logprobs, turn_reward=[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])).weights
    assert top[0].tolist() == pytest.approx([1.084, 1.0, 1.0])  # surprising and liked: the most there is


def test_crests_entropy_gate_only_attenuates_to_a_half():
    """m_ent ∈ [0.5, 1.5], and λ_eff ≤ λ cuts what is above 1: the factor is in [0.5, 1]."""
    for seed in range(40):
        rollouts = to_rollouts(random_batch(seed))
        actions = rollouts.action_mask
        gated, open_ = (credit("crest", rollouts, surprise=x).weights[actions] - 1 for x in (0.5, 0.0))
        assert (gated <= open_ + 1e-7).all() and (gated >= 0.5 * open_ - 1e-7).all()


def test_crests_lower_clip_never_acts():
    for seed in range(20):
        rollouts = to_rollouts(random_batch(seed))
        narrow, wide = (credit("crest", rollouts, clip=x, mix=1.0).weights for x in (0.2, 1.0))
        assert (wide >= narrow - 1e-6).all()  # a weight that the lower bound held up would fall


def test_crest_compares_requests_not_turns():
    """Two requests; the first rollout needs two assistant turns for its first one."""
    rollouts = pair(
        turns=[0, 1, 2],
        student_logprob=[-1.0] * 3,
        teacher_logprob=[-1.0] * 3,
        request_ids=[[1.0, 1.0, 2.0], [1.0, 2.0, 2.0]],
        turn_reward=[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]],
    )
    a = 0.5 / (math.sqrt(0.5) + 1e-4)  # rewards 1 and 0 of the first request; none of the second
    assert credit("crest", rollouts).advantages.tolist() == [pytest.approx([a, a, 0.0]), pytest.approx([-a, 0.0, 0.0])]


def test_oar_suppresses_below_the_quantile_and_boosts_above():
    scores = [math.expm1(x) for x in (0.0, 0.02, 0.5, 0.75, 1.0)]  # s = 0, 0.02, 0.5, 0.75, 1
    half, quarter = [0.1, 0.1, 1.0, 1.5, 2.0], [0.1, 1.0, 1 + 0.48 / 0.98, 1 + 0.73 / 0.98, 2.0]  # τ = 0.5, 0.02
    for name, signal in (("oar_p", "saliency_mask"), ("oar_g", "saliency_grad")):
        for options, rho in (({"threshold": 0.5}, half), ({}, quarter)):
            weights = credit(name, pair(**{signal: scores}), **options).weights
            assert weights[0].tolist() == pytest.approx([5 * r / sum(rho) for r in rho], rel=1e-4)


def test_shear_is_grpo_where_there_is_nothing_to_oppose():
    rollouts = pair(span_distance=[[0.5, 0.7], [1.0, 1.0]])
    assert credit("shear", rollouts).advantages.tolist() == [pytest.approx([0.5, 0.7]), [-1.0, -1.0]]


def test_grail_reweights_the_lost_alone_but_the_box_everywhere():
    signals = dict(answer_saliency=[1.0, math.e, 3.0, 0.5, 1.0], answer_box=[0.0, 0.0, 2.0, 1.0, 2.0])
    c = credit("grail", pair(**signals))
    logs = [0.0, 1.0, math.log(3), math.log(0.5), 0.0]
    mean = sum(logs) / 5
    std = math.sqrt(sum((x - mean) ** 2 for x in logs) / 5)
    low, high = (1 + 0.5 * (x - mean) / std for x in (0.0, 1.0))
    assert c.weights[0].tolist() == [1.0, 1.0, 1.0, 5.0, 1.0]  # won
    assert c.weights[1].tolist() == pytest.approx([low, high, 1.0, 5.0, 1.0], rel=1e-5)  # lost
    assert credit("grail", pair(**signals), box="reweighted").weights[0].tolist() == [1.0] * 5
    without = credit("grail", pair(**{**signals, "answer_box": [0.0] * 5}), symmetry="both")
    assert without.weights.tolist() == [[1.0] * 5] * 2  # rows without a box


def test_high_entropy_keeps_a_fifth():
    entropy = [[float(t) for t in range(10)], [0.5] * 10]
    batch = credit("high_entropy", pair(entropy=entropy), scope="batch")
    assert batch.weights.sum(1).tolist() == [4, 0]  # a fifth of all twenty tokens
    each = credit("high_entropy", pair(entropy=entropy))
    assert each.advantages[0].tolist() == [0.0] * 8 + [1.0] * 2
    assert each.weights[1].tolist() == [1.0] * 10  # all equally uncertain


def test_cepo_without_a_wrong_rollout_is_grpo_or_rlsd():
    logprobs = dict(student_logprob=[-1.0], teacher_logprob=[-0.9], wrong_teacher_logprob=[-1.3])
    wrong, right = pair(**logprobs), pair(rewards=(1.0, 0.6), **logprobs)
    assert credit("cepo", wrong, mix=1.0).advantages.tolist() == [
        [pytest.approx(math.exp(0.4))],
        [pytest.approx(-math.exp(-0.4))],
    ]
    assert torch.equal(credit("cepo", right).advantages, credit("grpo", right).advantages)
    paper = credit("cepo", right, without_wrong="rlsd", clip=0.2).advantages
    assert torch.equal(paper, credit("rlsd", right).advantages)


def test_rlcsd_adds_a_residual_that_never_turns_the_sign():
    rollouts = four((1.0, 1.0, 0.0, 0.0), teacher_logprob=[-1.0, -1.0, -1.0], wrong_teacher_logprob=[-2.0, 0.0, -1.0])
    c = credit("rlcsd", rollouts, denominators="one")  # ±0.5: saturated; the last token says nothing
    assert c.advantages.tolist() == [
        pytest.approx(row) for row in ([1.5, 0.5, 1.0], [0.7, 0.0, 0.2], [0.0, -0.8, -0.3], [-0.5, -1.5, -1.0])
    ]


def test_rlcsds_two_means_are_factors_on_the_advantages():
    rollouts = four((1.0, 1.0, 0.0, 0.0), teacher_logprob=[-1.0, -1.0, -1.0], wrong_teacher_logprob=[-2.0, 0.0, -1.0])
    plain, scaled = (credit("rlcsd", rollouts, denominators=x, eta=0.5).advantages for x in ("one", "batch"))
    loss = plain[:, 2].mean() + 0.5 * plain[:, :2].mean()  # a mean over the other tokens, and one over the selected
    assert scaled.mean().item() == pytest.approx(loss.item(), abs=1e-6)


def test_rlcsd_leaves_out_whoever_has_no_pair_of_siblings():
    rollouts = four((1.0, 0.0, 0.0, 0.0), teacher_logprob=[-1.0], wrong_teacher_logprob=[-1.0])
    assert credit("rlcsd", rollouts, denominators="one").advantages[:, 0].tolist() == pytest.approx(
        [0.0, 0.2, -0.3, -1.0]
    )


def test_sc_grpo_halves_the_advantage_at_the_percentile():
    rollouts = four((1.0, 1.0, 0.0, 0.0), forward_kl=[0.0, 1.0, 3.0, 4.0, 8.0], sibling_length=[5.0] * 5)  # 75th percentile: 4
    assert credit("sc_grpo", rollouts).weights[0].tolist() == pytest.approx([0.0, 1 / 5, 3 / 7, 0.5, 2 / 3])
    for rewards in ((1.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0)):  # one is correct, or all: plain GRPO
        assert credit("sc_grpo", replace(rollouts, rewards=torch.tensor(rewards))).weights.min() == 1.0


@given(batch=batches, seed=seeds)
@few
def test_sc_grpo_never_amplifies(batch, seed):
    assert (credit("sc_grpo", to_rollouts(batch), **random_options("sc_grpo", seed)).weights <= 1).all()


def test_sdar_raises_what_the_teacher_likes_whatever_the_outcome():
    c = credit("sdar", pair(student_logprob=[-1.0, -1.0], teacher_logprob=[-1.0, 3.0]))
    assert (c.advantages - torch.tensor([[1.0], [-1.0]])).tolist() == [pytest.approx([0.005, 0.01], abs=1e-6)] * 2


def test_grpo_lambda_decays_towards_the_beginning():
    rollouts = pair(entropy=[0.0] * 3)
    assert credit("grpo_lambda", rollouts, decay=0.5).advantages[0].tolist() == [0.25, 0.5, 1.0]


def test_crpo_weighs_channels_alike_whatever_their_scale():
    channels = {"style": [0.0, 1.0], "task": [100.0, 0.0]}
    rollouts = pair(channels=channels, student_logprob=[-1.0])
    assert credit("crpo", rollouts).advantages.abs().max() < 1e-3
    assert credit("crpo", rollouts, scale_rewards=False).advantages[0, 0] == 24.75


def test_crpo_counts_less_where_the_anchor_is_as_likely():
    channels = {"style": [1.0, 0.0], "task": [1.0, 0.0], "anchor": [0.0, 1.0]}
    alike = credit("crpo", pair(channels=channels, student_logprob=[[-1.0], [-1.0]])).advantages
    apart = credit("crpo", pair(channels=channels, student_logprob=[[-1.0], [-30.0]])).advantages
    plain = credit("crpo", pair(channels=channels, student_logprob=[-1.0]), certainty=0.0).advantages
    assert (alike / plain)[0].item() == pytest.approx(1 - 0.02 * math.log(2))
    assert (apart / plain)[0].item() == pytest.approx(1.0)
