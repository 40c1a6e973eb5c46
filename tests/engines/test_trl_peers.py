"""Every peer trains for real on the embedded default; hints from siblings and feedback; what is refused beforehand."""

from __future__ import annotations

import random

import pytest
import torch
from datasets import Dataset
from engine_runs import build, watch
from task_knowledge import GivenKnowledge
from trl_setups import arguments, length_reward, own_rollouts

from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.errors import GearError
from gear_rl.methods import METHODS, method
from gear_rl.records.record import read_record
from gear_rl.signals.hint_texts import siblings
from gear_rl.signals.own_answer import answers_in_place
from gear_rl.signals.reader import Reader, Reading
from gear_rl.signals.sampled import Sampled
from gear_rl.signals.sources import Sources

PEERS = (
    "rlsd serl crest cepo rlcsd sc_grpo sdar opsd sdpo sdpg oar_p oar_g grail shear crpo mt_grpo gigpo igpo trace hcapo "
    "grpo_lambda high_entropy"
).split()
TASK_ROWS = 16


@pytest.mark.parametrize("name", PEERS)
def test_two_real_steps(tmp_path, name):
    trainer = build(name, tmp_path / "run")
    seen = watch(trainer)
    start = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    trainer.train()
    assert trainer.state.global_step == 2
    assert any(not torch.equal(start[n], p) for n, p in trainer.model.named_parameters()), "nothing was learned"
    for batch in seen:
        assert set(method(name).needs) <= batch["rollouts"].signals.keys()
        assert batch["credit"].advantages.isfinite().all()
        assert (batch["hinted"] is None) == (METHODS[name].hint is None)
    if METHODS[name].preserves_mass:
        mask = seen[0]["rollouts"].action_mask
        mass, plain = seen[0]["credit"].advantages.sum(1), seen[0]["rollouts"].advantages * mask.sum(1)
        torch.testing.assert_close(mass, plain, rtol=1e-3, atol=1e-3)
    logged = trainer.state.log_history[0]
    assert ("distillation/teacher" in logged) == (name in ("opsd", "sdpo", "sdpg"))
    assert len(read_record(tmp_path / "run" / "rollouts.jsonl").rollouts) == 16


@pytest.mark.parametrize("name", ["oar_p", "oar_g", "grail", "igpo", "trace", "hcapo", "cepo"])
def test_signals_are_not_the_same_everywhere(tmp_path, name):
    trainer = build(name, tmp_path / "run", steps=1)
    seen = watch(trainer)
    trainer.train()
    for need in set(method(name).needs) - {"answer_logprob_start", "frozen_answer_logprob_start", "answer_box"}:
        signal, mask = seen[0]["rollouts"].signals[need], seen[0]["rollouts"].action_mask
        assert signal[mask].unique().numel() > 4


@pytest.mark.parametrize(
    ("credit", "train", "kind"),
    [("opsd", {}, "base"), ("sdpo", {}, "ema"), ("sdpg", {}, "live"), ("rlsd", {}, "sync"), ("crest", {}, "base"),
     ("gear", {}, "live"),
     ("opsd", {"teacher": "sync"}, "sync")],
)  # fmt: skip
def test_the_kind_of_teacher_is_the_sources_unless_named(tmp_path, credit, train, kind):
    assert build(credit, tmp_path / "run", **train).teacher.kind == kind


def test_mix_falls_from_the_methods_own(tmp_path):
    trainer = build("rlsd", tmp_path / "run", mix_steps=4)
    assert trainer.credit_step.current_method(0).options.mix == 0.5
    assert trainer.credit_step.current_method(2).options.mix == 0.25
    with pytest.raises(GearError, match="mix_steps"):
        build("opsd", tmp_path / "other", mix_steps=4)


def test_the_mask_budget_is_obeyed(tmp_path):
    trainer = build("oar_p", tmp_path / "run", mask_budget=3, steps=1)
    seen = watch(trainer)
    trainer.train()
    rollouts = seen[0]["rollouts"]
    for signal, mask in zip(rollouts.signals["saliency_mask"], rollouts.action_mask, strict=True):
        assert signal[mask].unique_consecutive().numel() <= 4  # three runs, and the answer


