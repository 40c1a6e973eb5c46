"""Whatever TRL's GRPO trainer takes, `credit="grpo"` takes too and trains bit for bit what TRL trains; `gear` trains with it.

Written from what TRL's own tests of its trainer cover.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, TaskType
from trl import GRPOConfig, GRPOTrainer
from trl_setups import build, length_reward

from gear_rl.engines import LOSS_TYPES
from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.engines.trl_support import in_trl_shape
from gear_rl.errors import GearError

SHORT = dict(max_completion_length=4, per_device_train_batch_size=4, num_generations=2, max_steps=2)
OPTIONS = {
    "dapo": dict(delta=1.5, num_iterations=2, top_p=0.9, top_k=10, min_p=0.01, repetition_penalty=1.1),
    "grpo": dict(top_entropy_quantile=0.4, per_device_train_batch_size=2, gradient_accumulation_steps=2),
    "dr_grpo": dict(entropy_coef=0.1, scale_rewards="none"),
    "bnpo": dict(beta=0.1, use_bias_correction_kl=True, generation_batch_size=8),
    "cispo": dict(scale_rewards="batch", pad_to_multiple_of=16),
    "sapo": dict(mask_truncated_completions=True, multi_objective_aggregation="normalize_then_sum"),
    "luspo": dict(importance_sampling_level="sequence", num_iterations=2),
    "vespo": dict(num_iterations=2, gradient_checkpointing=True),
}
"""Loss type → other settings it is tried with: each of TRL's is in one of them."""
OFF_POLICY = dict(off_policy_mask_threshold=1e-5, num_iterations=3, max_steps=3)


def texts(completions, **_):
    return [float(len(str(c[-1]["content"])) % 3) for c in completions]


def some_unscored(completion_ids, **_):
    return [None if i % 3 == 0 else float(sum(ids) % 5) for i, ids in enumerate(completion_ids)]


@pytest.fixture(scope="module")
def rows():
    from gear_rl.tasks import make_task

    return make_task("workshop", steps=4).rows("train", 16)


def trained(kind, folder, workshop, rows, changes, **credit):
    from gear_rl.models import load_model

    torch.manual_seed(0)
    pair = load_model(workshop.default_model(), "cpu")
    trainer = build(kind, folder, workshop, pair, Dataset.from_list(rows), **{**SHORT, **changes}, **credit)
    trainer.train()
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}, trainer


def changes_of(name):
    if name == "off_policy_mask":
        return dict(OFF_POLICY, peft_config=LoraConfig(r=2, target_modules="all-linear"))
    rewards = [length_reward, texts, some_unscored] if name == "sapo" else [length_reward]
    return dict(OPTIONS[name], loss_type=name, reward_funcs=rewards, reward_weights=[1.0, 0.5, 0.2][: len(rewards)])


def test_every_loss_is_tried():
    assert set(OPTIONS) == set(LOSS_TYPES)
    described = GRPOConfig.__dataclass_fields__["loss_type"].metadata["help"]
    assert all(f"'{name}'" in described for name in LOSS_TYPES)


@pytest.mark.parametrize("name", [*OPTIONS, "off_policy_mask"])
def test_grpo_is_trl_with_every_option(tmp_path, workshop, rows, name):
    theirs, trl = trained(GRPOTrainer, tmp_path, workshop, rows, changes_of(name))
    ours, trainer = trained(CreditGRPOTrainer, tmp_path, workshop, rows, changes_of(name), credit="grpo", hint=None)
    assert theirs.keys() == ours.keys() and all(torch.equal(theirs[n], ours[n]) for n in theirs)
    theirs, ours = trl.state.log_history[0], trainer.state.log_history[0]
    assert theirs["grad_norm"] > 0
    for name in ("loss", "grad_norm", "reward", "kl", "entropy"):
        assert theirs.get(name) == ours.get(name) and (name in theirs) == (name in ours)


