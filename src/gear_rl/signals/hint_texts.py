"""What the teacher reads beside the prompt, as text: ground truth, another problem's, a sibling's success, feedback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.signals.sampled import Sampled
from gear_rl.signals.sources import Sources, text_of


def hint_texts(kind: str, sources: Sources, sampled: Sampled, tokenizer: Any, method: str) -> list[str]:
    """One text per rollout; "" where there is nothing to read, which leaves the teacher's prompt as the student's.

    kind: "own", "other", "sibling" or "feedback" (`gear_rl.methods.Method.hint`). `method`: its name, for messages.
    """
    if kind in ("own", "other"):
        given = sources.wrong_hint if kind == "other" and sources.wrong_hint is not None else sources.hint
        assert given is not None
        texts = [text_of(given, row, i, "ground truth for its hint", method) for i, row in enumerate(sampled.rows)]
        return texts if kind == "own" or given is sources.wrong_hint else other_hints(texts)
    feedback = _feedback(sources, sampled)
    if kind == "feedback":
        return [text or "" for text in feedback]
    texts = []
    for i, j in enumerate(siblings(sampled.rewards, sampled.group_ids)):
        if j is None:
            texts.append(feedback[i] or "")
            continue
        text = sources.knowledge.sibling_hint(sampled, i, j, feedback[i])
        if text is None:
            sampled_ids = sampled.token_ids[j][sampled.action_mask[j]].tolist()
            said = tokenizer.decode(sampled_ids, skip_special_tokens=True).strip()
            text = "\n\n".join(filter(None, [said, feedback[i]]))
        texts.append(text)
    return texts


def siblings(rewards: Tensor, groups: Tensor) -> list[int | None]:
    """For each rollout a successful one of its group other than itself, or None. rewards, groups (B,).

    Successful: above the group's mean reward. Among several, the next one in the batch, so that not all read the same.
    """
    chosen: list[int | None] = [None] * len(rewards)
    for group in groups.unique().tolist():
        members = (groups == group).nonzero()[:, 0]
        of_group = rewards[members]
        won = members[of_group > of_group.nanmean()].tolist()  # NaN: not scored, and no example to anyone
        for i in members.tolist():
            later = [j for j in won if j > i]
            earlier = [j for j in won if j < i]
            chosen[i] = next(iter([*later, *earlier]), None)
    return chosen


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


def _feedback(sources: Sources, sampled: Sampled) -> list[str | None]:
    said = list(sources.knowledge.feedback(sampled))
    if len(said) != len(sampled) or not all(text is None or isinstance(text, str) for text in said):
        raise GearError(f"feedback must give a text or None for each of {len(sampled)} rollouts.")
    return said
