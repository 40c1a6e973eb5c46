"""What a teacher reads beside the prompt, as text: ground truth, another problem's, another rollout of the group, feedback, how
it all ended, and what went wrong elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from gear_rl.assignment.baselines import number_in_group
from gear_rl.assignment.outcomes import sides
from gear_rl.errors import GearError
from gear_rl.methods.base import SIBLINGS
from gear_rl.signals.sampled import Sampled
from gear_rl.signals.sources import Sources, text_of

MOST_WRONG = 4
"""Wrong hints of a rollout, at most; RLCSD's K."""
MOST_STATE_TOKENS = 256
"""Tokens of each part of a final state, the last ones; ours."""


def hint_texts(
    kind: str,
    sources: Sources,
    sampled: Sampled,
    tokenizer: Any,
    method: str,
    feedback: Sequence[str | None] | None = None,
    success: float | None = None,
) -> list[str]:
    """One text per rollout; "" where there is nothing to read, which leaves the teacher's prompt as the student's.

    kind: `gear_rl.methods.Method.hint`, or "final_state". `method`: its name, for messages. `feedback`: what the environment
    said about each rollout, where the caller has asked for it already. `success`: `gear_rl.methods.Method.success_at`.
    """
    if kind == "final_state":
        return _final_states(sources, sampled, tokenizer)
    if kind in ("own", "other"):
        given = sources.wrong_hint if kind == "other" and sources.wrong_hint is not None else sources.hint
        assert given is not None
        texts = [text_of(given, row, i, "ground truth for its hint", method) for i, row in enumerate(sampled.rows)]
        return texts if kind == "own" or given is sources.wrong_hint else other_hints(texts)
    shown = siblings(sampled, success, kind == "any_sibling") if kind in SIBLINGS else [None] * len(sampled)
    texts = ["" if j is None else _rewritten(sources, sampled, tokenizer, i, j) for i, j in enumerate(shown)]
    if kind in ("feedback", "sibling_or_feedback"):
        feedback = feedback_of(sources, sampled) if feedback is None else feedback
        texts = [text or said or "" for text, said in zip(texts, feedback, strict=True)]
    return texts


def wrong_hint_texts(
    sources: Sources, sampled: Sampled, tokenizer: Any, method: str, success: float | None = None
) -> list[list[str]]:
    """For each rollout what teachers that are to be wrong read, up to `MOST_WRONG` texts; none where there is nothing.

    The data's wrong hint where there is one. Else unsuccessful rollouts of the same group (`success` as in `hint_texts`; None:
    a reward below its mean), never itself, the next ones in the batch; rewritten as a successful sibling is (RLCSD's form; CEPO
    shows the wrong answer alone).
    """
    if sources.wrong_hint is not None:
        what = "wrong hint"
        return [[text_of(sources.wrong_hint, row, i, what, method)] for i, row in enumerate(sampled.rows)]
    _, below = _sides(sampled, success)
    texts = []
    for i in range(len(sampled)):
        wrong = (below & (sampled.group_ids == sampled.group_ids[i])).nonzero()[:, 0].tolist()
        chosen = [j for j in wrong if j > i] + [j for j in wrong if j < i]
        rewritten = (_rewritten(sources, sampled, tokenizer, i, j) for j in chosen[:MOST_WRONG])
        texts.append([text for text in rewritten if text])
    return texts


def _rewritten(sources: Sources, sampled: Sampled, tokenizer: Any, i: int, j: int) -> str:
    """Rollout j as a hint for rollout i: as the task tells it, or what the policy said."""
    text = sources.knowledge.sibling_hint(sampled, i, j)
    if text is None:
        sampled_ids = sampled.token_ids[j][sampled.action_mask[j]].tolist()
        text = tokenizer.decode(sampled_ids, skip_special_tokens=True).strip()
    return text


def _final_states(sources: Sources, sampled: Sampled, tokenizer: Any) -> list[str]:
    """As the task tells it; else the environment's last message and the policy's last turn, in the order they were said."""
    states = list(sources.knowledge.final_states(sampled))
    if len(states) != len(sampled) or not all(text is None or isinstance(text, str) for text in states):
        raise GearError(f"final_states must give a text or None for each of {len(sampled)} rollouts.")
    texts = []
    for i, (text, ids) in enumerate(zip(states, sampled.completion_ids, strict=True)):
        if text is None:
            acted = sampled.action_mask[i, : len(ids)].tolist()
            runs = [list(run) for _, run in groupby(range(len(ids)), key=acted.__getitem__)]  # of one speaker each
            last = [[ids[t] for t in run[-MOST_STATE_TOKENS:]] for run in runs[-2:]]
            parts = (tokenizer.decode(run, skip_special_tokens=True).strip() for run in last)
            text = "\n\n".join(filter(None, parts))
        texts.append(text)
    return texts


def siblings(sampled: Sampled, success: float | None = None, any_where_none: bool = False) -> list[int | None]:
    """For each rollout a successful one of its group other than itself, or None.

    Successful: a reward of at least `success`; None: above the group's mean. Among several, the next one in the batch, so that
    not all read the same. `any_where_none` is SC-GRPO's rule: any other rollout where nobody was successful, and None where one
    or all were. A rollout that could not be scored, or that says nothing, is never shown.
    """
    groups, (shown, _) = sampled.group_ids, _sides(sampled, success)
    if any_where_none:
        able = _able(sampled)
        won, of = number_in_group(shown, groups), number_in_group(able, groups)
        shown = torch.where(won == 0, able, shown & (won > 1) & (won < of))
    chosen: list[int | None] = []
    for i in range(len(groups)):
        found = (shown & (groups == groups[i])).nonzero()[:, 0].tolist()
        chosen.append(next(iter([*(j for j in found if j > i), *(j for j in found if j < i)]), None))
    return chosen


def _able(sampled: Sampled) -> Tensor:
    """(B,) bool: scored, and with tokens to show."""
    return ~sampled.rewards.isnan() & sampled.action_mask.any(1)


def _sides(sampled: Sampled, success: float | None) -> tuple[Tensor, Tensor]:
    """(B,) bool each: the successful rollouts, and the unsuccessful ones, of those that can be shown."""
    rewards, able = sampled.rewards, _able(sampled)
    above, below = sides(rewards, sampled.group_ids) if success is None else (rewards >= success, rewards < success)
    return above & able, below & able


def other_hints(hints: Sequence[str]) -> list[str]:
    """For each rollout the next *different* hint of the batch: a real hint, for another problem.

    Hints are compared, not prompts: two problems may have the same answer, and a problem must not get its own back."""
    order = list(dict.fromkeys(hints))
    if len(order) < 2:
        raise GearError(
            "a wrong hint is another problem's, but all problems here have the same ground truth. In training, raise the "
            "number of prompts per step (train.prompts, or per_device_train_batch_size × gradient_accumulation_steps)."
        )
    following = dict(zip(order, [*order[1:], order[0]], strict=True))
    return [following[hint] for hint in hints]


def feedback_of(sources: Sources, sampled: Sampled) -> list[str | None]:
    said = list(sources.knowledge.feedback(sampled))
    if len(said) != len(sampled) or not all(text is None or isinstance(text, str) for text in said):
        raise GearError(f"feedback must give a text or None for each of {len(sampled)} rollouts.")
    return said
