"""Make the embedded model of a world: `python -m gear_rl.training.embedded_model --world 3 --out DIR`.

The results ship in tasks/workshop: model (world 0) and model_worlds/K. Supervised training on synthetic transcripts, half
with a hint, half without (`training.workshop_transcripts`). A seed is accepted only if its checkpoint passes `gate`; with
several seeds, the first that passes is kept. Processes with other seeds may work on the same --out at the same time: those
that find it made stop.

The model of world 0 was made on one H200 in 190 s, with seed 4 and hints of form calls alone: true success 0.186 sampled
and 0.17 greedy without a hint, 0.998 and 1.0 with it. Of five seeds two failed the gate (they had not learned to keep
count of the jobs).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gear_rl.errors import GearError
from gear_rl.evaluation.evaluate import InMemory, evaluate, plan, with_ids
from gear_rl.sampling.players import LocalPlayer
from gear_rl.tasks.workshop import Workshop
from gear_rl.tasks.workshop.task import STEPS
from gear_rl.tasks.workshop.tokenizer import END, VOCABULARY, build_tokenizer
from gear_rl.tasks.workshop.world import WORLDS, world
from gear_rl.training.workshop_transcripts import ID, Transcripts

HIDDEN = 0.2
"""Share of hidden facts at which the gate looks."""
SAY_EVERY = 250


def build_model(seed: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=256, tie_word_embeddings=True, pad_token_id=0, bos_token_id=None, eos_token_id=ID[END],
    )  # fmt: skip
    return LlamaForCausalLM(config)


def train(
    model: torch.nn.Module, told: Transcripts, updates: int, rows: int, peak_lr: float, seed: int, out: Path
) -> bool:
    """True when done; False: another process has made `out` meanwhile."""
    device = next(model.parameters()).device
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak_lr, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak_lr, total_steps=updates, pct_start=0.05)
    began = time.time()
    for update in range(updates):
        steps = STEPS[update % len(STEPS)]
        batch = told.batch(rng, rows, steps)
        ids, weights = (torch.as_tensor(a, device=device) for a in (batch.ids, batch.weights))
        logits = model(input_ids=ids[:, :-1]).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none") * weights[:, 1:]
        means = [loss[part].sum() / weights[part, 1:].sum() for part in batch.parts]
        optimizer.zero_grad(set_to_none=True)
        torch.stack([share * mean for share, mean in zip(batch.shares, means, strict=True)]).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if update % SAY_EVERY == 0:
            if out.exists():
                return False
            said = " ".join(f"{name} {float(mean.detach()):.3f}" for name, mean in zip(batch.names, means, strict=True))
            print(f"world {told.world.number} seed {seed} {update:6d} {said} {time.time() - began:.0f}s", flush=True)
    return True


def gate(model: torch.nn.Module, number: int) -> dict[str, float]:
    """What the model can do on 500 default orders of its world, without a hint and with each form it was taught."""
    tasks = {"student": Workshop(world=number), "teacher": Workshop(world=number)}
    if number:
        tasks["answer"] = Workshop(world=number, hint_form="answer")
        tasks["hidden"] = Workshop(world=number, hidden_facts=HIDDEN)
    scores: dict[str, float] = {}
    for who, task in tasks.items():
        rows = with_ids(task.rows("train", 500, seed=999), "train")
        jobs = plan(task, rows, samples=1, greedy=who in ("student", "teacher"), hinted=who != "student")
        found = evaluate(LocalPlayer(model, build_tokenizer()), task, jobs, InMemory())
        scores[who] = found["sampled"]["success"]
        if "greedy" in found:
            scores[f"{who}_greedy"] = found["greedy"]["success"]
        scores[f"{who}_reward"] = found["sampled"]["reward"]
        scores |= {f"{who}: {name}": part["share"] for name, part in found["sampled"].get("parts", {}).items()}
    return scores


def faults(scores: dict[str, float]) -> list[str]:
    """What keeps these scores from passing. The ranges are the design of the task."""
    wanted = {
        "teacher": (0.9, 1.0),  # reads the hint
        "student": (0.1, 0.4),  # has room to learn
        "student_greedy": (0.0, 0.5),  # not solved by greedy decoding
        "answer": (0.1, 0.4),  # told the answer alone, it works as without a hint …
        "answer_reward": (0.9, 1.0),  # … and gives the answer
        "hidden: shown facts": (0.95, 1.0),  # reads what is shown …
        "hidden: hidden facts": (0.5, 0.9),  # … and uses what it knows where nothing is
    }
    return [
        f"{name} {scores[name]:.3f} is not in {low} to {high}"
        for name, (low, high) in wanted.items()
        if name in scores and not low <= scores[name] <= high
    ]


def save(model: Any, out: Path) -> bool:
    """The folder appears whole. False: another process was first."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as made:
        folder = Path(made) / "model"
        model.to(torch.float16).save_pretrained(folder)
        build_tokenizer().save_pretrained(folder)
        if out.exists():
            return False
        folder.rename(out)
    return True


def make(number: int, seeds: list[int], out: Path, updates: int, rows: int, lr: float, device: str, pick: bool) -> None:
    """The first of `seeds` that passes the gate, into `out`. `pick` False: the first in any case (a trial run)."""
    if out.exists():
        raise GearError(f"{out} exists. Give another --out.")
    told = Transcripts(world(number))
    for seed in seeds:
        model = build_model(seed).to(device)
        if not train(model, told, updates, rows, lr, seed, out):
            print(f"world {number} seed {seed}: another process has made {out}")
            return
        model = model.to("cpu").eval()
        scores = gate(model, number)
        wrong = faults(scores)
        print(json.dumps({"world": number, "seed": seed, "passed": not wrong, "faults": wrong, **scores}), flush=True)
        if not wrong or not pick:
            save(model, out)
            return
    raise GearError(f"world {number}: no seed of {seeds} passed the gate. Try others with --seeds.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--world", type=int, default=0, choices=WORLDS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=8000)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[4], help="tried in this order until one passes the gate"
    )
    parser.add_argument("--no-gate", action="store_true", help="keep the first seed's model even if it fails the gate")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")  # on a GPU: TF32
    try:
        make(given.world, given.seeds, given.out, given.updates, given.rows, given.lr, given.device, not given.no_gate)
    except GearError as error:
        raise SystemExit(f"gear: {error}") from None


if __name__ == "__main__":
    main()
