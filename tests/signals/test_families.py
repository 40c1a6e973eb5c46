"""Signals of teachers against full logits of single sequences: forward KL, wrong hints, hindsight, frozen answers."""

from __future__ import annotations

import math

import pytest
import torch
from engine_runs import build
from played_rollouts import rolled
from task_knowledge import GivenKnowledge

from gear_rl.chat.templates import tokenized_prompts
from gear_rl.engines.step import CreditStep
from gear_rl.methods import method
from gear_rl.scoring.padding import padded
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.hint_texts import hint_texts, wrong_hint_texts
from gear_rl.signals.providers import Reader, Reading, collect
from gear_rl.signals.sampled import Sampled
from gear_rl.signals.sources import Sources

NAN = float("nan")
TEMPERATURE = 0.8
REWARDS = [1.0, 0, 0, NAN, 1, 1, 1, 1]


@pytest.fixture
def played(workshop, model_and_tokenizer):
    return rolled(workshop, model_and_tokenizer, prompts=2, each=4)


def read(played, rewards=REWARDS, **sources):
    """A batch of two groups of four, and who reads it."""
    sampled = Sampled(
        played.rows, [row["prompt"] for row in played.rows], played.prompts, played.completions,
        padded(played.completions, width=played.mask.shape[1]), played.mask, torch.tensor(rewards),
        torch.tensor([0] * 4 + [1] * 4),
    )  # fmt: skip
    sources = Sources(
        hint="hint", hint_template=played.task.hint_template, answer="answer", answer_prefix="answer", **sources
    )
    reader = Reader(
        Scorer(played.model, TEMPERATURE), Teacher(played.model), played.tokenizer, sources,
        lambda prompts, rows: tokenized_prompts(played.tokenizer, prompts, [None] * len(prompts)), "test",
    )  # fmt: skip
    return reader, sampled


def with_hint(played, i, text):
    asked = [{"role": "user", "content": f"{played.rows[i]['prompt'][-1]['content']} hint {text}"}]
    return tokenized_prompts(played.tokenizer, [asked], [None])[0]


@torch.no_grad()
def log_softmax(played, prompt, i):
    ids = torch.tensor([prompt + played.completions[i]])
    logits = played.model.eval()(ids).logits[0, len(prompt) - 1 : -1]
    return (logits / TEMPERATURE).log_softmax(-1)


def of_tokens(log_probs, ids):
    return log_probs.gather(1, torch.tensor(ids)[:, None])[:, 0]


def check(signal, i, expected, played):
    n = len(played.completions[i])
    expected = torch.where(played.mask[i, :n], expected, 0.0)
    torch.testing.assert_close(signal[i, :n], expected, rtol=1e-3, atol=1e-4)
    assert not signal[i, n:].any()


def test_forward_kl(played):
    reader, sampled = read(played)
    hinted = reader.hints.read("own", sampled)
    signal = collect(Reading(reader, sampled, hinted, {}), ["forward_kl"])["forward_kl"]
    for i, prompt in enumerate(played.prompts):
        p, q = log_softmax(played, prompt, i), log_softmax(played, with_hint(played, i, played.rows[i]["hint"]), i)
        check(signal, i, (q.exp() * (q - p)).sum(1), played)
    assert signal[played.mask].max() > 0.1
    hinted.unread.append(0)
    assert not collect(Reading(reader, sampled, hinted, {}), ["forward_kl"])["forward_kl"][0].any()


