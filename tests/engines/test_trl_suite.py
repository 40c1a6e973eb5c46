"""What TRL's own tests of its trainer ask for, asked of ours: see docs/trl_tests.md for which is which.

`grpo` must be TRL's trainer bit for bit; `gear` must train with it, and differ.
"""

from __future__ import annotations

import pytest
import torch
from beside_trl import WHO, check_credited, check_same, logged, saved_policies, small_trainer, tool_tokenizer
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from trl import GRPOTrainer
from trl_setups import length_reward

from gear_rl.engines.trl import CreditGRPOTrainer

STRINGS = Dataset.from_dict({"prompt": [f"Count to {i}:" for i in range(8)], "digit": [i % 3 for i in range(8)]})
CHATS = STRINGS.map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    return saved_policies(tmp_path_factory.mktemp("policies"))


def talking_reward(completions, completion_ids, digit, trainer_state, log_extra, log_metric, **_):
    """Reads a column and the state, and writes to the log: all that TRL offers a reward function."""
    log_extra("digit_of_row", digit)
    log_metric("digit_mean", sum(digit) / len(digit))
    assert isinstance(completions[0][0]["content"], str)
    return [float((sum(ids) + d + trainer_state.global_step) % 4) for ids, d in zip(completion_ids, digit, strict=True)]


async def waiting_reward(completion_ids, **_):
    return [float(len(set(ids))) for ids in completion_ids]


def some_unscored(completion_ids, **_):
    return [None if i % 3 == 0 else float(ids[0] % 5) for i, ids in enumerate(completion_ids)]


def none_scored(completion_ids, **_):
    return [None] * len(completion_ids)


def lora(policies, kind, **options):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(policies[kind], dtype=torch.float32)
    return get_peft_model(model, LoraConfig(r=2, **options))


MIXED_REWARDS = dict(
    reward_funcs=lambda p: [
        talking_reward,
        waiting_reward,
        some_unscored,
        AutoModelForSequenceClassification.from_pretrained(p["reward"], num_labels=1, dtype=torch.float32),
    ],
    reward_processing_classes=lambda p: [None, None, None, tool_tokenizer()],
)
CASES = {
    "prompts_as_strings": (
        dict(per_device_train_batch_size=2, num_generations=4, gradient_accumulation_steps=2),
        dict(reward_funcs=lambda p: p["reward"], reward_processing_classes=lambda p: tool_tokenizer()),
    ),
    "mixed_rewards": (
        dict(
            reward_weights=[1.0, 0.5, 2.0, 0.1], log_completions=True, chat_template_kwargs={"enable_thinking": False}
        ),
        dict(MIXED_REWARDS, train_dataset=lambda p: CHATS),
    ),
    "stream": (dict(shuffle_dataset=False), dict(train_dataset=lambda p: STRINGS.to_iterable_dataset())),
    "evaluation": (
        dict(eval_strategy="steps", eval_steps=1, eval_on_start=True, num_generations_eval=1, loss_type="grpo"),
        dict(
            eval_dataset=lambda p: {"a": STRINGS.select(range(2)), "b": STRINGS.select(range(2)).to_iterable_dataset()}
        ),
    ),
    "moving_reference": (
        dict(
            max_steps=2,
            beta=0.1,
            sync_ref_model=True,
            ref_model_sync_steps=1,
            ref_model_mixup_alpha=0.5,
            generation_kwargs={"top_k": 9},
        ),
        {},
    ),
    "adaptive_entropy": (
        dict(
            max_steps=2,
            entropy_coef=0.01,
            use_adaptive_entropy=True,
            entropy_target=15.0,
            gradient_accumulation_steps=2,
        ),
        {},
    ),
    "adapters_given": (
        dict(beta=0.1, gradient_checkpointing=True),
        dict(model=lambda p: lora(p, "dense"), processing_class=lambda p: tool_tokenizer()),
    ),
    "adapters_of_expert_tensors": (
        dict(beta=0.1),
        dict(
            model=lambda p: lora(p, "expert_tensors", target_parameters=["mlp.experts.down_proj"]),
            processing_class=lambda p: tool_tokenizer(),
        ),
    ),
    "experts": (dict(cast_lm_head_to_fp32=True), dict(model=lambda p: p["experts"])),
    "states": ({}, dict(model=lambda p: p["states"])),
    "continuous_batching": (
        dict(
            use_transformers_continuous_batching=True,
            transformers_continuous_batching_config=dict(num_blocks=32, max_batch_tokens=64),
        ),
        {},
    ),
}
"""Name → settings, and what else is given, from the folders of the models."""


