"""What an audit of the TRL engine found, each with the case that failed then."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from datasets import Dataset
from trl import GRPOTrainer
from trl_setups import build, own_rollouts

from gear_rl.engines.record import token_texts
from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.errors import GearError
from gear_rl.methods import credit
from gear_rl.scoring.divergence import token_divergence
from gear_rl.scoring.head import Head
from gear_rl.scoring.scorer import Scorer
from gear_rl.signals.hint_texts import other_hints, siblings


@pytest.fixture
def data(workshop):
    return Dataset.from_list(workshop.rows("train", 32))


def test_a_wrong_hint_is_never_the_own():
    """Answers 4, 4, 7 for three problems gave 4, 7, 4: the second problem got its own back."""
    assert other_hints(["4", "4", "7"]) == ["7", "7", "4"]
    assert other_hints(["a", "b", "a", "c"]) == ["b", "c", "b", "a"]
    with pytest.raises(GearError, match="same ground truth"):
        other_hints(["4", "4"])


def test_a_rollout_that_nobody_scored_is_nobodys_example_and_nobodys_baseline(
    tmp_path, workshop, model_and_tokenizer, data
):
    seen = []

    def some(completion_ids, **_):
        return [None if i % 4 == 0 else float(sum(ids) % 5) for i, ids in enumerate(completion_ids)]

    trainer = build(
        CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, credit="sdpo", reward_funcs=[some],
        rollout_func=own_rollouts(workshop, model_and_tokenizer[1]), recorder=seen.append,
    )  # fmt: skip
    trainer.train()
    rewards = seen[0].rollouts.rewards
    assert rewards.isnan().tolist() == [i % 4 == 0 for i in range(8)]
    assert not {0, 4} & set(siblings(seen[0].sampled))
    assert not seen[0].credit.advantages[[0, 4]].any()


def test_with_dropout_the_student_is_read_again(tmp_path, workshop, model_and_tokenizer, data):
    """TRL's old log-probs have dropout in them; compared with a teacher that has none, signs of the gap flip."""
    from peft import LoraConfig

    seen = []
    trainer = build(
        CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, credit="low_probability", num_iterations=2,
        peft_config=LoraConfig(r=4, lora_dropout=0.5, target_modules="all-linear", init_lora_weights=False),
        rollout_func=own_rollouts(workshop, model_and_tokenizer[1]), learning_rate=0.0, recorder=seen.append,
    )  # fmt: skip
    trainer.train()
    sampled = seen[0].sampled
    fresh = Scorer(trainer.policy, trainer.temperature).score(
        sampled.prompt_ids, sampled.prompt_ids, sampled.completion_ids, sampled.action_mask, trainer.teacher
    )
    assert torch.allclose(seen[0].rollouts.signals["student_logprob"], fresh["student_logprob"], atol=1e-4)


@pytest.mark.parametrize("credit_of", ["grpo", "sdpg"])
def test_truncated_completions_count_in_the_baseline_and_are_not_trained_on(
    tmp_path, workshop, model_and_tokenizer, data, credit_of
):
    """TRL's mean and std have their rewards, and its loss leaves them out. They reach methods and record whole."""
    seen = []

    def cut_off(sample):  # every third rollout lacks its end
        def cut(prompts, trainer):
            out = sample(prompts, trainer)
            for i in range(0, len(prompts), 3):
                out["completion_ids"][i], out["env_mask"][i] = out["completion_ids"][i][:2], out["env_mask"][i][:2]
            return out

        return cut

    trainer = build(
        CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, mask_truncated_completions=True, max_steps=1,
        rollout_func=cut_off(own_rollouts(workshop, model_and_tokenizer[1])), recorder=seen.append, credit=credit_of,
    )  # fmt: skip
    trainer.train()
    rollouts, got = seen[0].rollouts, seen[0].credit.advantages
    trained = torch.tensor([i % 3 != 0 for i in range(8)])
    assert rollouts.trained.tolist() == trained.tolist() and rollouts.action_mask.any(1).all()
    assert all(len(ids) == 2 for ids in seen[0].sampled.completion_ids[::3])
    ours = credit(credit_of, replace(rollouts, advantages=None)).advantages
    torch.testing.assert_close(ours, got, atol=1e-5, rtol=1e-5)  # TRL's own baseline, and ours
    assert got[trained].any() and not got[~trained].any()


@pytest.mark.parametrize("name", ["sdpg", "grail", "opsd"])
def test_images_are_an_error_before_anything_runs(tmp_path, workshop, model_and_tokenizer, data, name):
    with_images = data.add_column("images", [[] for _ in range(len(data))])
    with pytest.raises(GearError, match="images"):
        build(CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, with_images, credit=name)


def test_an_image_that_a_tool_returns_all_the_same_is_an_error_before_rewards(
    tmp_path, workshop, model_and_tokenizer, data, monkeypatch
):
    def rewarded(completion_ids, **_):
        raise AssertionError("rewards were asked for")

    def generated(self, prompts):
        ids = [[5, 6]] * len(prompts)
        return ids, ids, None, ["a"] * len(prompts), None, {}, [["an image"], *[None] * (len(prompts) - 1)], []

    trainer = build(CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, data, reward_funcs=[rewarded], credit="opsd")
    monkeypatch.setattr(GRPOTrainer, "_generate", generated)
    with pytest.raises(GearError, match="tool results with images"):
        trainer.train()


def test_hints_need_not_be_text(tmp_path, workshop, model_and_tokenizer, data):
    """A number is written as it is, anything nested as JSON."""
    seen = []
    numbered = data.map(lambda row, i: {"number": i}, with_indices=True)
    trainer = build(
        CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, numbered, hint="number", recorder=seen.append,
        rollout_func=own_rollouts(workshop, model_and_tokenizer[1]),
    )  # fmt: skip
    trainer.train()
    assert seen[0].hinted.texts == [str(row["number"]) for row in seen[0].sampled.rows]


@pytest.mark.parametrize("backend", ["naive", "chunked"])
def test_a_bias_of_minus_infinity_rules_a_token_out(backend):
    draw = torch.Generator().manual_seed(0)
    student, teacher, weight = (torch.randn(n, 16, generator=draw) for n in (9, 9, 40))
    ids = torch.arange(9)
    bias = torch.zeros(40)
    bias[30:] = -torch.inf
    with_bias = token_divergence(student, teacher, Head(weight, bias), ids, backend=backend)
    without = token_divergence(student, teacher, Head(weight[:30]), ids, backend=backend)
    for name, value in with_bias.items().items():
        torch.testing.assert_close(value, without.items()[name], rtol=1e-5, atol=1e-6)


class Bytes:
    """A tokenizer of single bytes."""

    def decode(self, ids):
        return bytes(ids).decode("utf-8", errors="replace")

    def batch_decode(self, rows):
        return [self.decode(row) for row in rows]


@pytest.mark.parametrize("text", ["plain", "naïve — 字 🛠 end", "🛠🛠"])
def test_characters_of_several_tokens_are_shown_as_characters(text):
    texts = token_texts(list(text.encode()), Bytes())
    assert "".join(texts) == text and len(texts) == len(text.encode())


def test_bytes_that_make_no_character_stay_marked():
    assert token_texts([0x61, 0xFF, 0x62], Bytes()) == ["a", "\ufffd", "b"]
