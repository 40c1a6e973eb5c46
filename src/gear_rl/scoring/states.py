"""Hidden states themselves, read as scoring reads them: prompts shared where that is proven, in bounded passes."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from gear_rl.scoring.backing_off import backing_off
from gear_rl.scoring.body import Ids, evaluating
from gear_rl.scoring.checks import checked
from gear_rl.scoring.packing import KeptPrompts
from gear_rl.scoring.reading import Asked
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher


@backing_off
def states_before(
    scorer: Scorer, prompts: Ids, completions: Ids | Tensor, action_mask: Tensor, teacher: Teacher | None = None
) -> Tensor:
    """The last hidden state before each True of `action_mask` (B, T), which predicts that token: (N, D), in their order.

    `teacher`: read with its weights. None: with the policy's.
    """
    known: dict[tuple[int, ...], list[int]] = {}
    prompts = [known.setdefault(tuple(prompt), prompt) for prompt in prompts]  # equal ones as one object: read once
    ids, mask, counts = checked(scorer._body, {"reader": prompts}, completions, action_mask)
    place = (mask.flatten().cumsum(0) - 1).view(mask.shape).to(ids.device)  # of each True among all
    states: Tensor | None = None
    with evaluating(scorer.model), teacher.in_place() if teacher is not None else nullcontext():
        packed, batches = scorer._batches([[prompts]], counts)
        kept = KeptPrompts()
        for batch in scorer._with_idle(batches):
            if batch is None:
                scorer._body.idle(ids.device)
                continue
            kept = KeptPrompts() if batch.first else kept
            rows = torch.tensor(batch.rows)
            asked = Asked.of(ids[rows.to(ids.device)], mask[rows])
            memory = kept if batch.more or not batch.first else None
            (read,) = scorer._hidden([[prompts[row] for row in batch.rows]], asked, packed, memory)
            if states is None:
                states = read.new_empty(int(mask.sum()), read.shape[1])
            states[place[rows.to(ids.device)[asked.rollout], asked.token]] = read
    if states is None:  # nothing is asked for
        embeddings = scorer._body.get_input_embeddings()
        return torch.empty(0, embeddings.embedding_dim, dtype=embeddings.weight.dtype, device=ids.device)
    return states


def states_after(scorer: Scorer, prompts: Ids, completions: Ids, action_mask: Tensor) -> Tensor:
    """The last hidden state *at* each True of `action_mask` (B, T), once the model has read that token: (N, D)."""
    longer = torch.cat([torch.zeros_like(action_mask[:, :1]), action_mask], dim=1)
    return states_before(scorer, prompts, [[*ids, 0] for ids in completions], longer)  # what stands last is not read
