"""How far the final answer moves when a token is hidden: counterfactual masking (OAR-P).

    saliency_mask_t = KL( P₀ ‖ P_t )        P = softmax of the mean of the logits over the answer's tokens

P₀ reads the rollout as it is, P_t with token t hidden. A hidden token stays in its place, and nothing behind it can attend
to it. OAR's code puts the padding id there instead. Ours departs because most causal models have never read that id: its
untrained embedding moves the answer by itself, and some models have none.

It costs one reading of the rollout per hidden token, so there is a *budget* (ours): with more action tokens than that,
neighbouring ones are hidden together, in runs of equal length, and each token gets the divergence of its run. Every token
is hidden exactly once either way; nothing is interpolated or left at 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gear_rl.errors import GearError
from gear_rl.scoring.answers import AnswerReading, batches_of, mean_states, over_actions, refuse_beyond_context
from gear_rl.scoring.backing_off import backing_off
from gear_rl.scoring.body import evaluating
from gear_rl.scoring.divergence import token_divergence
from gear_rl.scoring.head import Head
from gear_rl.scoring.padding import padded
from gear_rl.scoring.weights import Weights

BUDGET = 64


@dataclass(frozen=True)
class _Row:
    """One reading of a rollout, with some of its tokens hidden, or none."""

    rollout: int
    reading: AnswerReading
    hidden: list[int]
    """tokens of the completion"""


@backing_off
def masking_divergence(
    model: nn.Module | Weights,
    readings: list[AnswerReading | None],
    action_mask: Tensor,
    temperature: float = 1.0,
    budget: int = BUDGET,
) -> Tensor:
    """(B, T), at least 0, and 0 where masked. None: a rollout whose answer has no place; all its tokens get 0."""
    if budget < 1:
        raise GearError(f"mask_budget={budget}: at least one token has to be hidden.")
    rows: list[_Row] = []
    for i, reading in enumerate(readings):
        if reading is not None:
            spoken = action_mask[i, : reading.cut].nonzero()[:, 0].tolist()
            rows += [_Row(i, reading, run) for run in [[], *runs_of(spoken, budget)]]  # nothing hidden: the first
    weights = Weights.of(model)
    refuse_beyond_context(weights.model, [row.reading.ids for row in rows], "a rollout with its answer")
    with evaluating(weights.model):
        divergence = _divergences(weights.head(), rows, _states(weights, rows, action_mask.device), temperature)
    found = {i: torch.zeros(action_mask.shape[1], device=action_mask.device) for i in {row.rollout for row in rows}}
    for row, value in divergence:
        found[row.rollout][row.hidden] = value
    return over_actions(readings, action_mask, lambda i, reading: found[i][: reading.cut])


def runs_of(tokens: list[int], budget: int) -> list[list[int]]:
    """At most `budget` runs of `tokens`, in order, whose lengths differ by one at most."""
    count = min(budget, len(tokens))
    return [tokens[len(tokens) * r // count : len(tokens) * (r + 1) // count] for r in range(count)]


def _states(weights: Weights, rows: list[_Row], device: torch.device) -> list[Tensor]:
    """The states that predict the answer's tokens: (A, D) for each row."""
    body, states = weights.body, [torch.empty(0)] * len(rows)
    sequences = [row.reading.ids for row in rows]
    for batch in batches_of(weights, sequences):
        if not batch:
            body.idle(device)
            continue
        ids = padded([sequences[b] for b in batch], device=device)
        seen = torch.ones_like(ids)
        for n, b in enumerate(batch):
            seen[n, [len(rows[b].reading.prompt) + token for token in rows[b].hidden]] = 0
        positions = torch.arange(ids.shape[1], device=device).expand_as(ids)  # by place, not by what can be seen
        read = body(input_ids=ids, attention_mask=seen, position_ids=positions, use_cache=False).last_hidden_state
        for n, b in enumerate(batch):
            states[b] = read[n, list(rows[b].reading.before_answer)]
    return states


def _divergences(head: Head, rows: list[_Row], states: list[Tensor], temperature: float) -> list[tuple[_Row, Tensor]]:
    """For each row with something hidden KL(nothing hidden ‖ this hidden) of the answer's distribution."""
    whole = {row.rollout: state for row, state in zip(rows, states, strict=True) if not row.hidden}
    pairs = [(row, state) for row, state in zip(rows, states, strict=True) if row.hidden]
    if not pairs:
        return []
    intact, moved = (
        torch.stack([mean_states(state, [row.reading])[0] for row, state in side]).to(head.weight.dtype)
        for side in ([(row, whole[row.rollout]) for row, _ in pairs], pairs)
    )
    tokens = torch.zeros(len(pairs), dtype=torch.long, device=intact.device)  # whose log-probability is not asked for
    kl = token_divergence(intact, moved, head, tokens, temperature=temperature).reverse_kl
    return [(row, value) for (row, _), value in zip(pairs, kl, strict=True)]
