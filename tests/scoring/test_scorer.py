"""`Scorer`: no more reading than a method needs, memory that does not grow, bad input named, and the self-check."""

from __future__ import annotations

import pytest
import torch
from tiny_models import VOCAB, Passes, from_full_logits, largest_gap, rollouts, tiny

from gear_rl.errors import GearError
from gear_rl.scoring.body import body_of
from gear_rl.scoring.scorer import SIGNALS, Scorer
from gear_rl.scoring.teacher import Teacher

TOLERANCE = 2e-5


# ---------------------------------------------------------------------------------------------- no more than needed
def tokens_of(batch, *sides, shared=True):
    """Tokens that `sides` must read: prompts once each, completions up to the last action token without it."""
    counts = [row.nonzero().max().item() if row.any() else -1 for row in batch.mask]
    total = 0
    for side in sides:
        live = [tuple(prompt) for prompt, count in zip(side, counts, strict=True) if count >= 0]
        total += sum(map(len, set(live) if shared else live)) + sum(max(0, count) for count in counts)
    return total


@pytest.mark.parametrize("budget", [10_000, 90])
def test_prompts_are_read_once_whatever_the_number_of_rollouts_and_the_budget(budget):
    model = tiny("llama")
    for size in (4, 8, 32):
        batch = rollouts(size=size, hint=1)
        with Passes(body_of(model)) as passes:
            scorer = Scorer(model, token_budget=budget, share_prompts=True)
            scorer._proven = True  # the proof's own tokens are not the batch's
            scorer.score(*batch, Teacher(model, "base"))  # in separate passes: nothing shared between the sides
        assert sum(passes.tokens) == tokens_of(batch, batch.prompts, batch.hinted)


def test_what_hinted_and_plain_prompts_begin_with_is_read_once():
    model, batch = tiny("llama"), rollouts(prompt=(40, 30))
    scorer = Scorer(model, share_prompts=True)
    scorer._proven = True
    with Passes(body_of(model)) as passes:
        scorer.score(*batch, Teacher(model))
    alike = (40 - 2) + (30 - 2)  # `rollouts` puts the hint before the last two tokens
    assert sum(passes.tokens) == tokens_of(batch, batch.prompts, batch.hinted) - alike
    assert len(passes.tokens) == 1, "student and live teacher go through together"


@pytest.mark.parametrize("share", [True, False])
def test_memory_does_not_grow_with_the_rollouts(share):
    model, most = tiny("llama"), []
    for size in (8, 32, 128):
        batch = rollouts(size=size, completion=(16, 20), prompt=(20, 20))
        with Passes(body_of(model)) as passes:
            Scorer(model, token_budget=200, share_prompts=share).score(*batch, Teacher(model))
        assert max(passes.tokens) <= 200
        most.append(passes.largest)
    assert max(most) <= 200 * 48, "tokens times the widest layer"
    with Passes(body_of(model)) as passes:  # and the measure itself is able to see growth
        Scorer(model, token_budget=10_000, share_prompts=share).score(*batch, Teacher(model))
    assert passes.largest > 3 * most[-1]


def test_no_logits_are_made():
    """Scoring may not run the head over a sequence: with V ≫ D that would be by far the largest tensor."""
    model, batch = tiny("llama"), rollouts()
    calls = []
    model.get_output_embeddings().register_forward_hook(lambda *_: calls.append(1))
    Scorer(model).score(*batch, Teacher(model))
    Scorer(model, share_prompts=False).score(*batch, Teacher(model))
    assert not calls


@pytest.mark.parametrize(
    ("needs", "known", "sides", "returned"),
    [
        (("student_logprob",), (), "student", {"student_logprob", "entropy"}),
        (("teacher_logprob",), (), "teacher", {"teacher_logprob"}),
        (("student_logprob", "teacher_logprob"), (), "both", set(SIGNALS)),
        (
            ("student_logprob", "teacher_logprob"),
            ("student_logprob",),
            "teacher",
            {"student_logprob", "teacher_logprob"},
        ),
        (("student_logprob",), ("student_logprob",), "none", {"student_logprob"}),
        (("reverse_kl", "student_logprob"), ("student_logprob",), "both", set(SIGNALS)),
        ((), (), "none", set()),
    ],
)
@pytest.mark.parametrize("kind", ["live", "base"])
def test_only_the_sides_a_method_needs_are_read(needs, known, sides, returned, kind):
    model, batch = tiny("llama"), rollouts()
    truth = from_full_logits(model, batch, 1.0)
    scorer = Scorer(model, share_prompts=False)
    with Passes(body_of(model)) as passes:
        signals = scorer.score(*batch, Teacher(model, kind), needs, {name: truth[name] for name in known})
    assert signals.keys() == returned
    assert largest_gap(signals, {name: truth[name] for name in returned}) < TOLERANCE if returned else True
    read = {"student": [batch.prompts], "teacher": [batch.hinted], "both": [batch.prompts, batch.hinted], "none": []}[
        sides
    ]
    real = tokens_of(batch, *read, shared=False)
    assert real <= sum(passes.tokens) <= 1.6 * real  # with the padding of a batch this small


