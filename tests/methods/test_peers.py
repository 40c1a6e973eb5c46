"""The peers of GEAR: each formula against plain loops, degenerate rollouts, and what each is for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from random_rollouts import DEGENERATE, batches, degenerate, random_options, seeds, to_rollouts
from reference import random_batch
from reference_peers import PEER_DEFAULTS, peer_credit
from small_rollouts import pair

from gear_rl import METHODS, GearError, credit
from gear_rl.methods import Distillation, Schedule, method

PEERS = list(PEER_DEFAULTS)
OTHERS = [name for name in PEERS if not METHODS[name].preserves_mass]  # the rest is in test_invariants.py

every_peer, other_peers = pytest.mark.parametrize("name", PEERS), pytest.mark.parametrize("name", OTHERS)


# --- formulas ---------------------------------------------------------------------------------------------------------


@every_peer
@given(batch=batches, seed=seeds)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_vectorised_equals_the_plain_loop(name, batch, seed):
    options = random_options(name, seed)
    c = credit(name, to_rollouts(batch, torch.float64), **options)
    for i, expected in enumerate(peer_credit(name, batch, {**PEER_DEFAULTS[name], **options})):
        assert c.segments[i].tolist() == expected.segments
        assert not c.onsets.any()
        assert c.weights[i].tolist() == pytest.approx(expected.weights, rel=1e-9, abs=1e-12)
        assert c.advantages[i].tolist() == pytest.approx(expected.advantages, rel=1e-9, abs=1e-11)


@other_peers
@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_rollouts(name, kind):
    rollouts = to_rollouts(degenerate(kind))
    c = credit(name, rollouts)
    assert c.advantages.isfinite().all() and c.weights.isfinite().all()
    assert not c.advantages[rollouts.rewards.isnan()].any()
    if kind == "no action tokens":
        assert not c.advantages.any()
    others = ("igpo", "crpo", "mt_grpo", "crest", "gigpo", "sdar", "turn_ppo", "vine_ppo", "spo", "hcapo", "sc_grpo")
    by_outcome_alone = name not in others
    if kind == "equal rewards" and by_outcome_alone and name != "trace":
        assert not c.advantages.any()


# --- declarations -----------------------------------------------------------------------------------------------------


def test_losses_say_what_the_engine_has_to_add():
    assert method("opsd").distillation == Distillation("forward_kl", 1.0, beta=0.0, entry_clip=0.05)
    assert method("opsd", beta=0.5, entry_clip=0.0).distillation == Distillation("jsd", 1.0, beta=0.5)
    assert method("opsd", entry_clip=0.0, token_cap=0.2).distillation.token_cap == 0.2
    assert method("sdpo").distillation == Distillation("jsd", 1.0, beta=0.5, top_k=100, tail=True, importance_clip=2.0)
    assert method("sdpo", beta=1.0, top_k=0).distillation == Distillation(
        "reverse_kl", 1.0, beta=1.0, importance_clip=2.0
    )
    expected = Distillation("reverse_kl", 0.001, token_cap=20.0, temper_teacher=False, reference_coefficient=0.001)
    assert method("sdpg").distillation == expected and expected.reference == "squared"
    assert method("sdpg", reference_mode="fkl").distillation.reference == "ratio"
    assert [name for name in METHODS if method(name).distillation] == ["checked_hints", "opsd", "sdpo", "sdpg"]


def test_schedules_are_those_of_the_sources():
    assert METHODS["rlsd"].schedule == METHODS["serl"].schedule == Schedule(50, "sync", teacher_every=10)
    assert METHODS["cepo"].schedule == Schedule(25, "live")
    assert METHODS["rlcsd"].schedule == Schedule(None, "sync", teacher_every=10)
    assert METHODS["sdpo"].schedule == Schedule(teacher="ema", teacher_decay=0.05)
    assert METHODS["opsd"].schedule == METHODS["crest"].schedule == Schedule(teacher="base")
    assert METHODS["gear"].schedule == METHODS["grpo"].schedule == Schedule()
    for name, cls in METHODS.items():
        if cls.schedule.mix_steps is not None:
            assert hasattr(method(name).options, "mix")
        assert cls.schedule.teacher is None or cls.hint is not None


def test_losses_alone_leave_nothing_to_the_policy_gradient():
    rollouts = to_rollouts(random_batch(0))
    for name in ("opsd", "sdpo"):
        assert not credit(name, rollouts).advantages.any()
    assert torch.equal(credit("sdpg", rollouts).advantages, credit("grpo", rollouts).advantages)


@pytest.mark.parametrize(
    ("name", "options"),
    [("mt_grpo", {"turn_weight": 0.0, "fallback": "outcome"}), ("high_entropy", {"share": 1.0}), ("rlsd", {"mix": 0.0}),
     ("serl", {"mix": 0.0}), ("cepo", {"mix": 0.0}), ("sdar", {"coefficient": 0.0}), ("hcapo", {"omega": 0.0}),
     ("grpo_lambda", {"decay": 1.0})],
)  # fmt: skip
def test_switched_off_it_is_grpo_bit_for_bit(name, options):
    for seed in range(10):
        rollouts = to_rollouts(random_batch(seed, unscorable=seed % 2 == 0))
        assert torch.equal(credit(name, rollouts, **options).advantages, credit("grpo", rollouts).advantages)


def test_crest_switched_off_is_the_requests_own_advantage():
    rollouts = to_rollouts(random_batch(1))
    off = credit("crest", rollouts, mix=0.0)
    assert off.weights[off.segments > 0].eq(1).all() and off.advantages.any()


def test_options_change_what_is_needed_and_what_the_teacher_reads():
    for name in ("gigpo", "turn_ppo"):
        assert method(name, turn_rewards=True).needs == (*METHODS[name].needs, "turn_reward")
    assert method("cepo", without_wrong="rlsd").needs == (*METHODS["cepo"].needs, "student_logprob")
    assert method("crpo", certainty=0.0).needs == ()
    assert (method("serl").hint, method("serl", hint="sibling").hint) == ("feedback", "sibling")


def test_crpo_refuses_fewer_than_two_channels():
    rollouts = pair(channels={"task": [1.0, 0.0], "anchor": [0.0, 0.0]})
    with pytest.raises(GearError, match=r"at least 2 named reward channels .* beside 'anchor'. Channels given: task\."):
        credit("crpo", rollouts)


@pytest.mark.parametrize("name", ["igpo", "crpo", "gigpo"])
def test_methods_that_compare_by_themselves_refuse_a_group_of_one(name):
    signals = dict(answer_logprob=[-1.0], answer_logprob_start=[-1.0], anchor_state=[0.0])
    rollouts = pair(**signals, channels={"a": [1.0, 0.0], "b": [0.0, 1.0]})
    with pytest.raises(GearError, match="group 0 has a single rollout"):
        credit(name, replace(rollouts, group_ids=torch.tensor([0, 1])))
