"""Trains the embedded model for a few steps, in any number of processes: `torchrun process_run.py OUT STRATEGY CASES`.

CASES is JSON: a list of {"name", "credit", and any of the options of `train`}. Each leaves OUT/NAME.pt with the weights
(and the teacher's), and OUT/NAME.json with metrics and records. `torchrun process_run.py OUT PARTS` does so for several
strategies, in OUT/STRATEGY, after one start: PARTS is a list of [strategy, free port, cases].
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import cpu_shards
import torch

cpu_shards.unlock()
torch.set_num_threads(1)

from datasets import Dataset
from transformers import PrinterCallback

from gear_rl.engines import TRAINER_SETTINGS
from gear_rl.engines.trl import CreditGRPOTrainer, GRPOConfig
from gear_rl.methods import method
from gear_rl.models import load_model
from gear_rl.signals.from_verdicts import VerdictKnowledge
from gear_rl.tasks import make_task
from gear_rl.training.rollouts import TaskSampler


def rank() -> int:
    return int(os.environ.get("RANK", 0))


def train(
    out: Path,
    strategy: str,
    name: str,
    credit: str,
    teacher: str | None = None,
    options: dict[str, Any] | None = None,
    steps: int = 3,
    rollouts: int = 12,
    accumulate: int = 1,
    budgets: list[int] | None = None,
    rows: int = 64,
    optim: str = "adamw_torch",
    lora: bool = False,
    uneven: bool = False,
    **arguments: Any,
) -> None:
    """`budgets`: the scorer's tokens per pass, one for each process: unequal ones give unequal numbers of passes.
    `uneven`: problems of different lengths."""
    task = make_task("workshop", steps=6 if uneven else 4)
    model, tokenizer = load_model(task.default_model(), "cpu")
    chosen = method(credit, **(options or {}))
    data = task.rows("train", rows, 0)
    if uneven:
        short = make_task("workshop", steps=4).rows("train", rows, 0)
        data = [row for pair in zip(data, short, strict=True) for row in pair][:rows]
    sampler = TaskSampler(task, tokenizer, 1.0, "float32", seed=3, seeded=True)

    def reward(**given: Any) -> list[float]:
        return sampler.reward(**given)

    records: list[dict[str, Any]] = []

    def record(scored: Any) -> None:
        for i, ids in enumerate(scored.sampled.completion_ids):
            n = len(ids)
            records.append(
                {
                    "step": scored.step,
                    "group": int(scored.rollouts.group_ids[i]),
                    "reward": float(scored.rollouts.rewards[i]),
                    "ids": ids,
                    "advantages": scored.credit.advantages[i, :n].tolist(),
                    "signals": {k: v[i, :n].tolist() for k, v in scored.rollouts.signals.items()},
                }
            )

    if strategy.startswith("zero"):
        arguments["deepspeed"] = cpu_shards.deepspeed_config(int(strategy[-1]))
    peft = {}
    if lora:
        from peft import LoraConfig

        torch.manual_seed(0)
        peft["peft_config"] = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"])
    config = GRPOConfig(
        output_dir=str(out / f"{name}-checkpoints"),
        max_steps=steps,
        per_device_train_batch_size=rollouts // int(os.environ.get("WORLD_SIZE", 1)) // accumulate,
        gradient_accumulation_steps=accumulate,
        **{"num_generations": 4, "learning_rate": 1e-3, **arguments},
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        adam_epsilon=1e-6,  # with 1e-8, rounding of a gradient near 0 may turn a whole step
        max_completion_length=96,
        seed=3,
        use_cpu=strategy in ("one", "ddp"),
        bf16=False,
        save_strategy="no",
        report_to="none",
        **TRAINER_SETTINGS,
        optim=optim,
    )
    trainer = CreditGRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=config,
        reward_funcs=[reward],
        train_dataset=Dataset.from_list(data),
        sampler=sampler,
        credit=credit,
        credit_options=options,
        hint="hint",
        hint_template=task.hint_template,
        teacher=teacher,
        teacher_every=2,
        teacher_decay=0.5,
        answer="answer",
        answer_prefix=task.answer_prefix,
        knowledge=VerdictKnowledge(task, data[0], chosen, tokenizer),
        mask_budget=4,
        recorder=record,
        **peft,
    )
    trainer.remove_callback(PrinterCallback)
    scorer = trainer.credit_step.reader.scorer
    if budgets:
        scorer.token_budget = budgets[rank() % len(budgets)]
    trainer.train()
    layout = trainer.weights.layout
    state = {n: layout.gathered(n, layout.shard(n)).detach().cpu().clone() for n in layout.parameters}
    kept = {f"teacher.{n}": t.detach().cpu().clone() for n, t in trainer.teacher.state().items()}
    if rank() == 0:
        torch.save(state | kept, out / f"{name}.pt")
        saved = {"log": trainer.state.log_history, "records": records, "layout": layout.name,
                "shared": scorer._proven and scorer.against_sharing is None}  # fmt: skip
        (out / f"{name}.json").write_text(json.dumps(saved))


def train_all(out: Path, strategy: str, cases: list[dict[str, Any]]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for case in cases:
        began = time.time()
        try:
            train(out, strategy, **case)
        except Exception as error:  # the same in all processes, or torchrun ends the others
            traceback.print_exc()
            print(f"FAILED {case['name']}: {error!r}"[:300], flush=True)
            sys.exit(3)
        if rank() == 0:
            print(f"done {case['name']} {time.time() - began:.1f} s", flush=True)


def train_part(out: Path, strategy: str, port: int, cases: list[dict[str, Any]]) -> None:
    """In a forked child of each process: nothing of another strategy is left there, and all is imported already."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: torchrun ends the parent alone
    os.environ |= cpu_shards.STRATEGIES[strategy]
    os.environ |= {"MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "False"}
    if strategy == "one":
        for name in [name for name in os.environ if name.startswith("TORCHELASTIC") or name in TORCHRUN]:
            del os.environ[name]
    cpu_shards.unlock()
    train_all(out / strategy, strategy, cases)


TORCHRUN = {"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
            "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # fmt: skip


def main() -> None:
    out, *more = sys.argv[1:]
    if len(more) == 2:
        train_all(Path(out), more[0], json.loads(more[1]))
        return
    for part in json.loads(more[0]):
        if part[0] == "one" and rank():
            continue
        child = multiprocessing.get_context("fork").Process(target=train_part, args=(Path(out), *part))
        child.start()
        child.join()
        if child.exitcode:
            sys.exit(3)


if __name__ == "__main__":
    main()
