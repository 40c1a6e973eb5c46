"""How likely a model finds the reference answer: before the first turn, and after each (IGPO; TRACE with frozen weights).

After turn k the answer is read behind everything up to where turn k + 1 begins, the environment's reply included: what a
turn is worth is what it brought back. Mean log-probability over the answer's tokens, at the policy's temperature.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.scoring.answers import Answer, refuse_beyond_context, turn_starts
from gear_rl.scoring.body import Ids
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher

SIGNALS = ("answer_logprob", "answer_logprob_start")
FROZEN = tuple(f"frozen_{name}" for name in SIGNALS)
"""The same, read with the weights that training began with."""


def answer_logprobs(
    scorer: Scorer,
    prompts: Ids,
    completions: Ids,
    action_mask: Tensor,
    answers: list[Answer],
    reader: Teacher | None = None,
) -> dict[str, Tensor]:
    """→ "answer_logprob" and "answer_logprob_start", each (B, T), 0 where masked. `reader`: whose weights read;
    None: the policy's.

    The first is constant over each turn: the value after it. After the last turn nothing is read (the answer was given
    then): it keeps the value before it. Equal contexts, such as a group's prompt, are read once.
    """
    starts = turn_starts(action_mask)
    number: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    contexts: Ids = []
    tails: list[Answer] = []
    read: list[list[int]] = []  # per rollout, per turn: which reading
    for prompt, ids, begins, answer in zip(prompts, completions, starts, answers, strict=True):
        row = []
        for begin in begins.nonzero()[:, 0].tolist():
            context = [*prompt, *ids[:begin]]
            place = number.setdefault((tuple(context), tuple(answer.ids)), len(contexts))
            if place == len(contexts):
                contexts.append(context)
                tails.append(answer)
            row.append(place)
        read.append(row)
    values = _mean_logprobs(scorer, contexts, tails, action_mask.device, reader or Teacher(scorer.model))

    turns = max([1, *map(len, read)])
    after, start = torch.zeros(len(read), turns), torch.zeros(len(read), 1)
    for i, row in enumerate(read):
        if row:
            start[i] = values[row[0]]
            after[i, : len(row)] = values[[*row[1:], row[-1]]]
    turn = (starts.cumsum(1) - 1).clamp(min=0)
    after, start = after.to(action_mask.device), start.to(action_mask.device)
    return {"answer_logprob": after.gather(1, turn) * action_mask, "answer_logprob_start": start * action_mask}


def _mean_logprobs(
    scorer: Scorer, contexts: Ids, answers: list[Answer], device: torch.device, reader: Teacher
) -> Tensor:
    """(N,) on the CPU: of each answer behind its context."""
    if not contexts and not scorer.weights.sharded:
        return torch.zeros(0)
    rows = [[*context, *answer.ids] for context, answer in zip(contexts, answers, strict=True)]
    refuse_beyond_context(scorer.model, rows, "the reference answer behind a rollout")
    place = torch.arange(max((len(a.ids) for a in answers), default=1))
    first, end = torch.tensor([[a.unscored, len(a.ids)] for a in answers], dtype=torch.long).view(-1, 2).T[:, :, None]
    scored = ((place >= first) & (place < end)).to(device)  # (N, A)
    read = scorer.score(contexts, contexts, [a.ids for a in answers], scored, reader, ("teacher_logprob",))
    return (read["teacher_logprob"].sum(1) / scored.sum(1)).cpu()
