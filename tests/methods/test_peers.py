"""The peers of GEAR: each formula against plain loops, the invariants that hold for all of them, and what each is for."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rollouts import degenerate, random_options, to_rollouts, with_masked_insertions
from reference import random_batch
from reference_peers import PEER_DEFAULTS, peer_credit

from gear_rl import METHODS, GearError, Rollouts, credit
from gear_rl.assignment.turns import Turns, returns_to_go
from gear_rl.methods import Distillation, method

PEERS = list(PEER_DEFAULTS)
OTHERS = [name for name in PEERS if not METHODS[name].preserves_mass]  # the rest is in test_invariants.py
FIELDS = ("advantages", "weights", "segments", "onsets")

seeds, either = st.integers(0, 10**9), st.booleans()
batches = st.builds(random_batch, seeds, coarse=either, turns=either, tokens=either, advantages=either)
few = settings(max_examples=25, deadline=None, derandomize=True)
every_peer, other_peers = pytest.mark.parametrize("name", PEERS), pytest.mark.parametrize("name", OTHERS)


# --- formulas ---------------------------------------------------------------------------------------------------------


@every_peer
@given(batch=batches, seed=seeds)
@settings(few, max_examples=60)
def test_vectorised_equals_the_plain_loop(name, batch, seed):
    options = random_options(name, seed)
    c = credit(name, to_rollouts(batch, torch.float64), **options)
    for i, expected in enumerate(peer_credit(name, batch, {**PEER_DEFAULTS[name], **options})):
        assert c.segments[i].tolist() == expected.segments
        assert not c.onsets.any()
        assert c.weights[i].tolist() == pytest.approx(expected.weights, rel=1e-9, abs=1e-12)
        assert c.advantages[i].tolist() == pytest.approx(expected.advantages, rel=1e-9, abs=1e-11)


# --- what holds for all that do not preserve mass too -----------------------------------------------------------------


def options_of(name: str, seed: int) -> dict:
    options = random_options(name, seed)
    return {**options, "scope": "rollout"} if name == "high_entropy" else options  # over the batch, the batch matters


@other_peers
@given(batch=batches, seed=seeds)
@few
def test_masked_tokens_change_nothing(name, batch, seed):
    options = random_options(name, seed)
    widened, places = with_masked_insertions(batch, random.Random(seed))
    before, after = credit(name, to_rollouts(batch), **options), credit(name, to_rollouts(widened), **options)
    for field in FIELDS:
        assert torch.equal(getattr(after, field).gather(1, torch.tensor(places)), getattr(before, field))
        assert not getattr(after, field)[~to_rollouts(widened).action_mask].any()


@other_peers
@given(batch=batches, seed=seeds)
@few
def test_order_and_other_groups_change_nothing(name, batch, seed):
    options = options_of(name, seed)
    together = credit(name, to_rollouts(batch), **options)
    for group in {r.group for r in batch}:
        members = [i for i, r in enumerate(batch) if r.group == group]
        random.Random(seed).shuffle(members)
        alone = credit(name, to_rollouts([batch[i] for i in members]), **options)
        for field in FIELDS:
            assert torch.equal(getattr(alone, field), getattr(together, field)[members])


@other_peers
@pytest.mark.parametrize(
    "kind", ["no action tokens", "one with none", "one alone in its group with any", "one token", "equal rewards",
             "zero signals", "huge signals"])  # fmt: skip
def test_degenerate_rollouts(name, kind):
    rollouts = to_rollouts(degenerate(kind))
    c = credit(name, rollouts)
    assert c.advantages.isfinite().all() and c.weights.isfinite().all()
    if kind == "no action tokens":
        assert not c.advantages.any()
    by_outcome_alone = name not in ("igpo", "crpo", "mt_grpo", "crest", "gigpo")
    if kind in ("one alone in its group with any", "equal rewards") and by_outcome_alone:
        assert not c.advantages.any()


@every_peer
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_input_is_refused_by_place(name, bad):
    batch = random_batch(3)
    batch[2].mask[-1], position = True, len(batch[2].mask) - 1
    for signal in method(name).needs:
        broken = replace(batch[2], signals={k: list(v) for k, v in batch[2].signals.items()})
        broken.signals[signal][position] = bad
        with pytest.raises(GearError, match=rf"'{signal}' is {bad} at rollout 2, position {position}"):
            credit(name, to_rollouts([*batch[:2], broken, *batch[3:]]))


# --- cases small enough to work out by hand ---------------------------------------------------------------------------


def pair(rewards=(1.0, 0.0), turns=None, channels=None, **signals) -> Rollouts:
    """Two rollouts of one group that say the same; the first won, unless rewards say otherwise."""
    rows = {name: torch.tensor([row, row] if not isinstance(row[0], list) else row) for name, row in signals.items()}
    T = next(iter(rows.values())).shape[1] if rows else len(turns or [0])
    return Rollouts(
        torch.ones(2, T, dtype=torch.bool),
        torch.tensor(rewards),
        torch.tensor([0, 0]),
        turn_ids=None if turns is None else torch.tensor([turns, turns]),
        advantages=torch.tensor([1.0, -1.0]),
        signals=rows,
        channels={name: torch.tensor(values) for name, values in (channels or {}).items()},
    )


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


def test_crest_shuts_the_gate_where_teacher_and_outcome_disagree():
    c = credit("crest", pair(student_logprob=[-1.0, -1.0], teacher_logprob=[-0.6, -1.4], turn_reward=[0.0, 0.0]))
    assert c.weights[0].tolist() == pytest.approx([math.exp(0.2), 0.0])
    assert c.weights[1].tolist() == pytest.approx([0.0, math.exp(0.2)])
    assert c.advantages[0].tolist() == pytest.approx([0.7 + 0.3 * math.exp(0.2), 0.7])


def test_oar_suppresses_below_the_median_and_boosts_above():
    scores = [math.expm1(x) for x in (0.0, 0.02, 0.5, 0.75, 1.0)]  # s = 0, 0.02, 0.5, 0.75, 1; τ = 0.5
    rho = [0.1, 0.1, 1.0, 1.5, 2.0]
    for name, signal in (("oar_p", "saliency_mask"), ("oar_g", "saliency_grad")):
        weights = credit(name, pair(**{signal: scores})).weights
        assert weights[0].tolist() == pytest.approx([5 * r / sum(rho) for r in rho], rel=1e-5)


def test_shear_scales_by_the_distance():
    assert credit("shear", pair(hidden_distance=[1.0, 1.0, 4.0])).weights[0].tolist() == pytest.approx([0.5, 0.5, 2.0])
    assert credit("shear", pair(hidden_distance=[0.0, 0.0, 0.0])).weights[0].tolist() == [1.0, 1.0, 1.0]


def test_grail_reads_the_size_of_the_saliency_not_its_sign():
    one, other = (credit("grail", pair(saliency_act=[0.0, x, 1.0])).weights for x in (-3.0, 3.0))
    assert torch.equal(one, other) and one[0].argmax() == 1


def test_high_entropy_keeps_a_fifth():
    entropy = [[float(t) for t in range(10)], [0.5] * 10]
    batch = credit("high_entropy", pair(entropy=entropy))
    assert batch.weights.sum(1).tolist() == [4, 0]  # a fifth of all twenty tokens
    each = credit("high_entropy", pair(entropy=entropy), scope="rollout")
    assert each.advantages[0].tolist() == [0.0] * 8 + [1.0] * 2
    assert each.weights[1].tolist() == [1.0] * 10  # all equally uncertain


def test_mt_grpo_by_hand():
    rewards = [[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 5.0]]  # turns of 2, 1, 1 tokens; the last has no tool result
    c = credit("mt_grpo", pair(turns=[0, 0, 1, 2], turn_reward=rewards))
    assert c.advantages.tolist() == [[2.0, 2.0, 1.0, 1.0], [-2.0, -2.0, -1.0, -1.0]]
    assert c.segments[0].tolist() == [1, 1, 2, 3]


def test_gigpo_compares_turns_from_the_same_state_only():
    states = [[7.0, 7.0, 1.0], [7.0, 7.0, 2.0]]
    c = credit("gigpo", pair(turns=[0, 0, 1], anchor_state=states), scale_rewards=False)
    step = 0.95 / 2  # returns 0.95 and 0, from the first state; nobody else was in the others
    assert c.advantages.tolist() == [
        pytest.approx([1 + step, 1 + step, 1.0]),
        pytest.approx([-1 - step, -1 - step, -1.0]),
    ]


def test_gigpo_where_no_two_turns_share_a_state_is_grpo():
    rollouts = pair(turns=[0, 1], anchor_state=[[1.0, 2.0], [3.0, 4.0]])
    assert torch.equal(credit("gigpo", rollouts).advantages, credit("grpo", rollouts).advantages)


def test_igpo_credits_the_turn_that_brought_the_answer_near():
    after = [[math.log(x) for x in row] for row in ((0.1, 0.6, 0.6), (0.1, 0.1, 0.1))]
    rollouts = pair(turns=[0, 1, 2], answer_logprob=after, answer_logprob_start=[math.log(0.1)] * 3)
    returns = torch.tensor([[1.5, 1.5, 1.0], [0.0, 0.0, 0.0]])  # gain 0, 0.5, then the outcome; and nothing
    torch.testing.assert_close(credit("igpo", rollouts).advantages, returns - returns.mean())


def test_igpo_with_one_turn_is_the_outcome_minus_its_mean():
    rollouts = replace(pair(answer_logprob=[-1.0], answer_logprob_start=[-2.0]), advantages=None)
    assert torch.equal(credit("igpo", rollouts).advantages, credit("dr_grpo", rollouts).advantages)


def test_crpo_weighs_channels_alike_whatever_their_scale():
    style, task = [0.0, 1.0], [100.0, 0.0]
    assert credit("crpo", pair(channels={"style": style, "task": task})).advantages.abs().max() < 1e-3
    assert credit("crpo", pair(channels={"style": style, "task": task}), scale_rewards=False).advantages[0, 0] == 24.75


@given(batch=batches)
@few
def test_crpo_never_praises_a_generic_response(batch):
    rollouts = to_rollouts(batch)
    advantages = credit("crpo", rollouts).advantages
    generic = rollouts.channels["generic"] > 0
    assert (advantages[generic] <= 0).all()
    without = {name: x for name, x in rollouts.channels.items() if name != "generic"}
    plain = credit("crpo", replace(rollouts, channels=without)).advantages
    untouched = torch.stack([~generic[rollouts.group_ids == g].any() for g in rollouts.group_ids])
    assert torch.equal(advantages[untouched], plain[untouched])


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
    draw = torch.Generator().manual_seed(0)
    gradients = []
    for _ in range(150):
        rollouts, score = play(0.0, 8, draw)
        gradients.append((credit("mt_grpo", rollouts, baseline=baseline).advantages * score).sum(1).mean())
    mean, error = torch.stack(gradients).mean().item(), torch.stack(gradients).std().item() / math.sqrt(150)
    assert abs(mean) < 3 * error if baseline == "unbiased" else mean > 20 * error

    theta, turns = 0.0, []
    for _ in range(150):  # and so training drifts, or does not
        rollouts, score = play(theta, 8, draw)
        theta += 0.1 * (credit("mt_grpo", rollouts, baseline=baseline).advantages * score).sum(1).mean().item()
        turns.append(rollouts.action_mask.sum(1).float().mean().item())
    before, after = sum(turns[:10]) / 10, sum(turns[-10:]) / 10
    assert abs(after - before) < 0.5 if baseline == "unbiased" else after > before + 2


def test_a_constant_turn_reward_is_no_advantage():
    turns = torch.tensor([[0, 1, 2, 3], [0, 1, 1, 1], [0, 1, 1, 1]])
    rollouts = Rollouts(torch.ones(3, 4, dtype=torch.bool), torch.zeros(3), torch.zeros(3, dtype=torch.long), turn_ids=turns,
                        signals={"turn_reward": torch.full((3, 4), 0.2)})  # fmt: skip
    assert not credit("mt_grpo", rollouts).advantages.any()
    naive = credit("mt_grpo", rollouts, baseline="naive").advantages
    assert (naive[0, 1:3] > 0.5).all() and not naive[1:].any()  # a gift to the one that went on, paid by nobody


# --- declarations -----------------------------------------------------------------------------------------------------


def test_losses_say_what_the_engine_has_to_add():
    assert method("opsd").distillation == Distillation("jsd", 1.0, beta=0.5, top_k=None, teacher="base")
    assert method("sdpo").distillation == Distillation("jsd", 1.0, beta=0.5, top_k=100, tail=True, teacher="ema")
    assert method("sdpo", top_k=0).distillation.top_k is None
    assert method("sdpg").distillation == Distillation("reverse_kl", 0.001, teacher="live", reference_coefficient=0.001)
    assert method("sdpg", coefficient=0.1, reference=0.0).distillation == Distillation("reverse_kl", 0.1)
    assert [name for name in METHODS if method(name).distillation] == ["opsd", "sdpo", "sdpg"]


def test_losses_alone_leave_nothing_to_the_policy_gradient():
    rollouts = to_rollouts(random_batch(0))
    for name in ("opsd", "sdpo"):
        assert not credit(name, rollouts).advantages.any()
    assert torch.equal(credit("sdpg", rollouts).advantages, credit("grpo", rollouts).advantages)


@pytest.mark.parametrize(("name", "options"), [("mt_grpo", {"turn_weight": 0.0}), ("gigpo", {"omega": 0.0}),
                                               ("high_entropy", {"share": 1.0}), ("rlsd", {"mix": 0.0}),
                                               ("serl", {"mix": 0.0})])  # fmt: skip
def test_switched_off_it_is_grpo_bit_for_bit(name, options):
    for seed in range(10):
        rollouts = to_rollouts(random_batch(seed))
        assert torch.equal(credit(name, rollouts, **options).advantages, credit("grpo", rollouts).advantages)


def test_crest_switched_off_is_mt_grpo_bit_for_bit():
    rollouts = to_rollouts(random_batch(1))
    assert torch.equal(credit("crest", rollouts, mix=0.0).advantages, credit("mt_grpo", rollouts).advantages)


def test_options_change_what_is_needed_and_what_the_teacher_reads():
    assert method("gigpo").needs == ("anchor_state",)
    assert method("gigpo", turn_rewards=True).needs == ("anchor_state", "turn_reward")
    assert (method("serl").hint, method("serl", hint="sibling").hint) == ("feedback", "sibling")


def test_crpo_refuses_fewer_than_two_channels():
    rollouts = pair(channels={"task": [1.0, 0.0], "generic": [0.0, 0.0]})
    with pytest.raises(
        GearError, match=r"at least 2 named reward channels .* beside 'generic'. Channels given: task\."
    ):
        credit("crpo", rollouts)


@pytest.mark.parametrize("name", ["igpo", "crpo"])
def test_methods_that_compare_by_themselves_refuse_a_group_of_one(name):
    rollouts = pair(answer_logprob=[-1.0], answer_logprob_start=[-1.0], channels={"a": [1.0, 0.0], "b": [0.0, 1.0]})
    with pytest.raises(GearError, match="group 0 has a single rollout"):
        credit(name, replace(rollouts, group_ids=torch.tensor([0, 1])))


# --- turns ------------------------------------------------------------------------------------------------------------


def test_turns_as_a_table():
    mask = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    rollouts = Rollouts(mask, torch.zeros(3), torch.zeros(3, dtype=torch.long))
    turns, packed = Turns(rollouts.actions), rollouts.actions.pack(torch.arange(15.0).view(3, 5))
    assert turns.counts.tolist() == [2, 1, 0]
    assert turns.taken.tolist() == [[True, True], [True, False], [False, False]]
    assert turns.answered.tolist() == [[True, False], [False, False], [False, False]]
    assert turns.at_first_tokens(packed).tolist() == [[0, 3], [6, 0], [0, 0]]
    assert turns.at_last_tokens(packed).tolist() == [[1, 4], [6, 0], [0, 0]]
    table = torch.tensor([[1.0, 2.0], [3.0, 0.0], [9.0, 9.0]])
    assert rollouts.actions.unpack(turns.spread(table)).tolist() == [[1, 1, 0, 2, 2], [0, 3, 0, 0, 0], [0] * 5]


def test_returns_to_go_are_discounted():
    assert returns_to_go(torch.tensor([[1.0, 0.0, 4.0]]), 0.5).tolist() == [[2.0, 2.0, 4.0]]
