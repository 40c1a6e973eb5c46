"""Peers that credit turns: cases worked out by hand, and the bias of a naive turn baseline."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from small_rollouts import pair

from gear_rl import Rollouts, credit


def test_mt_grpo_by_hand():
    rewards = [[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 5.0]]  # turns of 2, 1, 1 tokens; the last has no tool result
    rollouts = pair(turns=[0, 0, 1, 2], turn_reward=rewards)
    assert credit("mt_grpo", rollouts).advantages.tolist() == [[2.0, 2.0, 1.0, 1.0], [-2.0, -2.0, -1.0, -1.0]]
    assert credit("mt_grpo", rollouts).segments[0].tolist() == [1, 1, 2, 3]
    paper = credit("mt_grpo", rollouts, form="paper", discount=0.5).advantages
    assert paper[0].tolist() == [1.25, 1.25, 0.5, 1.0]  # 1 + 0.5 · 0 + 0.25 · 1; 0 + 0.5 · 1; 1


def test_mt_grpo_without_a_tool_result_has_the_summed_reward():
    """The first takes one turn; the others' turn rewards enter the group that it is compared with."""
    turns = torch.tensor([[0, 0], [0, 1], [0, 1]])
    rollouts = Rollouts(torch.ones(3, 2, dtype=torch.bool), torch.tensor([1.0, 0.0, 0.0]), torch.zeros(3).long(),
                        turn_ids=turns, signals={"turn_reward": torch.tensor([[9.0, 9], [1.0, 9], [3.0, 9]])})  # fmt: skip
    combined = torch.tensor([1.0, 1.0, 3.0])
    expected = ((1 - combined.mean()) / (combined.std() + 1e-4)).item()
    assert credit("mt_grpo", rollouts).advantages[0].tolist() == pytest.approx([expected] * 2)
    plain = credit("mt_grpo", rollouts, fallback="outcome").advantages[0]
    assert torch.equal(plain, credit("grpo", rollouts).advantages[0])


def test_gigpo_compares_turns_from_the_same_state_only():
    states = [[7.0, 7.0, 1.0], [7.0, 7.0, 2.0]]
    c = credit("gigpo", pair(turns=[0, 0, 1], anchor_state=states))
    step = 0.95 / 2  # returns 0.95 and 0, from the first state; nobody else was in the others
    assert c.advantages.tolist() == [
        pytest.approx([0.5 + step, 0.5 + step, 0.5]),
        pytest.approx([-0.5 - step, -0.5 - step, -0.5]),
    ]


def test_gigpos_episode_mean_counts_a_long_rollout_once_per_step():
    rollouts = Rollouts(torch.ones(2, 3, dtype=torch.bool), torch.tensor([1.0, 0.0]), torch.zeros(2).long(),
                        turn_ids=torch.tensor([[0, 1, 2], [0, 0, 0]]),
                        signals={"anchor_state": torch.arange(6.0).view(2, 3)})  # fmt: skip
    assert credit("gigpo", rollouts).advantages[:, 0].tolist() == [0.25, -0.75]  # the mean of 1, 1, 1, 0
    grpo = credit("gigpo", rollouts, episode_mean="rollouts")
    assert torch.equal(grpo.advantages, credit("dr_grpo", rollouts).advantages)


def test_igpo_credits_the_turn_that_brought_the_answer_near():
    after = [[math.log(x) for x in row] for row in ((0.1, 0.6, 0.6), (0.1, 0.1, 0.1))]
    rollouts = pair(turns=[0, 1, 2], answer_logprob=after, answer_logprob_start=[math.log(0.1)] * 3)
    rewards = torch.tensor([[0.0, 0.5, 1.0], [0.0, 0.0, 0.0]])  # gains, then the outcome
    z = (rewards - rewards.mean()) / rewards.std(correction=0)
    torch.testing.assert_close(credit("igpo", rollouts).advantages, z.flip(1).cumsum(1).flip(1))
    gains, outcomes = rewards[:, :2], rewards[:, 2:]
    apart = torch.cat([(x - x.mean()) / x.std(correction=0) for x in (gains, outcomes)], dim=1)
    torch.testing.assert_close(credit("igpo", rollouts, variant="separate").advantages, apart.flip(1).cumsum(1).flip(1))
    returns = rewards.flip(1).cumsum(1).flip(1)  # no std, and each position against the same position
    torch.testing.assert_close(credit("igpo", rollouts, variant="position").advantages, returns - returns.mean(0))
    own = credit("igpo", rollouts, variant="position_by_turn").advantages
    torch.testing.assert_close(own, rewards - rewards.mean(0))


