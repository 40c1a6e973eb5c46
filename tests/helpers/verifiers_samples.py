"""Rollouts of the workshop as the traces that verifiers 0.4 writes: messages with token ids and mask."""

from __future__ import annotations

import json
from itertools import groupby

import torch

from gear_rl.models import load_model
from gear_rl.sampling.play import play
from gear_rl.tasks import make_task


def played_traces(problems: int = 2, attempts: int = 4, seed: int = 0):
    """(tokenizer, rows, rollouts, episodes): episodes in verifiers' shape, as plain values."""
    task = make_task("workshop", steps=4)
    model, tokenizer = load_model(task.default_model(), "cpu")
    rows = [row for row in task.rows("test", problems) for _ in range(attempts)]
    torch.manual_seed(seed)
    rollouts = play(model, tokenizer, task, rows)
    episodes = []
    for i, (row, rollout) in enumerate(zip(rows, rollouts, strict=True)):
        reward = task.verdict(row, rollout.transcript(tokenizer.decode(rollout.completion_ids))).reward
        episodes.append(episode(row, rollout, reward, tokenizer, i))
    return tokenizer, rows, rollouts, episodes


def episode(row, rollout, reward, tokenizer, number):
    data = {"idx": 0, "prompt": row["prompt"][0]["content"], "answer": row["answer"], "info": {"hint": row["hint"]}}
    task = {"type": "WorkshopTask", "data": data}
    nodes = [node(None, row["prompt"][0], rollout.prompt_ids, [False] * len(rollout.prompt_ids))]
    start = 0
    for sampled, run in groupby(rollout.action_mask):
        ids = rollout.completion_ids[start : start + len(list(run))]
        start += len(ids)
        text = tokenizer.decode(ids)
        message = {"role": "assistant" if sampled else "tool", "content": text}
        message |= {} if sampled else {"tool_call_id": f"call_{start}"}
        nodes.append(node(len(nodes) - 1, message, ids, [bool(sampled)] * len(ids)))
    trace = {
        "version": 1,
        "id": f"{number:032x}",
        "verifiers": {"version": "0.4.0"},
        "task": task,
        "agent": {"config": {}, "name": "agent", "trainable": True},
        "nodes": nodes,
        "rewards": {"answer": {"score": reward, "weight": 1.0}, "length": {"score": 0.5, "weight": 0.0}},
        "ok": True,
    }
    return {"id": f"{number:032x}", "env": {"id": "workshop"}, "task": task, "ok": True, "traces": [trace]}


def node(parent, message, ids, mask):
    made = {} if parent is None else {"parent": parent}
    logprobs = [-0.123456789012345678] * sum(mask)
    return made | {"message": message, "sampled": any(mask), "token_ids": ids, "mask": mask, "logprobs": logprobs}


def lines(episodes, **style):
    return "".join(json.dumps(row, ensure_ascii=False, **style) + "\n" for row in episodes).encode()
