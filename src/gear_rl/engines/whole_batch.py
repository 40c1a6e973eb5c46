"""The batch of all processes, from what each of them sampled.

Groups may span processes, and some methods compare rollouts of the whole batch. So hints are chosen, credit assigned and
metrics taken over all of it, in every process alike; only the model reads this process's own rollouts. The result does not
depend on the number of processes. Each process holds the batch's tokens and signals: about 10 bytes per token and signal.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.engines.ranks import Ranks
from gear_rl.signals.hinted import Hinted
from gear_rl.signals.sampled import Sampled


def whole_batch(sampled: Sampled, ranks: Ranks) -> tuple[Sampled, slice]:
    """The rollouts of all processes, and which of them are this one's."""
    if ranks.size == 1:
        return sampled, slice(None)
    s = sampled
    everyone = ranks.objects((s.rows, s.prompts, s.prompt_ids, s.completion_ids, s.verdicts))
    rows, prompts, prompt_ids, completion_ids, verdicts = zip(*everyone, strict=True)
    first = sum(map(len, rows[: ranks.index]))
    whole = Sampled(
        rows=_joined(rows),
        prompts=_joined(prompts),
        prompt_ids=_joined(prompt_ids),
        completion_ids=_joined(completion_ids),
        token_ids=ranks.rows(s.token_ids),
        action_mask=ranks.rows(s.action_mask),
        rewards=ranks.rows(s.rewards),
        group_ids=ranks.rows(s.group_ids),
        advantages=None if s.advantages is None else ranks.rows(s.advantages),
        channels={name: ranks.rows(s.channels[name]) for name in sorted(s.channels)},
        verdicts=None if s.verdicts is None else _joined(verdicts),
        trained=None if s.trained is None else ranks.rows(s.trained),
    )
    return whole, slice(first, first + len(s))


def whole_hinted(hinted: Hinted | None, ranks: Ranks) -> Hinted | None:
    if hinted is None or ranks.size == 1:
        return hinted
    everyone = ranks.objects((hinted.texts, hinted.prompt_ids))
    texts, prompt_ids = (_joined(parts) for parts in zip(*everyone, strict=True))
    return Hinted(texts, prompt_ids, [i for i, text in enumerate(texts) if not text])


def own_rollouts(rollouts: Rollouts, credit: Credit, mine: slice, width: int) -> tuple[Rollouts, Credit]:
    """This process's part of the batch: its rows, as wide as it sampled them."""
    part = (mine, slice(0, width))
    given, ids, trained = rollouts.advantages, rollouts.token_ids, rollouts.trained
    own = replace(
        rollouts,
        action_mask=rollouts.action_mask[part],
        rewards=rollouts.rewards[mine],
        group_ids=rollouts.group_ids[mine],
        advantages=None if given is None else given[mine],
        token_ids=None if ids is None else ids[part],
        signals={name: signal[part] for name, signal in rollouts.signals.items()},
        channels={name: values[mine] for name, values in rollouts.channels.items()},
        trained=None if trained is None else trained[mine],
    )
    return own, replace(credit, **{name: tensor[part] for name, tensor in vars(credit).items() if tensor is not None})


def _joined(parts: Any) -> list:
    return list(chain.from_iterable(parts))
