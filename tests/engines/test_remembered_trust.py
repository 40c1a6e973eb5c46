"""What an engine remembers of trust in hints: it is saved, and a control with shuffled outcomes knows no true ones."""

from __future__ import annotations

import pytest
from engine_runs import build, watch

from gear_rl.assignment.trust import TRUST_READS, TrustMemory, trust_of
from gear_rl.methods import METHODS, method


@pytest.mark.parametrize("name", ["checked_hints", "checked_hints+shuffled_outcomes"])
def test_trust_is_measured_on_what_the_method_sees_and_survives_a_checkpoint(tmp_path, name):
    trainer = build(name, tmp_path / "run", prompts=4)
    seen = watch(trainer)
    trainer.train()
    expected, of_true_outcomes = TrustMemory(), TrustMemory()
    for batch in seen:
        expected.add(trust_of(method(name).view(batch["rollouts"])))
        of_true_outcomes.add(trust_of(batch["rollouts"]))
    assert trainer.credit_step.trust == expected != TrustMemory()
    assert (expected == of_true_outcomes) == (name == "checked_hints")
    assert seen[-1]["rollouts"].hint_trust == expected.at_least
    trainer.credit_step.save(tmp_path)
    trainer.credit_step.trust = TrustMemory()
    trainer.credit_step.load(tmp_path)
    assert trainer.credit_step.trust == expected


HINTED = sorted(name for name, kind in METHODS.items() if kind.hint is not None)


@pytest.mark.parametrize("name", [*HINTED, {"name": "gear", "direction": "outcome"}], ids=str)
def test_trust_is_logged_in_every_run_with_a_hint(tmp_path, name):
    """In every step where student and teacher are both read for credit, else in the first and every fourth."""
    trainer = build(name, tmp_path / "run", prompts=4, steps=2)
    seen = watch(trainer)
    trainer.train()
    logged = ["hints/trust" in line for line in trainer.state.log_history if "loss" in line]
    seldom = name in ("cepo", "opsd", "rlcsd", "sdpg", "sdpo")
    assert logged == [True, not seldom]
    read = [set(TRUST_READS) <= set(trainer.credit_step._signals_to_read(step)) for step in range(9)]
    always = set(TRUST_READS) <= set(trainer.credit_step.method.needs)
    assert read == [always or not seldom or step in (0, 4, 8) for step in range(9)]
    expected = TrustMemory()
    for batch, counts in zip(seen, logged, strict=True):
        if counts:
            expected.add(trust_of(trainer.credit_step.method.view(batch["rollouts"])))
    assert trainer.credit_step.trust == expected
