"""Short answers to single questions, greedy: by a model in this process, or by one behind an endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gear_rl.chat.endpoint import ContextFull, Endpoint
from gear_rl.chat.messages import Message
from gear_rl.chat.templates import end_tokens, tokenized_prompts
from gear_rl.limits import in_order
from gear_rl.models import context_of
from gear_rl.sampling.own_turns import OwnTurns
from gear_rl.sampling.turns import Request

AT_ONCE = 64
"""Questions in one batch."""
CONCURRENT = 8
"""Requests to an endpoint at once."""

Answers = list[str | None]
"""None: the question is longer than what the model reads."""


def by_model(model: Any, tokenizer: Any, questions: Sequence[list[Message]], most: int) -> Answers:
    """`most`: tokens of an answer."""
    room = context_of(model.config) - most
    answers: Answers = [None] * len(questions)
    for start in range(0, len(questions), AT_ONCE):
        part = range(start, min(start + AT_ONCE, len(questions)))
        prompts = dict(zip(part, tokenized_prompts(tokenizer, [questions[i] for i in part]), strict=True))
        fit = [i for i in part if len(prompts[i]) <= room]
        if not fit:
            continue
        turns = OwnTurns(model, end_tokens(model, tokenizer), temperature=0.0)
        turns.submit([Request(place, prompts[i], most) for place, i in enumerate(fit)])
        left = len(fit)
        while left:
            for turn in turns.finished():
                answers[fit[turn.rollout]] = tokenizer.decode(turn.tokens, skip_special_tokens=True)
                left -= 1
    return answers


def by_endpoint(endpoint: Endpoint, questions: Sequence[list[Message]], most: int) -> Answers:
    """A failure of the endpoint stops the run, as in `chat.endpoint`: it is no answer."""

    def ask(messages: list[Message]) -> str | None:
        try:
            return endpoint.chat(messages, temperature=0.0, max_tokens=most).text
        except ContextFull:
            return None

    return in_order(ask, questions, CONCURRENT)
