"""Test only: a third module for verl to load. Keeps what a record rounds: signals and advantages of each step, exact."""

from __future__ import annotations

import os
from dataclasses import asdict

import torch

from gear_rl.engines.verl.trainer import CreditTrainer

FOLDER = "GEAR_TEST_EXACT"


def _exact(self, scored):
    sampled = scored.sampled
    content = {
        "prompts": sampled.prompt_ids, "completions": sampled.completion_ids,
        "hinted": scored.hinted.prompt_ids if scored.hinted else None, "action_mask": sampled.action_mask,
        "token_ids": sampled.token_ids, "rewards": sampled.rewards, "group_ids": sampled.group_ids,
        "group_advantages": sampled.advantages, "signals": dict(scored.rollouts.signals),
        "advantages": scored.credit.advantages, "verdicts": [asdict(v) for v in sampled.verdicts or ()],
    }  # fmt: skip
    torch.save(content, f"{os.environ[FOLDER]}/step-{scored.step}.pt")


CreditTrainer._record = _exact
