"""From a signal to weights that keep each rollout's advantage, and to token advantages: equations (3) and (7)–(9).

All tensors are packed (B, L), per-rollout ones (B,): see `gear_rl.assignment.rollouts.ActionTokens`. The equations are in
`gear_rl.methods.gear`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import sort_within_groups, wide
from gear_rl.assignment.rollouts import ActionTokens


def normalise(signal: Tensor, actions: ActionTokens, quantile: float, floor: float) -> Tensor:
    """(3) min(1, x_t / max(Q(x), floor)), Q the rollout's own quantile → (B, L).

    That the signals are normalised is known; by quantile and with a floor is ours. The floor keeps a rollout that
    agrees with its teacher everywhere uniform, where dividing by its own maximum would blow noise up to 1. A divergence
    below 0 is rounding, and counts as 0.
    """
    level = signal.amax(1) if quantile == 1.0 else row_quantile(signal, actions, quantile)  # (B,)
    return (signal / level.clamp(min=floor)[:, None]).clamp_(0.0, 1.0)


def row_quantile(values: Tensor, actions: ActionTokens, quantile: float) -> Tensor:
    """Quantile of each row over its action tokens, linear between neighbours; 0 for a row without any → (B,)."""
    ascending = values.masked_fill(~actions.valid, float("inf")).sort(dim=1).values  # filling goes last
    place = (actions.counts - 1).clamp(min=0).to(wide(values)) * quantile  # (B,)
    low = place.floor().long()[:, None]
    high = place.ceil().long()[:, None]
    below, above = ascending.gather(1, low).squeeze(1), ascending.gather(1, high).squeeze(1)
    level = below + (above - below) * (place - low.squeeze(1)).to(values.dtype)
    return level.masked_fill(actions.counts == 0, 0.0)


def pooled_quantile(values: Tensor, included: Tensor, pools: Tensor, quantile: float) -> Tensor:
    """Quantile over the tokens of many rollouts, linear between neighbours → (B,): each rollout's own pool's.

    `values` and `included` (bool) are packed (B, L), `pools` (B,) says which rollouts share one. 0 for an empty pool.
    """
    _, row = pools.unique(return_inverse=True)
    pool = row[:, None].expand_as(values)[included]  # (M,)
    ordered = values[included]
    order = sort_within_groups(pool, ordered)
    ordered = ordered[order]  # pool after pool, each ascending
    sizes = torch.bincount(pool, minlength=int(row.max()) + 1)  # (P,)
    if ordered.numel() == 0:
        return values.new_zeros(len(pools))
    place = (sizes - 1).clamp(min=0).to(wide(values)) * quantile
    first = (sizes.cumsum(0) - sizes).clamp(max=ordered.numel() - 1)
    below, above = (ordered[first + part.long()] for part in (place.floor(), place.ceil()))
    level = below + (above - below) * (place - place.floor()).to(values.dtype)
    return level.masked_fill(sizes == 0, 0.0)[row]


def agreeing(divergence: Tensor, advantage: Tensor, teacher_minus_student: Tensor) -> Tensor:
    """(7, "consistent"), ours: D_t where outcome and teacher agree about the token that was sampled, else 0 → (B, L).

    They agree where sign(A_i) (log q_t(y_t) − log p_t(y_t)) > 0. Where A_i = 0 the outcome says nothing, and nothing is
    kept.
    """
    return torch.where(advantage.sign()[:, None] * teacher_minus_student > 0, divergence, 0.0)


def raw_weight(local_credit: Tensor, alpha: float | Tensor, rho_min: float, rho_max: float) -> Tensor:
    """(7) ρ_t = clip(1 + α σ_i c_t, ρ_min, ρ_max) → (B, L). Ours. `alpha` is α σ_i, a number or (B, 1)."""
    return (local_credit * alpha).add_(1.0).clamp_(rho_min, rho_max)


def preserve_mass(rho: Tensor, actions: ActionTokens) -> Tensor:
    """(8) w_t = ρ_t / mean(ρ) → (B, L). Known in aim, ours in form: Σ_t w_t = n_i, so a rollout keeps its advantage."""
    total = (rho * actions.valid).sum(1, dtype=wide(rho))  # exact for float32: L, the batch's longest, changes no bit
    mean = (total / actions.counts.clamp(min=1)).to(rho.dtype)
    return rho / mean.where(actions.counts > 0, 1.0)[:, None]


def token_advantages(advantage: Tensor, weights: Tensor, mix: float) -> Tensor:
    """(9) A_{i,t} = A_i ((1 − λ) + λ w_t) → (B, L). Ours. Written so that w = 1 gives A_i bit for bit for every λ."""
    return advantage[:, None] * (1.0 + mix * (weights - 1.0))