def trained(who, folder, policies, name):
    config, given = CASES[name]
    given = {"model": lambda p: p["dense"], "train_dataset": lambda p: STRINGS, **given}
    trainer = small_trainer(who, folder, config, **{key: make(policies) for key, make in given.items()})
    trainer.train()
    return trainer


def check_case(name, trainer):
    log = {key for entry in trainer.state.log_history for key in entry}
    if name == "mixed_rewards":
        assert "digit_mean" in log and "digit_of_row" in trainer._logs["extra"]
    if name == "evaluation":
        assert [e["step"] for e in trainer.state.log_history if "eval_a_loss" in e] == [0, 1]
        assert "eval_b_loss" in log
        assert "eval_loss" in trainer.evaluate(STRINGS.select(range(2)).to_iterable_dataset())
    if name == "adaptive_entropy":
        assert trainer.entropy_coef == pytest.approx(0.01 + 0.005 * 2), "once a step, not once a micro-batch"
    if name == "experts":
        assert "aux_loss" in log


def test_all_else_is_trls_own():
    """What we define of what TRL's trainer has: nothing else of it, such as how rewards are read, can behave differently."""
    ours = {name for name in vars(CreditGRPOTrainer) if hasattr(GRPOTrainer, name) and not name.startswith("__")}
    assert ours == {
        "_generate",
        "_calculate_rewards",
        "_generate_and_score_completions",
        "_compute_loss",
        "get_off_policy_mask",
        "get_gamma_weights",
        "_save_checkpoint",
        "_load_optimizer_and_scheduler",
    }


@pytest.mark.parametrize("name", CASES)
def test_beside_trl(tmp_path, policies, name):
    theirs, grpo, gear = (trained(who, tmp_path, policies, name) for who in WHO)
    check_same(theirs, grpo)
    check_credited(theirs, gear)
    for trainer in (theirs, grpo, gear):
        check_case(name, trainer)


@pytest.mark.parametrize("why", ["nothing_scored", "all_truncated"])
def test_nothing_to_learn_from_changes_nothing(tmp_path, policies, caplog, why):
    start = AutoModelForCausalLM.from_pretrained(policies["dense"]).state_dict()
    config = dict(
        mask_truncated_completions=True, generation_kwargs={"suppress_tokens": [tool_tokenizer().eos_token_id]}
    )
    reward = length_reward if why == "all_truncated" else none_scored
    for who in WHO:
        given = dict(model=policies["dense"], train_dataset=STRINGS, reward_funcs=reward)
        trainer = small_trainer(who, tmp_path, config if why == "all_truncated" else {}, **given)
        caplog.clear()
        trainer.train()
        assert ("reward functions returned None" in caplog.text) == (why == "nothing_scored")
        assert all(torch.equal(p, start[n]) for n, p in trainer.model.named_parameters())
        assert logged(trainer)[0]["loss"] == "0.0"


def test_what_trl_refuses_is_refused_alike(tmp_path, policies, caplog):
    """The same exception and the same words, whoever trains."""
    stream, model = STRINGS.to_iterable_dataset(), policies["dense"]
    streamed = dict(model=model, train_dataset=stream)

    class World:
        def reset(self, **_): ...

    wrong = [
        (dict(accelerator_config={"dispatch_batches": True}), streamed),
        ({}, dict(model=model, train_dataset=STRINGS, reward_funcs=[])),
        ({}, dict(model=model)),
        (dict(max_steps=-1), dict(model=model, environment_factory=World)),
        ({}, dict(model=model, environment_factory={"a": World, "b": World})),
        (dict(reward_weights=[1.0, 2.0]), dict(model=model, train_dataset=STRINGS)),
        ({}, dict(model=model, train_dataset=STRINGS, reward_funcs=[policies["reward"]] * 2,
                  reward_processing_classes=[tool_tokenizer()])),
    ]  # fmt: skip
    for config, given in wrong:
        said = set()
        for who in WHO:
            with pytest.raises(ValueError) as error:
                small_trainer(who, tmp_path, config, **given)
            said.add((type(error.value), str(error.value)))
        assert len(said) == 1, said
    for who in WHO:
        assert small_trainer(who, tmp_path, dict(dataloader_num_workers=2), **streamed).args.dataloader_num_workers == 0
        caplog.clear()
        small_trainer(who, tmp_path, dict(importance_sampling_level="sequence"), model=model, train_dataset=STRINGS)
        assert "importance_sampling_level" in caplog.text, "a warning of TRL's"