@pytest.mark.parametrize("name", ["vespo", "off_policy_mask"])
def test_gear_trains_where_trl_weighs_whole_rollouts(tmp_path, workshop, rows, name):
    """α = 0 is GRPO, so there it is TRL bit for bit; with credit it is not, and it trains."""
    theirs, _ = trained(GRPOTrainer, tmp_path, workshop, rows, changes_of(name))
    none = dict(credit="gear", credit_options=dict(alpha=0.0))
    same, _ = trained(CreditGRPOTrainer, tmp_path, workshop, rows, changes_of(name), **none)
    assert all(torch.equal(theirs[n], same[n]) for n in theirs)
    ours, _ = trained(CreditGRPOTrainer, tmp_path, workshop, rows, changes_of(name), credit="gear")
    assert any(not torch.equal(theirs[n], ours[n]) for n in theirs)
    assert all(p.isfinite().all() for p in ours.values())


def test_one_number_a_rollout_where_a_method_gives_one():
    mask = torch.tensor([[0, 1, 1, 0], [1, 0, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)
    flat = torch.tensor([[0.0, 2, 2, 0], [-1, 0, -1, -1], [0, 0, 0, 0]])
    assert in_trl_shape(flat, mask).tolist() == [2.0, -1.0, 0.0]
    spread = flat.clone()
    spread[1, 3] = -2
    assert in_trl_shape(spread, mask) is spread


def test_masks_and_weights_decide_for_whole_rollouts():
    """A rollout counts by the sign of its tokens' sum; with one advantage per rollout that is TRL's own rule."""
    log_ratio, mask = torch.tensor([[0.1, -0.4, 0.2], [0.3, 0.1, 0.0]]), torch.ones(2, 3)
    per_token, per_rollout = torch.tensor([[3.0, -1.0, 1.0], [-2.0, 1.0, 0.0]]), torch.tensor([[1.0], [-1.0]])
    for_tokens = CreditGRPOTrainer.get_gamma_weights(per_token, log_ratio, mask, None)
    assert torch.equal(for_tokens, GRPOTrainer.get_gamma_weights(per_rollout, log_ratio, mask, None))
    arguments = dict(
        per_token_logps=-log_ratio, sampling_per_token_logps=log_ratio, mask=mask, off_policy_threshold=0.1
    )
    kept = CreditGRPOTrainer.get_off_policy_mask(advantages=per_token, **arguments)
    assert (
        kept.tolist() == GRPOTrainer.get_off_policy_mask(advantages=per_rollout, **arguments).tolist() == [[1.0], [0.0]]
    )


@pytest.mark.parametrize("kind", [PromptTuningConfig, PrefixTuningConfig])
def test_gear_reads_a_model_with_virtual_tokens(tmp_path, workshop, rows, kind):
    """Tokens that only an adapter knows, before the prompt: signals against one plain forward of the whole model each."""
    seen = []
    changes = dict(peft_config=kind(task_type=TaskType.CAUSAL_LM, num_virtual_tokens=3), learning_rate=0.0, max_steps=1)
    _, trainer = trained(CreditGRPOTrainer, tmp_path, workshop, rows, changes, credit="gear", recorder=seen.append)
    (scored,) = seen

    @torch.no_grad()
    def log_softmax(prompt, completion):
        logits = trainer.policy.eval()(input_ids=torch.tensor([[*prompt, *completion]])).logits[0]
        return logits[-len(completion) - 1 : -1].log_softmax(-1)

    for i, completion in enumerate(scored.sampled.completion_ids):
        student = log_softmax(scored.sampled.prompt_ids[i], completion)
        teacher = log_softmax(scored.hinted.prompt_ids[i], completion)
        kl = (student.exp() * (student - teacher)).sum(1)
        torch.testing.assert_close(scored.rollouts.signals["reverse_kl"][i, : len(kl)], kl, atol=1e-4, rtol=1e-3)
        assert kl.max() > 1e-3
        with trainer.policy.disable_adapter():
            assert (log_softmax(scored.sampled.prompt_ids[i], completion) - student).abs().max() > 1e-3, "they matter"


def test_virtual_tokens_that_a_method_cannot_read(tmp_path, workshop, rows):
    """`grpo` reads nothing; a method that adds tokens of its own would leave the virtual ones out."""
    for name, reads in (("grpo", False), ("opsd", True)):
        changes = dict(peft_config=PromptTuningConfig(task_type=TaskType.CAUSAL_LM, num_virtual_tokens=2))
        given = dict(credit=name, hint="hint" if reads else None)
        with pytest.raises(GearError, match="virtual tokens") if reads else nullcontext():
            trained(CreditGRPOTrainer, tmp_path, workshop, rows, changes, **given)
