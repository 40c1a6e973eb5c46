"""An engine of forty lines: REINFORCE with token advantages, on gear-rl's own step. No TRL."""

from __future__ import annotations

import json

import torch

from gear_rl.assignment.baselines import relative_to_group
from gear_rl.engines.step import CreditStep
from gear_rl.methods import method
from gear_rl.scoring.padding import padded
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.from_verdicts import VerdictKnowledge
from gear_rl.signals.providers import Reader
from gear_rl.signals.sampled import Sampled
from gear_rl.signals.sources import Sources
from gear_rl.training.rollouts import RunRecorder, TaskSampler


class PlainTrainer:
    def __init__(self, config, folder, task, model, tokenizer, writer, say):
        options, chosen = config.train, method(config.credit, **config.credit_options)
        self.policy, self.options, self.folder, self.steps_taken = model, options, folder, 0
        self.rows = task.rows("train", options.steps * options.prompts, config.seed)
        self.sampler = TaskSampler(task, tokenizer, options.temperature, options.precision)
        knowledge = VerdictKnowledge(task, self.rows[0], chosen, tokenizer)
        sources = Sources(hint="hint", hint_template=task.hint_template, answer="answer", knowledge=knowledge)
        scorer, teacher = Scorer(model, options.temperature), Teacher(model, "live")
        reader = Reader(scorer, teacher, tokenizer, sources, self.sampler.tokenize, chosen.name)
        self.step = CreditStep(chosen, reader, recorder=RunRecorder(writer, tokenizer, options.record_every))
        self.optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate)

    def train(self, resume_from_checkpoint=None):
        while self.steps_taken < self.options.steps:
            first = self.steps_taken * self.options.prompts
            rows = [r for r in self.rows[first : first + self.options.prompts] for _ in range(self.options.generations)]
            scored = self.step(self.sampled(rows), self.steps_taken)
            self.optimizer.zero_grad()
            self.loss(scored).backward()
            self.optimizer.step()
            self.steps_taken += 1
            self.step.after_step(self.steps_taken)
            with open(self.folder.metrics, "a") as file:
                file.write(json.dumps({"step": self.steps_taken, **scored.metrics}) + "\n")

    def sampled(self, rows):
        out = self.sampler.sample(rows, self.policy)
        rewards = torch.tensor([v.reward for v in self.sampler.verdicts])
        groups = torch.arange(len(rows)) // self.options.generations
        return Sampled(
            rows=rows, prompts=[row["prompt"] for row in rows], prompt_ids=out["prompt_ids"],
            completion_ids=out["completion_ids"], token_ids=padded(out["completion_ids"], torch.long),
            action_mask=padded(out["env_mask"], torch.bool), rewards=rewards, group_ids=groups,
            advantages=relative_to_group(rewards, groups).float(), verdicts=self.sampler.verdicts,
        )  # fmt: skip

    def loss(self, scored):
        """−Σ A_t log p_t / number of tokens, one rollout at a time."""
        total = 0.0
        for prompt, ids, advantages in zip(
            scored.sampled.prompt_ids, scored.sampled.completion_ids, scored.credit.advantages, strict=True
        ):
            logits = self.policy(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
            chosen = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
            total = total - (advantages[: len(ids)] * chosen).sum()
        return total / scored.sampled.action_mask.sum()


def build_trainer(config, folder, task, model, tokenizer, writer, say):
    return PlainTrainer(config, folder, task, model, tokenizer, writer, say)
