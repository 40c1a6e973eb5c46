"""vLLM itself, on a CPU: `gear train --set train.sampler=vllm` and a TRL script with `use_vllm`, each checked from inside.

    python tests/vllm_smoke/smoke.py            in an environment with vLLM (docs/vllm.md says how it is made)

A random model with heads of 32, the smallest that vLLM's CPU attention takes. Prints one line per check; exit code 1 if one
fails. The first start compiles for about two minutes.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.update({"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"})
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import torch
import vllm_engine
from datasets import Dataset
from trl.generation import vllm_generation
from trl_setups import arguments, length_reward
from vllm import LLM, SamplingParams

from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.engines.trl_vllm import check_vllm
from gear_rl.models import load_model
from gear_rl.tasks import make_task
from gear_rl.tasks.workshop.tokenizer import build_tokenizer

FAILED = []


def check(what: str, holds: bool, detail: object = "") -> None:
    print(("ok    " if holds else "FAILED"), what, detail, flush=True)
    if not holds:
        FAILED.append(what)


def save_model(folder: Path) -> str:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=256, pad_token_id=0, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, tie_word_embeddings=True, initializer_range=0.1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def interface() -> None:
    """The stand-in of the unit tests has vLLM's signatures."""
    ours, theirs = inspect.signature(vllm_engine.SamplingParams), inspect.signature(SamplingParams)
    check("SamplingParams has every field that we set", set(ours.parameters) <= set(theirs.parameters))
    same = all(ours.parameters[n].default == theirs.parameters[n].default for n in ours.parameters)
    check("SamplingParams has the same defaults", same)
    mine, its = (list(inspect.signature(c.generate).parameters)[:4] for c in (vllm_engine.LLM, LLM))
    check("LLM.generate takes the same", mine == its, its)
    for name in ("reset_prefix_cache", "sleep", "wake_up", "generate"):
        check(f"LLM.{name} exists", callable(getattr(LLM, name, None)))


def keep_cpu_weights() -> None:
    """vLLM's CPU layers repack their weights and drop the originals, which TRL's sync writes to. GPU layers keep them."""
    from vllm.model_executor.layers import utils

    utils.dispatch_cpu_unquantized_gemm = plain_linear


def plain_linear(layer: torch.nn.Module, remove_weight: bool = False) -> None:
    layer.cpu_linear = lambda x, weight, bias: torch.nn.functional.linear(x, weight, bias)


def trl_script(model: str, folder: Path) -> None:
    task = make_task("workshop", steps=4)
    seen, batches = [], []
    policy, tokenizer = load_model(model, "cpu")
    trainer = CreditGRPOTrainer(
        model=policy, processing_class=tokenizer, reward_funcs=[length_reward], recorder=seen.append,
        args=arguments(folder, use_vllm=True, vllm_gpu_memory_utilization=0.05, max_steps=3, max_completion_length=16),
        train_dataset=Dataset.from_list(task.rows("train", 32)), hint="hint", hint_template=task.hint_template,
    )  # fmt: skip
    real = trainer._generate_and_score_completions  # before TRL shuffles the rows
    trainer._generate_and_score_completions = lambda inputs: batches.append(real(inputs)) or batches[-1]
    before = policy.get_output_embeddings().weight.detach().clone()
    trainer.train()
    check("three steps of GEAR with use_vllm", trainer.steps_taken == 3 and len(seen) == 3)
    check("the policy moved", not torch.equal(before, policy.get_output_embeddings().weight))
    for step, (scored, batch) in enumerate(zip(seen, batches, strict=True)):
        mask = scored.rollouts.action_mask
        student, sampler = scored.rollouts.signals["student_logprob"], batch["sampling_per_token_logps"]
        # gear reads the student beside its teacher, in another pass than TRL's: the same model, summed in another order.
        other = float((student - batch["old_per_token_logps"])[mask].abs().max())
        check(f"step {step}: the student is TRL's reading", other < 1e-5, f"max {other:.1e}")
        apart = (student - sampler)[mask].abs()
        check(
            f"step {step}: vLLM differs by its rounding", 0 < float(apart.max()) < 0.2, f"max {float(apart.max()):.4f}"
        )
    inner = trainer.vllm_generation.llm.llm_engine.model_executor.driver_worker.model_runner.model
    trainer.vllm_generation.sync_weights()
    mine = dict(inner.named_parameters())["model.norm.weight"].float()
    check("weights are synced", torch.allclose(mine, policy.model.norm.weight.detach(), atol=1e-2))


def gear_train(model: str, folder: Path) -> None:
    from gear_rl.cli.main import main

    small = (
        "steps=3 prompts=2 generations=4 eval_rows=8 record_every=1 checkpoint_every=2 sampler=vllm vllm_memory=0.05"
    )
    words = [w for setting in small.split() for w in ("--set", f"train.{setting}")]
    code = main(["train", "--model", model, "--out", str(folder), *words])
    check("gear train --set train.sampler=vllm", code == 0, f"exit {code}")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    check("three steps are logged", [line["step"] for line in lines if "step" in line][-1:] == [3])
    found = [
        line["sampling/sampling_logp_difference/max"]
        for line in lines
        if "sampling/sampling_logp_difference/max" in line
    ]
    check("TRL corrects for vLLM's rounding", bool(found) and 0 < max(found) < 0.2, found)


if __name__ == "__main__":
    part = sys.argv[1] if len(sys.argv) > 1 else "all"
    torch.set_num_threads(1)
    check_vllm(torch.device("cpu"))
    keep_cpu_weights()
    with tempfile.TemporaryDirectory() as scratch:
        model = save_model(Path(scratch) / "model")
        if part in ("all", "interface"):
            interface()
        if part in ("all", "script"):
            trl_script(model, Path(scratch) / "script")
        if part in ("all", "train"):
            gear_train(model, Path(scratch) / "run")
    assert vllm_generation.is_vllm_available()
    sys.stdout.flush()
    os._exit(bool(FAILED))  # vLLM's clean-up at exit fails where accelerate has closed the process group before
