"""The registry of methods, their declarations and options, and what the controls keep of GEAR."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from dataclasses import fields, replace

import pytest
import torch
from entry_points import forbid, register
from reference import CHANNELS, DEFAULTS, SIGNALS, as_signed, splitmix64
from reference_peers import PEER_DEFAULTS

from gear_rl import GearError, Rollouts, credit
from gear_rl.assignment.signals import SIGNALS as TABLE
from gear_rl.methods import METHODS, Method, all_methods, find_method, method
from gear_rl.methods.randomness import hashed
from gear_rl.options import describe

every_method = pytest.mark.parametrize("name", METHODS)


def random_rollouts(B: int = 12, T: int = 60, seed: int = 0, group_size: int = 4) -> Rollouts:
    g = torch.Generator().manual_seed(seed)
    signals = {name: torch.rand(B, T, generator=g) ** 3 * 2 for name in SIGNALS}
    signals |= {name: -signal for name, signal in signals.items() if "logprob" in name}
    rewards, mask = torch.rand(B, generator=g), torch.rand(B, T, generator=g) < 0.8
    channels = {name: torch.rand(B, generator=g) for name in CHANNELS}
    return Rollouts(mask, rewards, torch.arange(B) // group_size, signals=signals, channels=channels)


# --- names ------------------------------------------------------------------------------------------------------------


def test_the_methods_of_the_first_release():
    assert list(METHODS) == [
        "grpo", "dr_grpo", "gear", "checked_hints", "token", "segment_only", "random_segments", "fixed_segments",
        "turn_segments", "shuffled", "low_probability", "wrong_hint", "shuffled_outcomes", "opd", "oracle",
        "prompted_judge", *PEER_DEFAULTS]  # fmt: skip


@pytest.mark.parametrize(("name", "guess"), [("gaer", "gear"), ("drgrpo", "dr_grpo"), ("shufled", "shuffled")])
def test_unknown_method_gets_a_guess(name, guess):
    with pytest.raises(GearError, match=f"unknown method {name!r}. Did you mean .*{guess!r}"):
        credit(name, random_rollouts())


@pytest.mark.parametrize(("option", "guess"), [("tua_kl", "tau_kl"), ("lambda_mix", "mix"), ("rho", "rho_m")])
def test_unknown_option_gets_a_guess(option, guess):
    with pytest.raises(GearError, match=f"unknown gear option {option!r}.*{guess}"):
        method("gear", **{option: 1.0})


@pytest.mark.parametrize("name", METHODS)
def test_an_option_named_self_is_unknown_like_any_other(name):
    with pytest.raises(GearError, match=r"unknown \w+ option 'self'|takes no options, got 'self'"):
        method(name, self=1)


def test_a_method_without_options_says_so():
    with pytest.raises(GearError, match="grpo takes no options, got 'alpha'"):
        method("grpo", alpha=1.0)


# --- third parties ----------------------------------------------------------------------------------------------------


class Mine(Method):
    name = "mine"
    summary, standing = "A method of a third party.", "ours"


def test_third_party_methods_are_found_and_listed(monkeypatch):
    register(monkeypatch, "method", ("mine", f"{__name__}:Mine"))
    assert find_method("mine").__name__ == "Mine"
    assert list(all_methods()) == [*METHODS, "mine"]
    with pytest.raises(GearError, match=r"Did you mean .*'mine'"):
        find_method("mime")


def test_ours_are_found_without_looking_for_third_parties(monkeypatch):
    forbid(monkeypatch)
    assert method("gear").name == "gear"


# --- declarations -----------------------------------------------------------------------------------------------------


@every_method
def test_every_method_says_what_it_is(name):
    cls = METHODS[name]
    assert cls.name == name and cls.__doc__ and cls.summary.endswith(".") and cls.standing
    assert set(cls.needs) <= set(TABLE)
    distils = method(name).distillation is not None
    teacher = distils or {"reverse_kl", "forward_kl", "teacher_logprob"} & set(cls.needs)
    assert bool(teacher) == (cls.hint is not None)
    if name not in PEER_DEFAULTS:
        reads = bool({"student_logprob", "judged_turn"} & set(cls.needs))
        assert cls.cost.forwards == bool(teacher) + (bool(teacher) or reads)
        assert cls.preserves_mass == (name != "opd")
    from_a_model = set(cls.needs) - {"decision", "turn_reward", "anchor_state", "tool_call", "request_ids"}
    from_a_model -= {"values"} if name == "vine_ppo" else set()  # no pass over the rollouts, but further ones
    assert (cls.cost.forwards == 0) == (not from_a_model and not distils)
    assert (cls.cost.backwards > 0) == bool({"saliency_grad", "answer_saliency"} & set(cls.needs))
    assert cls.preserves_mass == cls.mass.startswith("kept")


WORDS = ("full text", "official code", "second-hand", "abstract", "known", "ours")


@every_method
def test_every_standing_begins_with_a_known_word(name):
    assert METHODS[name].standing.startswith(WORDS)
    assert (METHODS[name].paper is None) == (METHODS[name].standing == "ours")


def test_controls_of_our_own_name_no_paper():
    assert [name for name, cls in METHODS.items() if cls.paper and "2605.11853" in cls.paper] == ["gear"]
    assert find_method("rlsd+wrong_hint").paper is None and find_method("rlsd+shuffled_outcomes").paper is None


def test_only_the_wrong_hint_reads_another_problem():
    assert [name for name, cls in METHODS.items() if cls.hint == "other"] == ["wrong_hint"]


@every_method
def test_defaults_are_those_of_the_specification(name):
    options = method(name).options
    specified = {**DEFAULTS, **PEER_DEFAULTS.get(name, {})}
    assert {f.name: getattr(options, f.name) for f in fields(options)}.items() <= specified.items()


@every_method
def test_every_option_is_explained(name):
    for cls in METHODS[name].Options.__mro__[:-1]:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body
        for field, below in zip(body, [*body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign):
                explained = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                assert explained and "efault" in below.value.value  # where the default comes from


@every_method
def test_missing_signals_are_refused(name):
    rollouts = random_rollouts()
    for need in METHODS[name].needs:
        without = {k: v for k, v in rollouts.signals.items() if k != need}
        with pytest.raises(GearError, match=rf"{name} needs the signal '{need}' \(.*\)\. Signals given: \w+, "):
            credit(name, replace(rollouts, signals=without))
    only = {k: v for k, v in rollouts.signals.items() if k in METHODS[name].needs}
    credit(name, replace(rollouts, signals=only))  # and nothing beyond its needs is read


@pytest.mark.parametrize("direction", ["outcome", "teacher"])
def test_directions_that_do_not_ask_about_the_sampled_token_need_less(direction):
    assert method("gear", direction=direction).needs == ("reverse_kl", "entropy")
    rollouts = random_rollouts()
    only = {k: v for k, v in rollouts.signals.items() if k in ("reverse_kl", "entropy")}
    credit("gear", replace(rollouts, signals=only), direction=direction)
    assert "teacher_logprob" in method("gear").needs and "teacher_logprob" in METHODS["gear"].needs


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "range_"),
    [
        ("alpha", -0.1, "a number, at least 0"),
        ("alpha", float("nan"), "a number, at least 0"),
        ("alpha", float("inf"), "a number, at least 0"),
        ("alpha", "2", "a number, at least 0"),
        ("alpha", True, "a number, at least 0"),
        ("direction", "outcom", "one of 'consistent', 'outcome', 'teacher'"),
        ("quantile", 0.0, "a number, above 0 and at most 1"),
        ("quantile", 1.1, "a number, above 0 and at most 1"),
        ("floor_kl", 0, "a number, above 0"),
        ("floor_h", -1.0, "a number, above 0"),
        ("tau_kl", -0.5, "a number, at least 0"),
        ("tau_h", -0.5, "a number, at least 0"),
        ("rho_min", 0.0, "a number, above 0 and at most 1"),
        ("rho_min", 1.5, "a number, above 0 and at most 1"),
        ("rho_max", 0.9, "a number, at least 1"),
        ("mix", -0.1, "a number, at least 0 and at most 1"),
        ("mix", 1.1, "a number, at least 0 and at most 1"),
        ("scale_rewards", 1, "True or False"),
    ],
)
def test_option_out_of_range_is_refused_with_its_range(option, value, range_):
    with pytest.raises(GearError, match=f"gear\\.{option}=.*: must be {range_}\\."):
        method("gear", **{option: value})


@pytest.mark.parametrize(
    ("name", "options"),
    [("fixed_segments", {"length": 0}), ("fixed_segments", {"length": 2.0}), ("shuffled", {"seed": -1}),
     ("opd", {"clip": 0.0}), ("low_probability", {"floor": 0.0}), ("oracle", {"rho_min": 0.0})],
)  # fmt: skip
def test_options_of_the_controls_have_ranges_too(name, options):
    with pytest.raises(GearError, match=f"{name}\\.{next(iter(options))}="):
        method(name, **options)


@every_method
def test_limits_themselves_are_allowed(name):
    for f in fields(METHODS[name].Options):
        assert describe(METHODS[name].Options, f)
        for limit in ("at_least", "at_most"):
            if f.metadata[limit] is not None:
                value = type(f.default)(f.metadata[limit])
                assert getattr(method(name, **{f.name: value}).options, f.name) == value


# --- what the controls keep, and what they break ----------------------------------------------------------------------


def segment_lengths(c, i: int) -> Counter:
    """How many segments there are of each (length, adaptive)."""
    rows = c.segments[i]
    return Counter((int((rows == s).sum()), bool(c.onsets[i][rows == s][0])) for s in rows.unique() if s > 0)


def test_random_segments_keep_the_lengths_and_move_the_places():
    rollouts = random_rollouts()
    gear, control = credit("gear", rollouts), credit("random_segments", rollouts)
    assert all(segment_lengths(gear, i) == segment_lengths(control, i) for i in range(len(rollouts.rewards)))
    assert (gear.onsets != control.onsets).any(1).sum() >= 11


def test_shuffled_keeps_the_divergences_and_moves_their_places():
    rollouts, no_segments = random_rollouts(), {"tau_kl": 2.0, "tau_h": 2.0}
    gear, control = credit("gear", rollouts, **no_segments), credit("shuffled", rollouts, **no_segments)
    torch.testing.assert_close(gear.weights.sort(1).values, control.weights.sort(1).values)
    assert (gear.weights != control.weights).any(1).all()


def test_wrong_hint_differs_from_gear_only_in_the_hint():
    rollouts = random_rollouts()
    assert torch.equal(credit("wrong_hint", rollouts).advantages, credit("gear", rollouts).advantages)


@pytest.mark.parametrize("name", ["random_segments", "shuffled", "shuffled_outcomes"])
def test_chance_follows_the_seed_and_the_rollout(name):
    rollouts = random_rollouts()
    first = credit(name, rollouts).advantages
    assert torch.equal(first, credit(name, rollouts, seed=0).advantages)
    assert not torch.equal(first, credit(name, rollouts, seed=1).advantages)
    ids = torch.zeros_like(rollouts.action_mask, dtype=torch.long)
    a, b = (credit(name, replace(rollouts, token_ids=ids + k)).advantages for k in (0, 1))
    assert not torch.equal(a, b)  # other tokens, other numbers: training steps do not repeat them


def test_every_way_of_dealing_outcomes_out_is_equally_likely():
    rollouts = replace(random_rollouts(B=3, T=4, group_size=3), rewards=torch.tensor([0.0, 1.0, 3.0]))
    plain = method("grpo").outcome(rollouts)
    deals = Counter(
        tuple((method("shuffled_outcomes", seed=s).outcome(rollouts)[:, None] == plain).long().argmax(1).tolist())
        for s in range(1200)
    )
    assert len(deals) == 6 and all(150 <= count <= 250 for count in deals.values())  # 200 ± 13 expected


def test_hash_is_splitmix64():
    values = [0, 1, -1, 12345, -(2**63), 2**63 - 1]
    assert hashed(torch.tensor(values)).tolist() == [as_signed(splitmix64(v % 2**64)) for v in values]
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # the published first output of seed 0