def test_trace_by_hand():
    after = [[-1.9, -0.9, -0.4, 0.0], [-1.9, -1.9, -1.9, 0.0]]  # each turn; −1.9 before; the last turn's is not read
    rollouts = pair(turns=[0, 1, 2, 3], frozen_answer_logprob=after, frozen_answer_logprob_start=[-1.9] * 4)
    d = [0.0, math.log(2.0), math.log(2.0)]  # 0.1 − s: 2, then 2, 1, 0.5
    r = [(d[0] + 0.8 * d[1] + 0.64 * d[2]) / 2.44 + 2 * 0.8**3, (d[1] + 0.8 * d[2]) / 1.8 + 2 * 0.8**2, d[2] + 2 * 0.8]
    expected = [1 + 0.2 * x for x in r] + [1.0]
    assert credit("trace", rollouts).advantages[0].tolist() == pytest.approx(expected, rel=1e-5)
    lost = [-1 - 0.2 * 2 * 0.8**k for k in (3, 2, 1)] + [-1.0]
    assert credit("trace", rollouts).advantages[1].tolist() == pytest.approx(lost, rel=1e-5)


def test_hcapo_favours_the_turn_that_is_likely_in_hindsight():
    hindsight = [[-5.0, 0.0], [-5.0, 0.0]]
    c = credit("hcapo", pair(turns=[0, 1], hindsight_logprob=hindsight), gamma=1.0)
    low, high = 0.8, 1.2  # e^−1 and 1 over their mean, clipped
    q = torch.tensor([low, high, 0.0, 0.0])
    z = (q - q.mean()) / (q.std() + 1e-4)
    assert c.advantages[0].tolist() == pytest.approx([1 + z[0].item(), 1 + z[1].item()], rel=1e-5)
    assert c.advantages[1].tolist() == pytest.approx([-1 + z[2].item()] * 2, rel=1e-5)
    discounted = credit("hcapo", pair(turns=[0, 1], hindsight_logprob=hindsight), gamma=0.1)
    assert discounted.advantages[0, 0] == 1.0  # a negative part of a successful rollout counts as 0


def test_vine_ppo_is_what_each_turn_did_to_the_value():
    rollouts = pair(turns=[0, 0, 1], values=[0.4, 9.0, 0.7])
    assert credit("vine_ppo", rollouts).advantages[0].tolist() == pytest.approx([0.3, 0.3, 0.3])
    assert credit("vine_ppo", rollouts).advantages[1].tolist() == pytest.approx([0.3, 0.3, -0.7])  # it lost


def test_spo_credits_the_cut_points_of_a_segment_with_what_it_did_to_the_value():
    p = [[0.95, 0.5, 0.99, 0.5, 0.3, 0.97, 0.2]] * 2
    logprob = torch.tensor(p).log().tolist()
    value = [9.0, 0.2, 9.0, 9.0, 0.7, 9.0, 9.0]  # read where a segment begins: at cut points 1 and 3
    c = credit("spo", pair(student_logprob=logprob, prefix_value=value), interval=2)
    assert c.advantages[0].tolist() == pytest.approx([0, 0.5, 0, 0.5, 0.3, 0, 0.3])
    assert c.advantages[1].tolist() == pytest.approx([0, 0.5, 0, 0.5, -0.7, 0, -0.7])  # it lost
    assert c.segments[0].tolist() == [1, 2, 2, 2, 3, 3, 3]
    sure = credit("spo", pair(student_logprob=[-0.01, -0.02], prefix_value=[0.1, 0.2]))
    assert not sure.advantages.any()  # nothing there could have been another token


def test_a_judged_turn_weighs_more_and_no_verdict_is_grpo_to_the_last_bit():
    judged = pair(turns=[0, 0, 1, 1], judged_turn=[[0.0, 0.0, 1.0, 1.0], [0.0] * 4])
    c = credit("prompted_judge", judged, alpha=2.0)
    assert c.advantages[0].tolist() == pytest.approx([0.5, 0.5, 1.5, 1.5])
    assert torch.equal(c.advantages[1], credit("grpo", judged).advantages[1])