def test_wrong_hints_are_the_mean_of_their_teachers(played):
    reader, sampled = read(played)
    texts = wrong_hint_texts(reader.sources, sampled, played.tokenizer, "test")
    assert [len(wrong) for wrong in texts] == [2, 1, 1, 2, 0, 0, 0, 0], "never itself, never one that was not scored"
    assert texts[1] == texts[0][1:] and texts[2] == texts[0][:1]
    hinted = reader.hints.read("own", sampled)
    names = ["teacher_logprob", "wrong_teacher_logprob"]
    signals = collect(Reading(reader, sampled, hinted, {}), names)
    wrong = signals["wrong_teacher_logprob"]
    for i in range(4):
        each = [of_tokens(log_softmax(played, with_hint(played, i, t), i), played.completions[i]) for t in texts[i]]
        check(wrong, i, torch.stack(each).logsumexp(0) - math.log(len(each)), played)
    assert torch.equal(wrong[4:], signals["teacher_logprob"][4:]), "nobody is wrong: the teacher's own word"
    assert (wrong[:4] - signals["teacher_logprob"][:4]).abs().max() > 0.1


def test_wrong_hints_of_the_data_and_at_most_four(played):
    reader, sampled = read(played, wrong_hint=lambda row: "weld weld weld weld")
    texts = wrong_hint_texts(reader.sources, sampled, played.tokenizer, "test")
    assert texts == [["weld weld weld weld"]] * 8
    sampled = Sampled(*[getattr(sampled, name) for name in ("rows", "prompts", "prompt_ids", "completion_ids", "token_ids",
                      "action_mask")], torch.tensor([0.0] * 7 + [1.0]), torch.zeros(8, dtype=torch.long))  # fmt: skip
    reader, _ = read(played)
    assert [len(w) for w in wrong_hint_texts(reader.sources, sampled, played.tokenizer, "test")] == [4] * 8


def test_hindsight_reads_how_it_ended(played):
    reader, sampled = read(played)
    texts = hint_texts("final_state", reader.sources, sampled, played.tokenizer, "test")
    signal = collect(Reading(reader, sampled, None, {}), ["hindsight_logprob"])["hindsight_logprob"]
    for i, ids in enumerate(played.completions):
        last = [t for t in range(len(ids)) if played.mask[i, t] and (t == 0 or not played.mask[i, t - 1])][-1]
        said = played.tokenizer.decode(ids[last:], skip_special_tokens=True)
        assert texts[i].endswith(said) and texts[i].split()[0].startswith("g")
        check(signal, i, of_tokens(log_softmax(played, with_hint(played, i, texts[i]), i), ids), played)


def test_a_task_may_say_how_it_ended(played):
    class Ended(GivenKnowledge):
        def final_states(self, sampled):
            return ["weld", *[None] * 7]

    reader, sampled = read(played, knowledge=Ended())
    assert hint_texts("final_state", reader.sources, sampled, played.tokenizer, "test")[0] == "weld"


def test_frozen_answers_survive_updates_and_checkpoints(tmp_path, played):
    reader, sampled = read(played, rewards=[1.0, 0, 0, 1] * 2)
    step = CreditStep(method("trace"), reader)
    names = ["frozen_answer_logprob", "frozen_answer_logprob_start"]
    before = collect(Reading(reader, sampled, None, {}), names)
    with torch.no_grad():
        played.model.lm_head.weight.mul_(1.5)
    after = collect(Reading(reader, sampled, None, {}), [*names, "answer_logprob"])
    assert all(torch.equal(before[name], after[name]) for name in names)
    assert not torch.allclose(after["answer_logprob"], after["frozen_answer_logprob"])
    step.save(tmp_path)
    later, _ = read(played)
    again = CreditStep(method("trace"), later)  # begun from the moved weights, until it is loaded
    again.load(tmp_path)
    assert torch.equal(collect(Reading(later, sampled, None, {}), names)[names[0]], before[names[0]])


def test_grail_on_the_embedded_task(tmp_path):
    from engine_runs import watch

    trainer = build("grail", tmp_path / "run", steps=1)
    seen = watch(trainer)
    trainer.train()
    signals, verdicts = seen[0]["rollouts"].signals, seen[0]["verdicts"]
    for box, saliency, verdict in zip(signals["answer_box"], signals["answer_saliency"], verdicts, strict=True):
        assert (box == 1).nonzero()[:, 0].tolist() == [t for t, marked in enumerate(verdict.answer_span) if marked]
        assert bool(saliency.any()) == any(verdict.answer_span)
