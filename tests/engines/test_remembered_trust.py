"""What an engine remembers of trust in hints: it is saved, and a control with shuffled outcomes knows no true ones."""

from __future__ import annotations

import pytest
from engine_runs import build, watch

from gear_rl.assignment.trust import TrustMemory, trust_of
from gear_rl.methods import method


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
