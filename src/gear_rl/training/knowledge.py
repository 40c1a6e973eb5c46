"""Who tells a method what only the task, further rollouts or a judge can tell."""

from __future__ import annotations

from functools import partial
from typing import Any

from gear_rl.chat.messages import Message
from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.sampling.answers import Answers, by_model
from gear_rl.signals.from_verdicts import VerdictKnowledge
from gear_rl.tasks.base import Row, Task
from gear_rl.training.config import TrainConfig, TrainOptions
from gear_rl.training.judged_turns import JUDGED_TURN, Ask, JudgedTurns, endpoint_judge
from gear_rl.training.measured_values import MEASURED, MeasuredValues
from gear_rl.training.rollouts import TaskSampler

FOUND_HERE = (*MEASURED, JUDGED_TURN)
"""Signals that no verdict holds and that `gear train` gets by itself."""


def refuse_elsewhere(config: TrainConfig, method: Method, processes: int) -> None:
    """They come from the policy's own weights, in one process."""
    needed = [name for name in method.needs if name in FOUND_HERE]
    if needed and (processes > 1 or config.train.sampler == "vllm"):
        raise GearError(
            f"{config.credit} needs {needed[0]}, which is got in one process with the policy's own weights: run it without "
            "torchrun and with train.sampler=own."
        )
    options = config.train
    if JUDGED_TURN in needed and options.judge != "policy":
        _endpoint(options)


def knowledge_for(
    method: Method, task: Task, row: Row, tokenizer: Any, sampler: TaskSampler, options: TrainOptions
) -> VerdictKnowledge:
    if set(MEASURED) & set(method.needs):
        return MeasuredValues(task, row, method, tokenizer, sampler, options.value_continuations)
    if JUDGED_TURN in method.needs:
        ask = partial(_ask_policy, sampler, tokenizer, options.judge_tokens)
        return JudgedTurns(task, row, method, tokenizer, ask if options.judge == "policy" else _endpoint(options))
    return VerdictKnowledge(task, row, method, tokenizer)


def _ask_policy(sampler: TaskSampler, tokenizer: Any, most: int, questions: list[list[Message]]) -> Answers:
    return by_model(sampler.model, tokenizer, questions, most)


def _endpoint(options: TrainOptions) -> Ask:
    if not options.judge.startswith(("http://", "https://")):
        raise GearError(f"train.judge={options.judge!r}: write policy, or an endpoint (http://HOST:PORT/v1).")
    return endpoint_judge(options.judge, options.judge_model, options.judge_tokens)
