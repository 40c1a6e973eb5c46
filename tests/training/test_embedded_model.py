"""How the embedded models are made: what the transcripts teach, and which models are kept."""

from __future__ import annotations

import numpy as np
import pytest

from gear_rl.errors import GearError
from gear_rl.tasks.workshop.environment import judge
from gear_rl.tasks.workshop.tokenizer import VOCABULARY
from gear_rl.tasks.workshop.world import Order, world
from gear_rl.training.embedded_model import faults, make
from gear_rl.training.workshop_transcripts import Transcripts

PASSING = {
    "student": 0.2, "student_greedy": 0.2, "teacher": 0.99, "answer": 0.2, "answer_reward": 0.99,
    "hidden: shown facts": 0.99, "hidden: hidden facts": 0.7,
}  # fmt: skip


def lines(number: int, form: str, rows: int = 400, steps: int = 6) -> list[tuple[Order, list[str], list[str], str]]:
    """Drawn transcripts: the order, the hint's words, the tools used, the answer given."""
    ids, weights = Transcripts(world(number)).draw(np.random.default_rng(0), rows, steps, form)
    made = []
    for row in ids:
        text = " ".join(VOCABULARY[i] for i in row)
        asked, said = text.removeprefix("<user> ").split(" <end> <bot> ", 1)
        order, _, hint = asked.partition(" hint ")
        parsed = Order.parse(order, number)
        verdict = judge(parsed, said)
        assert verdict.malformed == 0 and len(verdict.turn_rewards) == steps + 1  # the environment's words are right
        words = said.split()
        made.append((parsed, hint.split(), words[1 : 6 * steps : 6], words[-2]))
    assert weights.shape == ids.shape and set(weights[0]) == {0, 1, 4}
    return made


def test_without_a_hint_tools_are_as_well_known_as_meant():
    made = lines(3, "plain")
    right = [tool == gold for order, hint, tools, _ in made for tool, gold in zip(tools, order.reference_tools, strict=True)]
    assert (
        all(not hint for _, hint, _, _ in made) and 0.68 < np.mean(right) < 0.79
    )  # 0.6 · 0.98 + 0.15 · 0.55 + 0.25 · 0.25
    assert all(answer == order.answer_after(tools) for order, _, tools, answer in made)


def test_shown_tools_are_followed_and_hidden_ones_known():
    made = lines(3, "calls")
    pairs = [(h, t, g) for order, hint, tools, _ in made for h, t, g in zip(hint, tools, order.reference_tools, strict=True)]
    assert all(told == used for told, used, _ in pairs if told != "hmm")
    hidden = [used == gold for told, used, gold in pairs if told == "hmm"]
    assert len(hidden) > 100 and 0.6 < np.mean(hidden) < 0.85
    followed = [told == gold for told, _, gold in pairs if told != "hmm"]
    assert 0.65 < np.mean(followed) < 0.78  # two thirds of the hints are right, the others random
    assert not any("hmm" in hint for _, hint, _, _ in lines(0, "calls"))  # world 0 was made without


def test_a_told_answer_is_given_whatever_was_done():
    made = lines(3, "answer")
    assert all(hint == ["answer", answer] for _, hint, _, answer in made)
    assert 0.6 < np.mean([answer == order.reference_answer for order, _, _, answer in made]) < 0.95
    right = [tool == gold for order, _, tools, _ in made for tool, gold in zip(tools, order.reference_tools, strict=True)]
    assert 0.68 < np.mean(right) < 0.79


def test_a_batch_holds_every_form_padded_to_one_length():
    told = Transcripts(world(3))
    batch = told.batch(np.random.default_rng(0), 64, 4)
    assert batch.names == ["plain", "calls", "answer"] and [p.stop - p.start for p in batch.parts] == [32, 24, 8]
    assert batch.ids.shape == batch.weights.shape and len(batch.ids) == 64
    assert not batch.weights[batch.ids == 0].any()  # padding counts nothing
    assert Transcripts(world(0)).batch(np.random.default_rng(0), 64, 4).names == ["plain", "calls"]


def test_only_models_of_the_tasks_design_pass():
    assert faults(PASSING) == []
    for name, value in {"student": 0.05, "student_greedy": 0.6, "teacher": 0.8, "answer_reward": 0.5}.items():
        assert len(faults({**PASSING, name: value})) == 1
    assert faults({name: PASSING[name] for name in ("student", "student_greedy", "teacher")}) == []  # world 0


def test_a_model_that_fails_the_gate_is_not_kept(tmp_path):
    out = tmp_path / "1"
    with pytest.raises(GearError, match=r"no seed of \[1\] passed"):
        make(1, [1], out, updates=2, rows=8, lr=1e-3, device="cpu", pick=True)
    assert not out.exists()
    make(1, [1], out, updates=2, rows=8, lr=1e-3, device="cpu", pick=False)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in out.iterdir()}
    with pytest.raises(GearError, match="exists"):
        make(1, [1], out, updates=2, rows=8, lr=1e-3, device="cpu", pick=False)
