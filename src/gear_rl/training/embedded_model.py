"""Make the embedded model: `python -m gear_rl.training.embedded_model --out DIR`. The result ships in tasks/workshop/model.

Supervised training on synthetic transcripts, half with a hint, half without:

- without a hint the mechanic picks tools as well as the warm start is meant to know them (`world.DOUBTS`): mostly right on
  60 % of the facts, doubtful on 15 %, mistaken on 25 %;
- with a hint it uses the hinted tools. A third of those hints are random, and followed just the same. Without them the
  model would learn "a hint means: be careful" instead of reading it, and a wrong-hint control would show nothing.

Whatever was done, the answer is read off the gauge as it stands. The checkpoint is accepted only if it passes `gate`.
The one that ships was made with the defaults below on one H200 in 190 s: true success 0.186 sampled and 0.17 greedy without
a hint, 0.998 and 1.0 with it. Of five seeds two failed the gate (they had not learned to keep count of the jobs).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gear_rl.evaluation.evaluate import evaluate_model
from gear_rl.tasks.workshop import Workshop, world
from gear_rl.tasks.workshop.task import STEPS
from gear_rl.tasks.workshop.tokenizer import ANSWER, BOT, END, HINT, USER, VOCABULARY, build_tokenizer

ID = {word: i for i, word in enumerate(VOCABULARY)}
TOOL_IDS, PART_IDS, FAULT_IDS, FILLER_IDS, GAUGE_IDS = (
    np.array([ID[w] for w in words]) for words in (world.TOOLS, world.PARTS, world.FAULTS, world.FILLERS, world.GAUGE)
)
_MODES = list(world.ANSWERS)
_ANSWER_ID = np.array([[ID[world.read_gauge(g, mode)] for g in range(32)] for mode in _MODES])  # (mode, gauge)
_NEXT = np.array(
    [[[world.turn_gauge(g, t, p) for p in world.PARTS] for t in world.TOOLS] for g in range(32)]
)  # (gauge, tool, part)


def _knowledge() -> np.ndarray:
    """(part, fault, tool) → the chance with which the warm start picks the tool."""
    table = np.zeros((16, 16, 8))
    for i, part in enumerate(world.PARTS):
        for j, fault in enumerate(world.FAULTS):
            doubt, right = world.DOUBTS[part, fault], world.HANDBOOK[part, fault]
            table[i, j] = (1 - doubt.right - doubt.decoy_share) / 6
            table[i, j, world.TOOLS.index(right)] = doubt.right
            table[i, j, world.TOOLS.index(doubt.decoy)] = doubt.decoy_share
    return table


_KNOWLEDGE = _knowledge()
_REFERENCE = np.array([[world.TOOLS.index(world.HANDBOOK[p, f]) for f in world.FAULTS] for p in world.PARTS])


def transcripts(rng: np.random.Generator, rows: int, steps: int, hinted: bool) -> tuple[np.ndarray, np.ndarray]:
    """ids (rows, T) and loss weights (rows, T): 0 on what the policy does not say, 4 on the answer, else 1."""
    mode = rng.integers(len(_MODES), size=rows)
    gauge = rng.integers(32, size=rows)
    part, fault = rng.integers(16, size=(2, rows, steps))
    if hinted:
        hint = np.where(rng.random(rows)[:, None] < 1 / 3, rng.integers(8, size=(rows, steps)), _REFERENCE[part, fault])
        tool = hint
    else:
        tool = (rng.random((rows, steps, 1)) > _KNOWLEDGE[part, fault].cumsum(-1)).sum(-1).clip(0, 7)

    columns: list[np.ndarray] = []
    weights: list[float] = []

    def say(ids: np.ndarray | int, weight: float) -> None:
        columns.append(np.broadcast_to(ids, rows))
        weights.append(weight)

    say(ID[USER], 0)
    say(np.array([ID[m] for m in _MODES])[mode], 0)
    say(GAUGE_IDS[gauge], 0)
    for i in range(steps):
        say(PART_IDS[part[:, i]], 0)
        say(FAULT_IDS[fault[:, i]], 0)
    if hinted:
        say(ID[HINT], 0)
        for i in range(steps):
            say(TOOL_IDS[hint[:, i]], 0)
    say(ID[END], 0)
    say(ID[BOT], 0)
    for i in range(steps):
        say(FILLER_IDS[rng.integers(8, size=rows)], 1)
        say(TOOL_IDS[tool[:, i]], 1)
        say(PART_IDS[part[:, i]], 1)
        say(ID[END], 1)
        gauge = _NEXT[gauge, tool[:, i], part[:, i]]
        say(GAUGE_IDS[gauge], 0)
        say(ID[BOT], 0)
    say(ID[ANSWER], 1)
    say(_ANSWER_ID[mode, gauge], 4)
    say(ID[END], 1)
    return np.stack(columns, 1), np.broadcast_to(np.array(weights), (rows, len(weights)))


def build_model(seed: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=256, tie_word_embeddings=True, pad_token_id=0, bos_token_id=None, eos_token_id=ID[END],
    )  # fmt: skip
    return LlamaForCausalLM(config)


def train(model: torch.nn.Module, updates: int, rows: int, peak_lr: float, seed: int) -> None:
    device = next(model.parameters()).device
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak_lr, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak_lr, total_steps=updates, pct_start=0.05)
    began = time.time()
    for update in range(updates):
        steps, losses = STEPS[update % len(STEPS)], []
        for hinted in (False, True):
            ids, weight = (torch.as_tensor(a.copy(), device=device) for a in transcripts(rng, rows // 2, steps, hinted))
            logits = model(input_ids=ids[:, :-1]).logits.float()
            loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
            losses.append((loss * weight[:, 1:]).sum() / weight[:, 1:].sum())
        optimizer.zero_grad(set_to_none=True)
        (losses[0] + losses[1]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if update % 250 == 0:
            plain, hinted_loss = (float(x.detach()) for x in losses)
            print(f"{update:6d} plain {plain:.3f} hinted {hinted_loss:.3f} {time.time() - began:.0f}s", flush=True)


def gate(model: torch.nn.Module) -> dict[str, float]:
    """True success of student and hinted teacher on 500 default orders. The ranges are the design of the task."""
    task, tokenizer = Workshop(), build_tokenizer()
    scores = {}
    for who, hinted in (("student", False), ("teacher", True)):
        result = evaluate_model(model, tokenizer, task, task.rows("train", 500, seed=999), hinted=hinted)
        scores[who], scores[f"{who}_greedy"] = result["sampled"]["success"], result["greedy"]["success"]
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=8000)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    model = build_model(options.seed).to(options.device)
    train(model, options.updates, options.rows, options.lr, options.seed)
    model = model.to("cpu").eval()
    scores = gate(model)
    print(json.dumps(scores))
    model.to(torch.float16).save_pretrained(options.out)
    build_tokenizer().save_pretrained(options.out)
    if not (scores["teacher"] >= 0.9 and 0.1 <= scores["student"] <= 0.4 and scores["student_greedy"] <= 0.5):
        raise SystemExit("the warm start is outside its gate: teacher ≥ 0.9, student 0.1–0.4, greedy student ≤ 0.5")


if __name__ == "__main__":
    main()
