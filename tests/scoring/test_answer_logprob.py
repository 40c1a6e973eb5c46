"""The reference answer's log-probability turn by turn: against a plain loop over whole forward passes, and what it says."""

from __future__ import annotations

import pytest
import torch
from played_rollouts import Rolled, rolled

from gear_rl.errors import GearError
from gear_rl.scoring.answer_logprob import answer_logprobs
from gear_rl.scoring.answers import Answer
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.tasks.workshop.world import Order


@pytest.fixture
def rollouts(workshop, model_and_tokenizer) -> Rolled:
    return rolled(workshop, model_and_tokenizer)


@torch.no_grad()
def plain(model, context: list[int], answer: Answer, temperature: float) -> float:
    logits = model(torch.tensor([context + answer.ids])).logits[0] / temperature
    first = len(context) + answer.unscored
    found = [logits[t - 1].log_softmax(-1)[(context + answer.ids)[t]] for t in range(first, len(context + answer.ids))]
    return float(sum(found) / len(found))


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_equals_a_plain_loop(rollouts, temperature):
    model, answers = rollouts.model, rollouts.answers()
    signals = answer_logprobs(
        Scorer(model, temperature), rollouts.prompts, rollouts.completions, rollouts.mask, answers
    )
    for i, (prompt, ids) in enumerate(zip(rollouts.prompts, rollouts.completions, strict=True)):
        mask = rollouts.mask[i].tolist()
        starts = [t for t in range(len(mask)) if mask[t] and (t == 0 or not mask[t - 1])]
        before = [plain(model, prompt + ids[:t], answers[i], temperature) for t in starts]
        after = [*before[1:], before[-1]]  # the last turn gives the answer: nothing is read after it
        turn = -1
        for t, sampled in enumerate(mask):
            turn += t in starts
            expected = (after[turn], before[0]) if sampled else (0.0, 0.0)
            got = tuple(float(signals[name][i, t]) for name in ("answer_logprob", "answer_logprob_start"))
            assert got == pytest.approx(expected, abs=2e-4), (i, t)


def test_a_right_call_at_the_end_makes_the_answer_likely(workshop, model_and_tokenizer):
    """The reference rollout knows its answer after the last call; one that went wrong at the last call believes otherwise."""
    model, tokenizer = model_and_tokenizer
    row = next(r for r in workshop.rows("train", 50) if r["answer"] == "yes")
    order = Order.parse(row["order"])
    prompt = tokenizer.apply_chat_template(row["prompt"], tokenize=True, return_dict=False, add_generation_prompt=True)
    values = {}
    for name in ("reference", "wrong"):
        episode, words = workshop.episode(row), ""
        for k, (job, tool) in enumerate(zip(order.jobs, order.reference_tools, strict=True)):
            tools = [tool] if name == "reference" or k + 1 < len(order.jobs) else ["weld", "clamp", "grease", "file"]
            for tool_used in tools:  # the first tool that turns the answer into a "no"
                trial = workshop.episode(row)
                trial.gauge = episode.gauge
                reply = trial.reply(f"{tool_used} {job[0]}")
                end = Order(order.answer, trial.gauge, (), order.world)
                if name == "reference" or k + 1 < len(order.jobs) or end.reference_answer == "no":
                    break
            episode.gauge = trial.gauge
            words += f"well {tool_used} {job[0]} <end> {reply} <bot> "
        ids = tokenizer(words + "answer yes <end>", add_special_tokens=False)["input_ids"]
        mask = torch.tensor([[token not in tokenizer(" ".join(f"g{i}" for i in range(32)) + " <bot>")["input_ids"]
                              for token in ids]])  # fmt: skip
        answer = Answer(tokenizer("answer yes", add_special_tokens=False)["input_ids"], 1)
        signal = answer_logprobs(Scorer(model), [prompt], [ids], mask, [answer])["answer_logprob"]
        values[name] = float(signal[0, -1])
    assert values["reference"] > -0.1 and values["wrong"] < -2.0


def test_equal_contexts_are_read_once(rollouts, monkeypatch):
    read = []
    score = Scorer.score
    monkeypatch.setattr(
        Scorer, "score", lambda self, prompts, *rest: (read.append(prompts), score(self, prompts, *rest))[1]
    )
    answer_logprobs(Scorer(rollouts.model), rollouts.prompts, rollouts.completions, rollouts.mask, rollouts.answers())
    assert len(read) == 1 and len({tuple(p) for p in read[0]}) == len(read[0])
    assert sum(p in rollouts.prompts for p in read[0]) == 2, "a group's prompt alone is one context"


def test_rollouts_that_say_nothing(rollouts):
    mask = rollouts.mask.clone()
    mask[1] = False
    signals = answer_logprobs(Scorer(rollouts.model), rollouts.prompts, rollouts.completions, mask, rollouts.answers())
    assert not signals["answer_logprob"][1].any() and signals["answer_logprob"][0].any()
    nothing = answer_logprobs(
        Scorer(rollouts.model), rollouts.prompts, rollouts.completions, mask & False, rollouts.answers()
    )
    assert not nothing["answer_logprob_start"].any()


def test_what_cannot_be_read_is_refused(rollouts):
    with pytest.raises(GearError, match="without any token"):
        Answer([5], 1)
    long = [Answer(rollouts.ids("yes") * 300)] * len(rollouts.rows)
    with pytest.raises(GearError, match="context of 256"):
        answer_logprobs(Scorer(rollouts.model), rollouts.prompts, rollouts.completions, rollouts.mask, long)


def test_frozen_weights_read_as_they_were(rollouts):
    arguments = rollouts.prompts, rollouts.completions, rollouts.mask, rollouts.answers()
    scorer, frozen = Scorer(rollouts.model), Teacher(rollouts.model, "base")
    before = answer_logprobs(scorer, *arguments)
    with torch.no_grad():
        rollouts.model.lm_head.weight.mul_(1.5)
    after, as_it_was = answer_logprobs(scorer, *arguments), answer_logprobs(scorer, *arguments, frozen)
    for name in before:
        assert torch.equal(as_it_was[name], before[name])
        assert not torch.allclose(after[name], before[name], atol=1e-2)
