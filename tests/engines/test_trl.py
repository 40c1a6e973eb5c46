"""`CreditGRPOTrainer` against real TRL: bit-for-bit GRPO at α = 0, every route TRL has, refusals, and the seam itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from datasets import Dataset
from trl import GRPOTrainer
from trl_setups import build, own_rollouts

from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.errors import GearError
from gear_rl.scoring.guards import Guards
from gear_rl.scoring.scorer import Scorer
from gear_rl.tasks.workshop.environment import WorkshopEnvironment, judge
from gear_rl.tasks.workshop.world import Order


def answer_reward(completions, order, **_):
    """1 where the last word answers right: works on TRL's parsed messages, single-turn or multi-turn."""
    said = [str(c[-1]["content"]).split()[-1:] for c in completions]
    return [float(words == [Order.parse(text).reference_answer]) for words, text in zip(said, order, strict=True)]


@pytest.fixture
def data(workshop):
    return Dataset.from_list(workshop.rows("train", 32))


@pytest.fixture
def credit_trainer(tmp_path, workshop, model_and_tokenizer, data):
    """Builds a `CreditGRPOTrainer` that samples the workshop with our own rollout function."""

    def built(rows=data, **changes):
        sampler = {"rollout_func": own_rollouts(workshop, model_and_tokenizer[1])}
        return build(CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, rows, **{**sampler, **changes})

    return built


def weights(trainer):
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


@pytest.mark.parametrize("options", [dict(alpha=0.0), dict(mix=0.0)])
@pytest.mark.parametrize("route", ["rollout_func", "environment"])
def test_no_credit_is_trl_bit_for_bit(tmp_path, workshop, data, options, route):
    from gear_rl.models import load_model

    final = []
    for trainer_class, extra in ((GRPOTrainer, {}), (CreditGRPOTrainer, dict(credit="gear", credit_options=options))):
        pair = load_model(workshop.default_model(), "cpu")
        sampler = (
            dict(rollout_func=own_rollouts(workshop, pair[1]))
            if route == "rollout_func"
            else dict(environment_factory=WorkshopEnvironment)
        )
        trainer = build(trainer_class, tmp_path, workshop, pair, data, max_steps=5, **sampler, **extra)
        trainer.train()
        final.append(weights(trainer))
    start = load_model(workshop.default_model(), "cpu")[0].state_dict()
    assert any(not torch.equal(final[0][n], start[n]) for n in final[0]), "nothing was trained"
    for name in final[0]:
        assert torch.equal(final[0][name], final[1][name]), name


def test_gear_moves_weights_elsewhere_than_grpo(tmp_path, workshop, data):
    from gear_rl.models import load_model

    final = []
    for credit in ("grpo", "gear"):
        pair = load_model(workshop.default_model(), "cpu")
        trainer = build(
            CreditGRPOTrainer,
            tmp_path,
            workshop,
            pair,
            data,
            credit=credit,
            rollout_func=own_rollouts(workshop, pair[1]),
        )
        trainer.train()
        final.append(weights(trainer))
    assert any(not torch.equal(final[0][n], final[1][n]) for n in final[0])


def test_environment_factory_plays_the_same_world(tmp_path, workshop, model_and_tokenizer, data):
    """TRL's tool loop and ours tell the same story: TRL's completions are judged by our replay, token by token."""
    seen = []
    trainer = build(
        CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, environment_factory=WorkshopEnvironment,
        reward_funcs=[answer_reward],
        recorder=lambda s: seen.append((s.sampled.rows, s.rollouts, s.sampled.completion_ids)),
    )  # fmt: skip
    trainer.train()
    tokenizer = model_and_tokenizer[1]
    for rows, rollouts, completions in seen:
        for i, (row, ids) in enumerate(zip(rows, completions, strict=True)):
            verdict = judge(Order.parse(row["order"]), tokenizer.decode(ids))
            assert verdict.reward == float(rollouts.rewards[i])
            mask = rollouts.action_mask[i, : len(ids)].tolist()
            assert all(mask[j] for j, label in enumerate(verdict.decisions) if label), "a decision outside the mask"
            assert sum(mask) < len(ids), "the environment's tokens must be masked"


def test_plain_tools_and_single_turn(tmp_path, workshop, model_and_tokenizer, data):
    def weld(part: str) -> str:
        """Weld.

        Args:
            part: the part
        """
        return "g1"

    for extra in (dict(tools=[weld]), {}):
        trainer = build(
            CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, max_completion_length=8, **extra
        )
        trainer.train()
        assert trainer.state.global_step == 2