# --- hints ------------------------------------------------------------------------------------------------------------


def batch_of(rewards, groups, without_tokens=()):
    n = len(rewards)
    mask = torch.tensor([[i not in without_tokens] for i in range(n)])
    ids, given = torch.full((n, 1), 2), (torch.tensor(rewards), torch.tensor(groups))
    return Sampled([{}] * n, [""] * n, [[1]] * n, [[2]] * n, ids, mask, *given)


def test_who_is_a_sibling():
    sampled = batch_of([1.0, 0, 1, 0, 0.5, 0.5, 0.1, 0.2], [0, 0, 0, 0, 1, 1, 2, 2])
    assert siblings(sampled) == [2, 2, 0, 0, None, None, 7, None], "above the group's mean"
    assert siblings(sampled, success=0.5) == [2, 2, 0, 0, 5, 4, None, None], "a reward of at least 0.5"
    assert siblings(batch_of([1.0, 0, 1], [0, 0, 0], without_tokens=[2]), success=0.5) == [None, 0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_sc_grpo_shows_a_correct_sibling_or_where_nobody_is_any(seed):
    """The sheet's rule: 2 <= n_c < G a correct one, n_c = 0 any, n_c = 1 or G none; never itself."""
    draw = random.Random(seed)
    groups = [g for g in range(6) for _ in range(draw.randint(2, 5))]
    chance = {g: draw.choice((0.0, 0.3, 0.7, 1.0)) for g in groups}
    rewards = [float(draw.random() < chance[g]) for g in groups]
    for i, j in enumerate(siblings(batch_of(rewards, groups), 0.5, any_where_none=True)):
        of = [k for k, g in enumerate(groups) if g == groups[i]]
        correct = [k for k in of if rewards[k] == 1.0]
        if len(correct) in (1, len(of)):
            assert j is None
        else:
            assert j != i and j in (correct or of)
    assert method("sc_grpo").hint == "any_sibling"


@pytest.mark.parametrize("name", ["sdpo", "gear+sibling_hint"])
def test_a_teacher_reads_a_successful_sibling(tmp_path, name):
    trainer = build(name, tmp_path / "run", steps=1)
    seen, tokenizer = watch(trainer), trainer.processing_class
    trainer.train()
    batch = seen[0]
    chosen = siblings(batch["sampled"], method(name).success_at)
    assert any(j is not None for j in chosen)
    for verdict, j, ids in zip(batch["verdicts"], chosen, batch["hinted"], strict=True):
        shown = tokenizer.decode(ids).partition(" hint ")[2].split(" <end>")[0]
        told = [c for c in tokenizer.decode(batch["completions"][j]).split() if c in TOOLS] if j is not None else None
        alone = "" if name == "gear+sibling_hint" else verdict.feedback  # feedback would tell what is right
        assert shown == (alone if told is None else " ".join(told))


TOOLS = "weld clamp grease file drill solder polish hammer".split()


def test_serl_reads_feedback_and_weighs_calls_alone(tmp_path):
    trainer = build({"name": "serl", "mix": 1.0}, tmp_path / "run", steps=1)
    seen, tokenizer = watch(trainer), trainer.processing_class
    trainer.train()
    batch = seen[0]
    calls = batch["rollouts"].signals["tool_call"].bool()
    weights, mask = batch["credit"].weights, batch["rollouts"].action_mask
    assert (weights[mask & ~calls] == 1).all() and (weights[calls] != 1).any()
    for verdict, ids in zip(batch["verdicts"], batch["hinted"], strict=True):
        assert verdict.feedback in tokenizer.decode(ids)


def plain_trainer(folder, task, pair, data, **changes):
    return CreditGRPOTrainer(
        model=pair[0], processing_class=pair[1], args=arguments(folder), train_dataset=data,
        hint_template=task.hint_template, rollout_func=own_rollouts(task, pair[1]),
        **{"reward_funcs": [length_reward], **changes},
    )  # fmt: skip


@pytest.fixture
def data(workshop):
    return Dataset.from_list(workshop.rows("train", TASK_ROWS))


def test_a_teacher_with_nothing_to_read_changes_nothing(tmp_path, workshop, model_and_tokenizer, data):
    """No feedback for the first half of each batch: the teacher's word is the student's there, whatever its weights."""

    def feedback(completions):
        return [None if i < 4 else "weld weld weld weld" for i in range(len(completions))]

    trainer = plain_trainer(tmp_path, workshop, model_and_tokenizer, data, credit="serl", teacher="base",
                            knowledge=GivenKnowledge(feedback=feedback))  # fmt: skip
    seen = watch(trainer)
    trainer.train()
    later = seen[1]["rollouts"]  # the base teacher's weights are no longer the student's
    gap = later.signals["teacher_logprob"] - later.signals["student_logprob"]
    assert not gap[:4].any() and gap[4:].abs().max() > 0.1
    assert (later.signals["tool_call"] == later.action_mask).all(), "a task that cannot tell: all action tokens"


def test_feedback_is_read_where_there_is_no_sibling(tmp_path, workshop, model_and_tokenizer, data):
    trainer = plain_trainer(
        tmp_path, workshop, model_and_tokenizer, data, credit="sdpo",
        knowledge=GivenKnowledge(feedback=lambda done: ["hmm no"] * len(done)),
    )
    seen = watch(trainer)
    trainer.train()
    batch = seen[0]
    chosen = siblings(batch["sampled"], success=0.5)
    assert any(j is not None for j in chosen)
    for i, j in enumerate(chosen):
        shown = model_and_tokenizer[1].decode(batch["hinted"][i])
        assert ("hmm no <end>" in shown) == (j is None)
        if j is not None:
            spoken = [t for t, m in zip(batch["completions"][j], batch["rollouts"].action_mask[j], strict=False) if m]
            assert model_and_tokenizer[1].decode(spoken, skip_special_tokens=True).strip() in shown


# --- channels and signals of the user ---------------------------------------------------------------------------------


def even_reward(completion_ids, **_):
    return [float(len(ids) % 2) for ids in completion_ids]


def test_reward_functions_as_channels(tmp_path, workshop, model_and_tokenizer, data):
    trainer = plain_trainer(tmp_path, workshop, model_and_tokenizer, data, credit="crpo",
                            reward_funcs=[length_reward, even_reward], channels=["even_reward", "length_reward"])  # fmt: skip
    seen = watch(trainer)
    trainer.train()
    for batch in seen:
        channels = batch["rollouts"].channels
        assert channels["length_reward"].tolist() == length_reward(batch["completions"])
        assert channels["even_reward"].tolist() == even_reward(batch["completions"])


def test_the_rollouts_own_answer_as_span(tmp_path, workshop, model_and_tokenizer, data):
    """Without any reference answer: the task marks where each rollout gives its own."""

    def last_two(completions):
        return {"answer_span": [[0.0] * (len(ids) - 3) + [1.0, 1.0, 0.0] for ids in completions]}

    trainer = plain_trainer(tmp_path, workshop, model_and_tokenizer, data, credit="grail",
                            knowledge=GivenKnowledge("answer_span", token_signals=last_two))  # fmt: skip
    seen = watch(trainer)
    trainer.train()
    signals = seen[0]["rollouts"].signals
    assert "answer_span" not in signals
    for saliency, box, ids in zip(signals["answer_saliency"], signals["answer_box"], seen[0]["completions"], strict=True):
        assert box[len(ids) - 3 : len(ids)].tolist() == [1, 1, 2] and not box[: len(ids) - 3].any()
        assert saliency[len(ids) - 3] > 0 == saliency[len(ids) - 1]


def test_where_the_reference_answer_is_read(model_and_tokenizer):
    """In place of the last turn; of a single turn at its end, before the token that ended it."""
    tokenizer = model_and_tokenizer[1]
    texts = ["weld valve <end> g3 <bot> answer no <end>", "so yes <end>", "so yes", ""]
    actions = [[1, 1, 1, 0, 0, 1, 1, 1], [1, 1, 1], [1, 1], []]
    completions = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    mask = torch.tensor([row + [0] * (8 - len(row)) for row in actions]).bool()
    ids = torch.tensor([row + [0] * (8 - len(row)) for row in completions])
    rows = [{"reference": "yes"}] * 4
    sampled = Sampled(rows, ["x"] * 4, [[1]] * 4, completions, ids, mask, torch.zeros(4), torch.zeros(4))
    reader = Reader(None, None, tokenizer, Sources(answer="reference", answer_prefix="answer"), None, "grail")
    readings = answers_in_place(Reading(reader, sampled, None, {}))
    assert [r and tokenizer.decode(r.completion[: r.cut]) for r in readings[:3]] == [
        "weld valve <end> g3 <bot>", "so yes", "so yes",
    ]  # fmt: skip
    assert readings[3] is None
    answer = readings[0].answer
    assert tokenizer.decode(answer.ids) == "answer yes" and tokenizer.decode(answer.tokens) == "yes"


def decisions(function):
    return GivenKnowledge("decision", token_signals=lambda done: {"decision": function(done)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(credit="rlsd"), "hint='column name'"),
        (dict(credit="serl"), "has_feedback"),
        (dict(credit="crpo"), "pass channels="),
        (dict(credit="crpo", channels=["length_reward"]), "at least 2 named parts"),
        (dict(credit="crpo", channels=["length_reward", "lenght_reward"]), "Did you mean 'length_reward'"),
        (dict(credit="mt_grpo"), "needs 'turn_reward'.*pass knowledge="),
        (dict(credit="mt_grpo", knowledge=GivenKnowledge("decision")), "needs 'turn_reward'"),
        (dict(credit="gigpo", credit_options=dict(turn_rewards=True), knowledge=GivenKnowledge("anchor_state")),
         "needs 'turn_reward'"),
        (dict(credit="turn_ppo"), "a critic"),
        (dict(credit="crest", hint="hint", knowledge=GivenKnowledge("turn_reward")), "needs 'request_ids'"),
        (dict(credit="trace"), "answer='column name'"),
        (dict(credit="igpo"), "answer='column name'"),
        (dict(credit="igpo", answer="solution"), "no column 'solution' to take the answer from"),
        (dict(credit="oar_p"), "answer_span"),
        (dict(credit="oar_g", knowledge=GivenKnowledge("decision")), "answer_span"),
        (dict(credit="oar_p", answer="answer", mask_budget=0), "mask_budget=0"),
        (dict(credit="opsd", hint="hint", mix_steps=3), "mix_steps=3"),
    ],
)  # fmt: skip
def test_missing_needs_are_refused_before_anything_runs(
    tmp_path, workshop, model_and_tokenizer, data, changes, message
):
    with pytest.raises(GearError, match=message):
        plain_trainer(tmp_path, workshop, model_and_tokenizer, data, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(credit="oracle", knowledge=decisions(lambda done: [[0.0]] * len(done))), "1 values for the"),
        (dict(credit="oracle", knowledge=decisions(lambda done: [])), "0 rows for 8 rollouts"),
        (dict(credit="crpo", knowledge=GivenKnowledge(channels=lambda done: {"a": [0.0], "b": [0.0]})),
         "channel 'a' has 1 values"),
        (dict(credit="serl", knowledge=GivenKnowledge(feedback=lambda done: ["no"])), "a text or None for each of 8"),
        (dict(credit="igpo", answer=lambda row: ""), "rollout 0 of this batch has no reference answer"),
    ],
)
def test_what_does_not_fit_the_batch_is_named(tmp_path, workshop, model_and_tokenizer, data, changes, message):
    trainer = plain_trainer(tmp_path, workshop, model_and_tokenizer, data, **changes)
    with pytest.raises(GearError, match=message):
        trainer.train()