def test_turn_ppo_is_gae_over_turns():
    rollouts = pair(turns=[0, 0, 1], values=[0.4, 9.0, 0.6])
    last = 1 - 0.6
    first = 0.99 * 0.6 - 0.4 + 0.99 * 0.9 * last
    assert credit("turn_ppo", rollouts).advantages[0].tolist() == pytest.approx([first, first, last])
    whole = credit("turn_ppo", rollouts, gamma=1.0, trace=1.0).advantages  # the return minus the value
    assert whole[0].tolist() == pytest.approx([0.6, 0.6, 0.4])
    alone = replace(rollouts, group_ids=torch.tensor([0, 1]), advantages=None)
    assert torch.equal(credit("turn_ppo", alone).advantages, credit("turn_ppo", rollouts).advantages)


# --- the bias of the naive turn baseline ------------------------------------------------------------------------------


def play(theta: float, groups: int, draw: torch.Generator, most: int = 6) -> tuple[Rollouts, torch.Tensor]:
    """A policy of one parameter: σ(θ) is its chance to take another turn. Turns have rewards around ½ that do not
    depend on anything it does, and so has the outcome. One token a turn → rollouts, and ∂ log π / ∂θ of each token."""
    B, chance = 8 * groups, 1 / (1 + math.exp(-theta))
    goes_on = torch.rand(B, most, generator=draw) < chance
    goes_on[:, -1] = False
    mask = torch.cat([torch.ones(B, 1, dtype=torch.bool), goes_on[:, :-1].cumprod(1).bool()], dim=1)
    score = torch.where(goes_on, 1 - chance, -chance) * mask
    score[:, -1] = 0  # it has no choice there
    reward = 0.5 + 0.2 * torch.randn(B, most, generator=draw)
    outcome = (torch.rand(B, generator=draw) < 0.5).float()
    turns = torch.arange(most).expand(B, most)
    rollouts = Rollouts(mask, outcome, torch.arange(B) // 8, turn_ids=turns, signals={"turn_reward": reward})
    return rollouts, score


@pytest.mark.parametrize("baseline", ["unbiased", "naive"])
def test_a_policy_that_only_takes_more_turns_gains_under_the_naive_baseline_alone(baseline):
    draw, options = torch.Generator().manual_seed(0), {"baseline": baseline, "fallback": "outcome"}
    gradients = []
    for _ in range(150):
        rollouts, score = play(0.0, 8, draw)
        gradients.append((credit("mt_grpo", rollouts, **options).advantages * score).sum(1).mean())
    mean, error = torch.stack(gradients).mean().item(), torch.stack(gradients).std().item() / math.sqrt(150)
    assert abs(mean) < 3 * error if baseline == "unbiased" else mean > 20 * error

    theta, turns = 0.0, []
    for _ in range(150):  # and so training drifts, or does not
        rollouts, score = play(theta, 8, draw)
        theta += 0.1 * (credit("mt_grpo", rollouts, **options).advantages * score).sum(1).mean().item()
        turns.append(rollouts.action_mask.sum(1).float().mean().item())
    before, after = sum(turns[:10]) / 10, sum(turns[-10:]) / 10
    assert abs(after - before) < 0.5 if baseline == "unbiased" else after > before + 2


def test_the_codes_fallback_pulls_towards_a_first_tool_call():
    """Whoever stops at once is compared with the others' turn rewards: documented, and why `fallback` has a choice."""
    draw, gradients = torch.Generator().manual_seed(0), []
    for _ in range(150):
        rollouts, score = play(0.0, 8, draw)
        gradients.append((credit("mt_grpo", rollouts).advantages * score).sum(1).mean())
    assert torch.stack(gradients).mean() > 20 * torch.stack(gradients).std() / math.sqrt(150)


def test_a_constant_turn_reward_is_no_advantage():
    turns = torch.tensor([[0, 1, 2, 3], [0, 1, 1, 1], [0, 1, 1, 1]])
    rollouts = Rollouts(torch.ones(3, 4, dtype=torch.bool), torch.zeros(3), torch.zeros(3, dtype=torch.long), turn_ids=turns,
                        signals={"turn_reward": torch.full((3, 4), 0.2)})  # fmt: skip
    assert not credit("mt_grpo", rollouts).advantages.any()
    naive = credit("mt_grpo", rollouts, baseline="naive").advantages
    assert (naive[0, 1:3] > 0.5).all() and not naive[1:].any()  # a gift to the one that went on, paid by nobody
