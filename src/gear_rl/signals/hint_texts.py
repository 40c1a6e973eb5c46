"""What the teacher reads beside the prompt, as text: ground truth, another problem's, a sibling's success, feedback."""

from __future__ import annotations

import json
from typing import Any

from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.signals.sources import Sampled, Sources, text_of


def hint_texts(method: Method, sources: Sources, sampled: Sampled, prompts: list, tokenizer: Any) -> list[str]:
    """One text per rollout; "" where there is nothing to read, which leaves the teacher's prompt as the student's."""
    if method.hint in ("own", "other"):
        assert sources.hint is not None
        texts = [
            text_of(sources.hint, row, i, "ground truth for its hint", method.name)
            for i, row in enumerate(sampled.rows)
        ]
        return texts if method.hint == "own" else other_hints(texts, prompts)
    told = _feedback(sources, sampled)
    if method.hint == "feedback":
        return [text or "" for text in told]
    texts = []
    for i, (row, j) in enumerate(zip(sampled.rows, siblings(sampled.rewards, sampled.groups), strict=True)):
        if j is None:
            texts.append(told[i] or "")
        elif sources.sibling is not None:
            texts.append(sources.sibling(row, sampled.completions[j], told[i]))
        else:
            spoken = sampled.ids[j][sampled.actions[j]].tolist()
            said = tokenizer.decode(spoken, skip_special_tokens=True).strip()
            texts.append("\n\n".join(filter(None, [said, told[i]])))
    return texts


def siblings(rewards: Tensor, groups: Tensor) -> list[int | None]:
    """For each rollout a successful one of its group other than itself, or None. rewards, groups (B,).

    Successful: above the group's mean reward. Among several, the next one in the batch, so that not all read the same.
    """
    chosen: list[int | None] = [None] * len(rewards)
    for group in groups.unique().tolist():
        members = (groups == group).nonzero()[:, 0]
        of_group = rewards[members]
        won = members[of_group > of_group.mean()].tolist()
        for i in members.tolist():
            later = [j for j in won if j > i]
            earlier = [j for j in won if j < i]
            chosen[i] = next(iter([*later, *earlier]), None)
    return chosen


def other_hints(hints: list[str], prompts: list) -> list[str]:
    """Each rollout gets the hint of the next prompt in the batch: a real hint, for another problem."""
    keys = [json.dumps(p, sort_keys=True) if not isinstance(p, str) else p for p in prompts]
    order = list(dict.fromkeys(keys))
    if len(order) < 2:
        raise GearError(
            "wrong_hint needs two different prompts in a generation batch: raise per_device_train_batch_size or "
            "gradient_accumulation_steps."
        )
    own = dict(zip(keys, hints, strict=True))
    return [own[order[(order.index(key) + 1) % len(order)]] for key in keys]


def _feedback(sources: Sources, sampled: Sampled) -> list[str | None]:
    if sources.feedback is None:
        return [None] * len(sampled.rows)
    told = list(sources.feedback(sampled.rows, sampled.completions))
    if len(told) != len(sampled.rows) or not all(text is None or isinstance(text, str) for text in told):
        raise GearError(f"feedback= must give a text or None for each of {len(sampled.rows)} rollouts.")
    return told