def test_a_live_teacher_without_hint_is_not_read_again():
    model, batch = tiny("llama"), rollouts()
    same = (batch.prompts, [list(p) for p in batch.prompts], batch.completions, batch.mask)
    scorer = Scorer(model, share_prompts=True)
    scorer._proven = True
    with Passes(body_of(model)) as passes:
        signals = scorer.score(*same, Teacher(model))
    assert sum(passes.tokens) == tokens_of(batch, batch.prompts)
    assert signals["reverse_kl"].abs().max() < 1e-6
    assert torch.equal(signals["student_logprob"], signals["teacher_logprob"])


def test_sharing_that_saves_little_is_left_alone():
    model = tiny("llama")
    for prompt, shares in ((3, False), (30, True)):
        batch = rollouts(prompt=(prompt,), completion=(38, 40), hint=2)
        scorer = Scorer(model)
        scorer.score(*batch, Teacher(model))
        assert scorer._proven == shares, "the proof runs only where prompts are to be shared"


def test_completions_as_a_tensor():
    model, batch = tiny("llama"), rollouts()
    padded = torch.full(batch.mask.shape, 10**6)  # beyond a completion anything may stand
    for row, completion in zip(padded, batch.completions, strict=True):
        row[: len(completion)] = torch.tensor(completion)
    lists, tensor = (Scorer(model).score(batch.prompts, batch.hinted, given, batch.mask, Teacher(model))
                     for given in (batch.completions, padded))  # fmt: skip
    assert all(torch.equal(lists[name], tensor[name]) for name in SIGNALS)


# ---------------------------------------------------------------------------------------------- edges and bad input
def test_nothing_to_score():
    model, batch = tiny("llama"), rollouts()
    signals = Scorer(model).score(batch.prompts, batch.hinted, batch.completions, batch.mask & False, Teacher(model))
    assert all(not signals[name].any() for name in SIGNALS)
    empty = Scorer(model).score(
        batch.prompts, batch.hinted, [[]] * 8, torch.zeros(8, 0, dtype=torch.bool), Teacher(model)
    )
    assert all(empty[name].shape == (8, 0) for name in SIGNALS)
    none = Scorer(model).score([], [], [], torch.zeros(0, 4, dtype=torch.bool), Teacher(model))
    assert all(none[name].shape == (0, 4) for name in SIGNALS)


def test_completions_of_one_token_need_their_prompts_only():
    model = tiny("llama")
    batch = rollouts(completion=(1, 1), size=8)
    batch.mask[:, 0] = torch.tensor([len(c) == 1 for c in batch.completions])
    truth = from_full_logits(model, batch, 1.0)
    for budget in (10_000, 1):  # with 1, every part after the first has nothing left to read
        signals = Scorer(model, token_budget=budget, share_prompts=True).score(*batch, Teacher(model))
        assert largest_gap(signals, truth) < TOLERANCE


def one_more(mask, row, column):
    mask = mask.clone()
    mask[row, column] = True
    return mask


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(prompts=lambda b: b.prompts[1:]), "7 prompts of the student, 8 completions"),
        (dict(hinted=lambda b: [[], *b.hinted[1:]]), "rollout 0: the teacher's prompt is empty"),
        (dict(completions=lambda b: [c[:1] for c in b.completions]), "the action mask marks token"),
        (
            dict(completions=lambda b: [[VOCAB] * len(c) for c in b.completions]),
            f"token {VOCAB} at 0 of the completion",
        ),
        (dict(completions=lambda b: torch.zeros(8, 3, dtype=torch.long)), "a completion of 3"),
        (dict(completions=lambda b: torch.zeros(b.mask.shape)), "float32"),
        (dict(prompts=lambda b: [[-1, 3], *b.prompts[1:]]), "rollout 0: token -1 in the student's prompt"),
        (dict(mask=lambda b: b.mask.long()), "must be bool"),
        (dict(mask=lambda b: one_more(b.mask, 4, len(b.completions[4]))), "rollout 4: the action mask"),
        (
            dict(completions=lambda b: [*b.completions[:2], [VOCAB], *b.completions[3:]]),
            f"rollout 2: token {VOCAB} at 0",
        ),
    ],
)
def test_bad_rollouts_are_named(change, message):
    model, batch = tiny("llama"), rollouts()
    for name, value in change.items():
        setattr(batch, name, value(rollouts()))
    with pytest.raises(GearError, match=message):
        Scorer(model).score(*batch, Teacher(model))


def test_bad_options_are_named():
    model, batch = tiny("llama"), rollouts()
    with pytest.raises(GearError, match="token_budget"):
        Scorer(model, token_budget=0)
    with pytest.raises(GearError, match="Did you mean 'entropy'"):
        Scorer(model).score(*batch, Teacher(model), needs=("entropie",))


# ---------------------------------------------------------------------------------------------- self-check
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("who", ["nobody", "teacher", "both"])
def test_self_check(share, who, monkeypatch):
    model, batch = tiny("llama"), rollouts()
    real = Scorer._hidden

    def shifted(self, sides, *args):
        states = real(self, sides, *args)
        wrong = {"nobody": [], "teacher": [1], "both": [0, 1]}[who]
        return [state.roll(1, 0) if i in wrong else state for i, state in enumerate(states)]

    monkeypatch.setattr(Scorer, "_hidden", shifted)
    scorer = Scorer(model, share_prompts=share)
    if who == "nobody":
        scorer.self_check(*batch, Teacher(model))
    else:
        with pytest.raises(GearError, match="self-check failed"):
            scorer.self_check(*batch, Teacher(model))
