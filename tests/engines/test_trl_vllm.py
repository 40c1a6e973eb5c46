"""vLLM through TRL: whose log-probs are whose, what multiplies the loss, and the parts of TRL that all this stands on.

TRL's own code runs: trainer, `VLLMGeneration`, `VLLMClient`. vLLM itself is replaced (tests/helpers/vllm_engine.py says by
what); tests/vllm_smoke/smoke.py runs it."""

from __future__ import annotations

import inspect

import pytest
import torch
import vllm_engine
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration
from trl_setups import build

from gear_rl.engines import LOSS_TYPES
from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.models import load_model
from gear_rl.scoring.scorer import Scorer
from gear_rl.tasks.workshop.environment import WorkshopEnvironment


@pytest.fixture
def data(workshop):
    return Dataset.from_list(workshop.rows("train", 32))


@pytest.fixture
def engine(monkeypatch, workshop):
    """mode → settings of GRPOConfig, with the engine in place."""
    contexts = []

    def use(mode):
        if mode == "colocate":
            vllm_engine.install(monkeypatch)
            return dict(use_vllm=True, vllm_mode="colocate")
        llm = vllm_engine.LLM(workshop.default_model())
        vllm_engine.install(monkeypatch, llm)
        monkeypatch.setattr(vllm_engine.LLM, "made", [llm])
        contexts.append(vllm_engine.server(llm))
        return dict(use_vllm=True, vllm_mode="server", vllm_server_base_url=contexts[-1].__enter__())

    yield use
    for context in contexts:
        context.__exit__(None, None, None)


def credit_trainer(folder, workshop, data, settings, credit="gear", **changes):
    pair = load_model(workshop.default_model(), "cpu")
    return build(CreditGRPOTrainer, folder, workshop, pair, data, credit=credit, **settings, **changes)


def one_batch(trainer, data, prompts=2):
    trainer.model.train()
    rows = [row for row in data.to_list()[:prompts] for _ in range(4)]
    return rows, trainer._generate_and_score_completions(rows)


@pytest.mark.parametrize("credit", ["gear", "low_probability"])
@pytest.mark.parametrize(("mode", "world"), [("colocate", "single_turn"), ("server", "environment")])
def test_signals_are_the_policys_not_the_samplers(tmp_path, workshop, data, engine, mode, world, credit):
    """gear reads the student beside its teacher; low_probability takes what TRL has read."""
    seen = []
    changes = dict(environment_factory=WorkshopEnvironment) if world == "environment" else {}
    trainer = credit_trainer(tmp_path, workshop, data, engine(mode), credit, recorder=seen.append, **changes)
    _, batch = one_batch(trainer, data)
    (scored,) = seen
    rollouts, mask = scored.rollouts, scored.rollouts.action_mask
    fresh = Scorer(trainer.policy, trainer.temperature).score(
        scored.sampled.prompt_ids, scored.sampled.prompt_ids, scored.sampled.completion_ids, mask, trainer.teacher
    )
    sampler, student = batch["sampling_per_token_logps"], rollouts.signals["student_logprob"]
    apart = (sampler - student)[mask].abs()
    assert apart.mean() > 0.05, "the sampler must be visibly another model, or this test cannot fail"
    assert torch.allclose(student, fresh["student_logprob"], atol=1e-4)
    assert torch.allclose(batch["old_per_token_logps"][mask], student[mask], atol=1e-4)
    again = trainer.method.assign(rollouts)
    assert torch.equal(batch["advantages"], again.advantages)


def test_a_mix_up_would_change_the_credit(tmp_path, workshop, data, engine):
    """`low_probability` weighs by the student's log-prob alone: given the sampler's, it pays other tokens."""
    seen = []
    trainer = credit_trainer(
        tmp_path, workshop, data, engine("colocate"), credit="low_probability", recorder=seen.append
    )
    _, batch = one_batch(trainer, data)
    rollouts = seen[0].rollouts
    assert torch.equal(trainer.method.assign(rollouts).advantages, batch["advantages"])
    mixed_up = dict(rollouts.signals, student_logprob=batch["sampling_per_token_logps"] * rollouts.action_mask)
    rollouts.signals.update(mixed_up)
    assert not torch.allclose(trainer.method.assign(rollouts).advantages, batch["advantages"], atol=1e-3)


