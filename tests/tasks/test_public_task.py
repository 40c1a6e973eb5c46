"""benchmarks/public_task.py: families by rule, one rate for all, and a table with what could have been seen."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

import pytest
from words_model import save_words_model

pytest.importorskip("reasoning_gym")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def public(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("public_task")


def test_families_are_chosen_and_trained_on(public, tmp_path, monkeypatch, capsys):
    model = str(save_words_model(tmp_path / "model"))  # random weights: it succeeds nowhere
    given = dict(device="cpu", eval_rows=2, out=tmp_path / "families.json")
    two = ["chain_sum", "letter_counting"]
    asked = argparse.Namespace(**given, starts=[model, f"{tmp_path}/./model"], rows=2, taught=two, apart=False)
    with pytest.raises(SystemExit, match="give two warm starts or more"):
        public.families(argparse.Namespace(**given, starts=[model, model]))
    monkeypatch.setitem(public.TASK, "max_turn_tokens", 4)
    assert public.families(asked) == 1 and "used" not in capsys.readouterr().out
    monkeypatch.setattr(public, "KEPT", (0.0, 0.75))
    monkeypatch.setattr(public, "RISE", 0.0)
    assert public.families(asked) == 0 and capsys.readouterr().out.count("used") == 2
    found = json.loads(asked.out.read_text())
    batches, real = [], public.evaluate_model

    def watched(model, tokenizer, task, rows, **more):
        batches.append([row["id"] for row in rows])
        return real(model, tokenizer, task, rows, **more)

    monkeypatch.setattr(public, "evaluate_model", watched)
    given_to = public.CHOOSING_SEED
    mixed, alone = (public.score(model, "cpu", public.options(two), 4, given_to, apart=a)["sampled"] for a in (False, True))
    assert {name: alone["categories"][name]["n"] for name in two} == dict.fromkeys(two, 2) and mixed["n"] == 4
    assert sorted(batches[0]) == sorted(batches[1] + batches[2]), "the same problems"
    assert [{name.split("-")[0] for name in batch} for batch in batches[1:]] == [{name} for name in two]
    assert found["families"] == asked.taught and found["model"] == model and found["before"]["hinted"]["sampled"]["n"] == 2

    small = {"prompts": 2, "generations": 2, "rollouts_per_pass": 4, "precision": "float32"}
    monkeypatch.setattr(public, "TRAIN", {**public.TRAIN, **small})
    training = argparse.Namespace(**given | {"families": asked.out}, steps=2)
    planned = public.plan(training, ["grpo", "gear_alpha4"], [1e-4], [0, 1])
    assert [run.name for run in planned[:3]] == ["grpo-answer-0.0001-0", "gear_alpha4-answer-0.0001-0", "grpo-answer-0.0001-1"]
    result = public.words_runs.train(planned[1], deadline=2e18)
    assert len(result["curves"]["reward"]) == 2 and result["after"]["sampled"]["n"] == 2


def test_the_shortest_start_with_enough_families_is_taken(public):
    low, mid, steep, high = 0.05, 0.4, 0.2, 0.7
    longest = {"a": 0.9, "b": 0.55, "c": 0.5, "d": 0.9, "e": 0.42, "f": 0.9}
    short = dict(a=mid, b=mid, c=mid, d=low, e=mid, f=high)  # d too hard, e does not rise, f too easy: three are left
    middle = dict(a=steep, b=steep, c=steep, d=steep, e=steep, f=high)
    assert public.chosen({"short": short, "middle": middle, "long": longest}) == ("middle", list("abcd"))  # e rises least
    assert public.chosen({"short": short, "long": longest}) == ("short", list("abc"))
    assert public.chosen({"short": middle, "middle": short, "long": longest})[0] == "short"


def test_the_rate_is_the_one_with_the_highest_late_reward(public, tmp_path, monkeypatch, capsys):
    families = tmp_path / "families.json"
    families.write_text('{"families": ["chain_sum"], "model": "m"}')
    folder = tmp_path / "runs"
    folder.mkdir()
    asked = argparse.Namespace(
        device="cpu", eval_rows=2, steps=4, families=families, folder=folder, out=tmp_path / "rates.json",
        learning_rates=[3e-5, 1e-4], minutes=0.0, processes=1,
    )  # fmt: skip
    planned = public.plan(asked, ["grpo"], asked.learning_rates, [public.RATE_SEED])
    for run, rewards in zip(planned, ([9, 9, 1, 1], [0, 0, 2, 2]), strict=True):
        assert public.rates(asked) == 1  # one is missing
        (folder / f"{run.name}.json").write_text(json.dumps({**vars(run), "after": {}, "curves": {"reward": rewards}}))
    assert public.rates(asked) == 0 and json.loads(asked.out.read_text())["chosen"] == 1e-4


def test_the_published_table(public):
    """What docs/evidence.md says of the first such runs."""
    drawn = public.table_of(json.loads((BENCHMARKS / "results" / "reasoning_gym_smollm2_h200.json").read_text()))
    assert "| rlsd | 36.1, 36.3, 37.3 | 36.6 | +1.1 | 41.4 |" in drawn and "3 pairs spread by 1.0: a difference of 3.2" in drawn