def test_lora_accumulation_and_several_iterations(tmp_path, workshop, model_and_tokenizer, data):
    from peft import LoraConfig

    shapes = []
    trainer = build(
        CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data,
        peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"]),
        per_device_train_batch_size=4, gradient_accumulation_steps=2, num_iterations=2, max_steps=4, teacher="base",
        rollout_func=own_rollouts(workshop, model_and_tokenizer[1]), beta=0.05,
        recorder=lambda s: shapes.append((s.step, s.credit.advantages.shape[0])),
    )  # fmt: skip
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters() if p.requires_grad}
    trainer.train()
    assert [s for s, _ in shapes] == [0, 2] and all(
        n == 8 for _, n in shapes
    )  # credit once per generation, two iterations
    assert any(not torch.equal(before[n], p) for n, p in trainer.model.named_parameters() if p.requires_grad)
    assert all("lora" in n for n in before)


@pytest.mark.parametrize("kind", ["live", "sync", "ema", "base"])
def test_teacher_kinds_train(credit_trainer, kind):
    trainer = credit_trainer(teacher=kind, teacher_every=1)
    start = weights(trainer)
    trainer.train()
    shadow = trainer.teacher.state()
    name = next(iter(start))
    now = trainer.model.get_parameter(name).detach()
    assert not torch.equal(now, start[name])
    if kind == "live":
        assert shadow == {}
    elif kind == "sync":
        assert torch.equal(shadow[name], now)
    elif kind == "base":
        assert torch.equal(shadow[name], start[name])
    else:
        assert not torch.equal(shadow[name], now) and not torch.equal(shadow[name], start[name])


def test_wrong_hint_reads_another_problem(tmp_path, workshop, model_and_tokenizer, data):
    hints = []
    trainer = build(
        CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, credit="wrong_hint",
        rollout_func=own_rollouts(workshop, model_and_tokenizer[1]),
        recorder=lambda s: hints.extend(zip(s.sampled.rows, s.hinted.prompt_ids, strict=True)),
    )  # fmt: skip
    trainer.train()
    tokenizer = model_and_tokenizer[1]
    texts = [(row["hint"], tokenizer.decode(ids)) for row, ids in hints]
    assert all(own not in shown for own, shown in texts)
    assert all(any(other in shown for other, _ in texts) for _, shown in texts)


def test_credit_signals_and_guards_are_logged(credit_trainer):
    trainer = credit_trainer()
    trainer.train()
    logged = trainer.state.log_history[0]
    for name in (
        "signals/reverse_kl",
        "credit/mean_abs_advantage",
        "hints/copied",
        "guards/focus",
        "guards/entropy",
        "guards/alarm",
    ):
        assert name in logged


def test_a_right_answer_that_is_the_hint_is_no_leak(tmp_path, workshop, model_and_tokenizer, data):
    """All rollouts say their whole hint. It is a leak only in those below the best reward so far."""
    batches = []
    trainer = build(
        CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, recorder=batches.append,
        rollout_func=own_rollouts(workshop, model_and_tokenizer[1]),
    )  # fmt: skip
    trainer.train()
    step, scored = trainer.credit_step, batches[-1]
    hints = model_and_tokenizer[1](scored.hinted.texts, add_special_tokens=False)["input_ids"]
    width = scored.rollouts.action_mask.shape[1]
    said = [(ids + [0] * width)[:width] for ids in hints]  # a hint and filler
    speaking = torch.ones_like(scored.rollouts.action_mask)

    def metrics(rewards, spoken):
        rollouts = replace(scored.rollouts, action_mask=speaking, rewards=rewards, advantages=None)
        return step._metrics(rollouts, scored.credit, replace(scored.sampled, completion_ids=spoken), scored.hinted)

    step.guards = Guards()
    rewards = torch.zeros(len(hints))
    rewards[0] = 1.0
    found = metrics(rewards, [said[0]] + [[0] * width] * (len(hints) - 1))
    assert found["guards/leak"] == 0 and found["hints/copied"] > 0
    assert metrics(rewards, said)["guards/leak"] > 0
    assert "guards/leak" not in metrics(torch.ones(len(hints)), said), "no rollout is below the best"


def test_guards_see_entropy_and_kl_of_the_loss_for_every_method(credit_trainer):
    """GRPO reads no signals itself. In two parts per step: the guards' values are the means that TRL logs."""
    trainer = credit_trainer(
        credit="grpo", beta=0.04, max_steps=3, per_device_train_batch_size=4, gradient_accumulation_steps=2
    )
    trainer.train()
    logged = trainer.state.log_history[:3]
    assert "guards/entropy" not in logged[0] and logged[2]["kl"] > 0
    assert [row["guards/entropy"] for row in logged[1:]] == pytest.approx([row["entropy"] for row in logged[:2]])
    assert trainer.credit_step.guards.kls == pytest.approx([row["kl"] for row in logged])