@pytest.mark.parametrize("level", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
@pytest.mark.parametrize("loss_type", [name for name in LOSS_TYPES if name != "vespo"])  # has it in its own weight
def test_trls_correction_multiplies_token_credit(tmp_path, workshop, data, engine, loss_type, level):
    """The loss with the correction is Σ ratio · (loss of each token without it), under the loss's own normalisation."""
    trainer = credit_trainer(
        tmp_path, workshop, data, engine("colocate"), loss_type=loss_type, vllm_importance_sampling_mode=level,
        vllm_importance_sampling_clip_max=1.2,
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    _, batch = one_batch(trainer, data)
    mask, ratio = batch["completion_mask"].bool(), batch["importance_sampling_ratio"]
    difference = torch.where(mask, batch["old_per_token_logps"] - batch["sampling_per_token_logps"], 0.0)
    kind, bound = level.split("_")
    expected = (difference.sum(1, keepdim=True) if kind == "sequence" else difference).exp()
    expected = expected.clamp(max=1.2) if bound == "truncate" else expected.where(expected <= 1.2, 0.0)
    assert torch.allclose(ratio, expected, atol=1e-5) and ratio.shape[1] == (1 if kind == "sequence" else mask.shape[1])
    assert float((ratio - 1).abs().max()) > 0.05

    loss = trainer._compute_loss(trainer.model, batch)
    # The loss is linear in the advantages' sizes: the same batch with ratio · advantages and no ratio must give it.
    moved = dict(batch, advantages=batch["advantages"] * ratio, importance_sampling_ratio=torch.ones_like(ratio))
    assert torch.allclose(loss, trainer._compute_loss(trainer.model, moved), atol=1e-6)
    uncorrected = dict(batch, importance_sampling_ratio=torch.ones_like(ratio))
    assert not torch.allclose(loss, trainer._compute_loss(trainer.model, uncorrected), atol=1e-5)


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_weights_follow_the_policy_step_by_step(tmp_path, workshop, data, engine, mode):
    settings = engine(mode)
    trainer = credit_trainer(tmp_path, workshop, data, settings, max_steps=3)
    (llm,) = vllm_engine.LLM.made
    stale = []
    real = llm.generate

    def generate(*args, **kwargs):
        mine, policy = dict(llm.model.named_parameters()), dict(trainer.policy.named_parameters())
        stale.append(max(float((mine[name] - policy[name]).detach().abs().max()) for name in policy))
        return real(*args, **kwargs)

    llm.generate = generate
    trainer.train()
    assert stale == [0.0, 0.0, 0.0]
    assert llm.loads == 3 * len(list(trainer.policy.parameters())) and llm.resets == 3
    logged = {key for entry in trainer.state.log_history for key in entry}
    assert {"sampling/sampling_logp_difference/mean", "signals/reverse_kl", "credit/mean_abs_advantage"} <= logged


def test_without_correction_the_policy_is_read_by_us(tmp_path, workshop, data, engine):
    seen = []
    trainer = credit_trainer(
        tmp_path, workshop, data, engine("colocate"), credit="low_probability", recorder=seen.append,
        vllm_importance_sampling_correction=False,
    )  # fmt: skip
    _, batch = one_batch(trainer, data)
    assert "old_per_token_logps" not in batch and "importance_sampling_ratio" not in batch
    mask = seen[0].rollouts.action_mask
    apart = (seen[0].rollouts.signals["student_logprob"] - batch["sampling_per_token_logps"])[mask].abs()
    assert apart.mean() > 0.05


def test_contract_of_trls_vllm_classes(tmp_path, workshop, data, engine):
    """What we, or a script with `use_vllm`, stand on. `train.sampler=vllm` uses the first block."""
    from trl.generation import vllm_generation

    trainer = credit_trainer(tmp_path, workshop, data, engine("colocate"))
    assert isinstance(trainer.vllm_generation, VLLMGeneration) and trainer.use_vllm
    assert callable(trainer.vllm_generation.llm.generate) and callable(vllm_generation.extract_logprobs)
    source = inspect.getsource(GRPOTrainer._generate)
    assert source.index("sync_weights()") < source.index("self.rollout_func(prompts, self)"), (
        "synced before our sampler"
    )
    settings = vllm_engine.LLM.made[-1].settings
    assert settings["logprobs_mode"] == "processed_logprobs" and settings["tensor_parallel_size"] == 1

    assert list(inspect.signature(VLLMGeneration.generate).parameters)[1:] == [
        "prompts", "images", "num_generations", "profiler",
    ]  # fmt: skip
    assert list(inspect.signature(VLLMGeneration.sync_weights).parameters) == ["self"]
    scoring = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    for field in ("old_per_token_logps", "importance_sampling_ratio", "sampling_per_token_logps"):
        assert f'output["{field}"]' in scoring, field
    defaults = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    assert (defaults.vllm_mode, defaults.vllm_importance_sampling_correction) == ("colocate", True)
    assert (defaults.vllm_importance_sampling_mode, defaults.vllm_importance_sampling_clip_max) == (
        "sequence_mask",
        3.0,
    )
    assert defaults.vllm_gpu_memory_utilization == 0.3, "docs/vllm.md and train.vllm_memory say so"
