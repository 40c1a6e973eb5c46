"""`train.sampler`: runs by each sampler, and combinations that are refused before anything is loaded."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
import vllm_engine
from engine_runs import build, watch

from gear_rl.cli.main import main
from gear_rl.engines import trl_vllm
from gear_rl.errors import GearError
from gear_rl.scoring.scorer import Scorer
from gear_rl.training import samplers


def logged(trainer):
    return {key: value for entry in trainer.state.log_history for key, value in entry.items()}


def test_continuous_batching_trains(tmp_path):
    trainer = build("gear", tmp_path / "run", sampler="continuous_batching")
    seen, before = watch(trainer), {n: p.detach().clone() for n, p in trainer.policy.named_parameters()}
    trainer.train()
    assert any(not torch.equal(before[n], p) for n, p in trainer.policy.named_parameters())
    # Left in evaluation mode, the policy would be trained without credit.
    assert len(seen) == 2 and trainer.policy.training and trainer.policy.config._attn_implementation == "sdpa"
    assert "signals/reverse_kl" in logged(trainer) and "sampling/sampling_logp_difference/max" not in logged(trainer)


def test_vllm_trains_and_its_log_probs_stay_trls(tmp_path, monkeypatch):
    """TRL's engine and sync; behind vLLM's interface a sampler that is visibly off (tests/helpers/vllm_engine.py)."""
    vllm_engine.install(monkeypatch)
    monkeypatch.setattr(samplers, "check_vllm", lambda device: None)
    trainer = build("gear", tmp_path / "run", sampler="vllm", vllm_memory=0.2, seeded_sampling=True)
    (llm,) = vllm_engine.LLM.made
    assert llm.settings["gpu_memory_utilization"] == 0.2
    trainer.args.learning_rate = 0.0  # so that the policy can be read again afterwards
    seen, batches = watch(trainer), []
    real = trainer._generate_and_score_completions  # before TRL shuffles the rows
    monkeypatch.setattr(
        trainer, "_generate_and_score_completions", lambda inputs: batches.append(real(inputs)) or batches[-1]
    )
    trainer.train()

    assert llm.loads == 2 * len(list(trainer.policy.parameters())), "synced before each step"
    task = trainer.sampler.task
    first = [params for _, params in llm.asked[:8]]
    assert {p.max_tokens for p in first} == {task.max_turn_tokens} and len({p.seed for p in first}) == 8
    assert {tuple(p.stop_token_ids) for p in first} == {(llm.tokenizer.eos_token_id,)}
    rollouts, mask = seen[0]["rollouts"], seen[0]["rollouts"].action_mask
    fresh = Scorer(trainer.policy, trainer.temperature).score(
        seen[0]["prompts"], seen[0]["prompts"], seen[0]["completions"], mask, trainer.teacher
    )
    assert torch.allclose(rollouts.signals["student_logprob"], fresh["student_logprob"], atol=1e-4)
    apart = (batches[0]["sampling_per_token_logps"] - batches[0]["old_per_token_logps"])[mask]
    assert apart.abs().mean() > 0.05 and not mask.all(), "several turns, by another model"
    assert batches[0]["importance_sampling_ratio"].shape == (8, 1)
    assert logged(trainer)["sampling/sampling_logp_difference/max"] > 0.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["sampler=vlm"], "Did you mean 'vllm'"),
        (["sampler=vllm"], "vLLM is not installed. TRL supports vllm>=0.22.0,<=0.31.0: pip install"),
        (["vllm_memory=0.5"], "only train.sampler=vllm uses it"),
        (["sampler=vllm", "vllm_memory=2"], "train.vllm_memory=2"),
        (["sampler=continuous_batching", "seeded_sampling=true"], "use train.sampler=own or vllm"),
    ],
)
def test_refused_before_anything_is_loaded(tmp_path, monkeypatch, capsys, settings, message):
    monkeypatch.setattr(trl_vllm, "installed_version", lambda: None)
    monkeypatch.chdir(tmp_path)
    assert main(["train", *[word for setting in settings for word in ("--set", f"train.{setting}")]]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("found", "device", "runs_on", "message"),
    [
        ("0.21.0", "cuda", "cuda", "vLLM 0.21.0 is installed, and TRL supports vllm>=0.22.0,<=0.31.0"),
        ("0.32.0", "cuda", "cuda", "vLLM 0.32.0 is installed"),
        ("0.31.0+cu129", "cuda:1", "cuda", "CUDA_VISIBLE_DEVICES=1"),
        ("0.31.0+cu129", "cpu", "cuda", "this build of vLLM runs on cuda, and train.device is cpu"),
        ("0.22.0", "cpu", "", "runs on no device here"),
        ("0.31.0+cu129", "cuda", "cuda", None),
    ],
)
def test_which_vllm_on_which_device(monkeypatch, found, device, runs_on, message):
    platform = SimpleNamespace(current_platform=SimpleNamespace(device_type=runs_on))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "vllm.platforms", platform)
    if message is None:
        return trl_vllm.check_vllm(torch.device(device), found)
    with pytest.raises(GearError) as error:
        trl_vllm.check_vllm(torch.device(device), found)
    assert message in str(error.value)


def test_what_samplers_cannot_do():
    cpu = torch.device("cpu")
    options = SimpleNamespace(sampler="continuous_batching", vllm_memory=None, engine="trl", seeded_sampling=False)
    samplers.check_sampler(options, cpu)
    with pytest.raises(GearError, match="2 processes need one per rollout"):
        samplers.check_sampler(options, cpu, processes=2)
    options.engine = "mine"
    with pytest.raises(GearError, match=r"goes with train\.engine=trl"):
        samplers.check_sampler(options, cpu)