@pytest.mark.parametrize("who", ["teacher", "both"])
def test_self_check_catches_a_shift_by_one(credit_trainer, monkeypatch, who):
    real = Scorer._hidden

    def hidden(self, sides, *args, **kwargs):  # both sides in one pass, the student's first
        states = real(self, sides, *args, **kwargs)
        shifted = states if who == "both" else states[1:]
        assert shifted, "the teacher was not read"
        return [s.roll(1, 0) if any(s is other for other in shifted) else s for s in states]

    monkeypatch.setattr(Scorer, "_hidden", hidden)
    trainer = credit_trainer()
    with pytest.raises(GearError, match="self-check failed"):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize(
    ("credit", "iterations", "reads"), [("low_probability", 2, 0), ("low_probability", 1, 1), ("gear", 2, 2)]
)
def test_the_student_is_not_read_again_where_the_step_has_its_log_probs(
    tmp_path, monkeypatch, workshop, model_and_tokenizer, data, credit, iterations, reads
):
    """TRL computes old log-probs when it iterates over a batch; a method that needs no more reads nothing itself."""
    sides, signals = [], []
    real = Scorer._hidden
    monkeypatch.setattr(Scorer, "self_check", lambda *args: None)
    monkeypatch.setattr(
        Scorer, "_hidden", lambda self, given, *args: (sides.append(len(given)), real(self, given, *args))[1]
    )
    trainer = build(
        CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, credit=credit, num_iterations=iterations,
        rollout_func=own_rollouts(workshop, model_and_tokenizer[1]), learning_rate=0.0,
        recorder=lambda s: signals.append((s.rollouts, s.sampled.prompt_ids, s.sampled.completion_ids)),
    )  # fmt: skip
    trainer.train()
    assert (sum(sides[:1]) if sides else 0) == reads
    rollouts, prompts, done = signals[0]
    fresh = Scorer(trainer.policy, trainer.temperature).score(
        prompts, prompts, done, rollouts.action_mask, trainer.teacher
    )
    assert torch.allclose(rollouts.signals["student_logprob"], fresh["student_logprob"], atol=1e-4)


def test_self_check_catches_a_different_template(tmp_path, workshop, model_and_tokenizer, data):
    tokenizer = model_and_tokenizer[1]
    honest = own_rollouts(workshop, tokenizer)

    def other_template(prompts, trainer):
        out = honest(prompts, trainer)
        return {**out, "prompt_ids": [ids[1:] for ids in out["prompt_ids"]]}

    trainer = build(CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, rollout_func=other_template)
    with pytest.raises(GearError, match="template"):
        trainer.train()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(credit="dr_grpo"), "scale_rewards"),
        (dict(credit="oracle"), "knowledge="),
        (dict(hint=None), "hint='column name'"),
        (dict(hint="solution"), "no column 'solution'"),
        (dict(hint_template="{prompt}"), "{hint}"),
        (dict(credit="geer"), "Did you mean 'gear'"),
        (dict(credit_options=dict(tau=1)), "tau"),
        (dict(credit_options=dict(alpha=-1)), "alpha"),
        (dict(teacher="old"), "teacher"),
    ],
)
def test_refused_before_anything_runs(tmp_path, workshop, model_and_tokenizer, data, changes, message):
    with pytest.raises(GearError, match=message.replace("{", r"\{")):
        build(CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, **changes)


def test_row_without_ground_truth_is_named(tmp_path, workshop, model_and_tokenizer, data):
    rows = data.to_list()
    rows[5]["hint"] = "  "
    with pytest.raises(GearError, match="row 5"):
        build(CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, Dataset.from_list(rows))


def test_data_smaller_than_one_batch(tmp_path, workshop, model_and_tokenizer, data):
    with pytest.raises(GearError, match="the data has 1 rows, and one batch takes 2 prompts"):
        build(CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data.select([0]))


def test_hint_beyond_the_context(credit_trainer, data):
    rows = [{**row, "hint": "weld " * 300} for row in data.to_list()]
    trainer = credit_trainer(Dataset.from_list(rows))
    with pytest.raises(GearError, match="context of 256"):
        trainer.train()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_reward_that_is_no_number(credit_trainer, bad):
    def broken(completions, **_):
        return [bad if i == 3 else 1.0 for i in range(len(completions))]

    trainer = credit_trainer(reward_funcs=[broken])
    with pytest.raises(GearError, match=r"'broken' returned (nan|inf) for rollout 3"):
        trainer.train()


def test_equal_rewards_change_nothing(credit_trainer):
    trainer = credit_trainer(reward_funcs=[lambda completions, **_: [1.0] * len(completions)])
    start = weights(trainer)
    trainer.train()
    assert all(torch.equal(start[n], p) for n, p in trainer.model.named_parameters())
