"""How far a span's hidden states lie from those of the rollouts that ended otherwise (SHEAR).

Spans are windows of 100 action tokens, one every 25; the last one ends with the rollout and may be shorter.

    d_j = min over the spans k of the group's rollouts of the other outcome of  W₁(span j, span k)
    ω_t = max over the spans j that hold token t of  d_j / n̄                    n̄: mean ‖h‖ over the group's action tokens

h is the last hidden state once a token has been read. W₁ has Euclidean cost and uniform mass, by Sinkhorn's iteration.
The other outcome: above the group's mean reward, against below it; with rewards of 0 and 1 that is correct against wrong.
A rollout without an opposing one has ω = 1, and so has one that could not be scored (NaN), which opposes nobody.

Standing: second-hand, two accounts. Neither states Sinkhorn's ε (one implies about 4.5, for states of unknown size); ours is
relative to the cost, so that the scale of a model's states plays no part, and small enough to be near the exact distance.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import wide
from gear_rl.assignment.outcomes import sides
from gear_rl.scoring.body import Ids
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.states import states_after

SPAN, STRIDE = 100, 25
EPSILON = 0.01
"""Sinkhorn's ε as a share of the pair's mean cost; ours."""
ITERATIONS = 100
"""Of Sinkhorn; ours. With `EPSILON` that is within a few per cent of the exact distance."""
_MOST_NUMBERS = {"cpu": 1 << 19, "other": 1 << 24}  # of states and costs alive together; on a CPU what its cache holds
_SCALED = 9  # iterations between two returns to log space
_MARGIN = 1.02  # a pair is given up where its distance is surely further than this from what was found
_CANDIDATES = 4  # opposing spans that are tried at a time, nearest means first


def span_distance(
    scorer: Scorer, prompts: Ids, completions: Ids, action_mask: Tensor, rewards: Tensor, group_ids: Tensor
) -> Tensor:
    """(B, T), at least 0; 1 where there is nothing to compare with, and 0 where masked. rewards, group_ids (B,)."""
    return distances(states_after(scorer, prompts, completions, action_mask), action_mask, rewards, group_ids)


def distances(states: Tensor, action_mask: Tensor, rewards: Tensor, group_ids: Tensor) -> Tensor:
    """As `span_distance`, from the states (N, D) after the N action tokens of whole groups."""
    rollout = action_mask.nonzero()[:, 0].to(states.device)  # (N,)
    weight = torch.ones(len(rollout), device=states.device)
    above, below = (side.to(states.device) for side in sides(rewards, group_ids))
    group_ids, scored = group_ids.to(states.device), ~rewards.isnan().to(states.device)
    for group in group_ids[above].unique():  # a group with one side has the other
        members = (group_ids == group) & scored
        of_group = members[rollout]
        norm = states[of_group].float().norm(dim=1).mean()
        if not norm > 0:
            continue
        centre = states[of_group].float().mean(0)  # moving all states alike changes no distance, and rounds less
        places = [
            [(rollout == i).nonzero()[:, 0] for i in (members & side).nonzero()[:, 0].tolist()]
            for side in (above, below)
        ]
        windows = [[window for tokens in side for window in windows_of(tokens)] for side in places]
        if not all(windows):
            continue
        nearest = _nearest(states, centre, *windows)
        for side, distances in zip(windows, nearest, strict=True):
            covered = torch.cat(side).unique()
            weight[covered] = 0.0
            for window, distance in zip(side, distances / norm, strict=True):
                weight[window] = weight[window].clamp(min=distance)
    out = torch.zeros(action_mask.shape, device=action_mask.device)
    out[action_mask] = weight.to(out.device)
    return out


def windows_of(tokens: Tensor) -> list[Tensor]:
    """A rollout's action tokens (n,) → its spans, in order; together they hold every token."""
    starts = range(0, max(len(tokens) - SPAN, 0) + STRIDE, STRIDE) if len(tokens) else range(0)
    return [tokens[start : start + SPAN] for start in starts if start == 0 or start - STRIDE + SPAN < len(tokens)]


def _nearest(states: Tensor, centre: Tensor, left: list[Tensor], right: list[Tensor]) -> tuple[Tensor, Tensor]:
    """For each span of either side the distance to the nearest of the other: (len(left),), (len(right),).

    The distance of two spans is at least that of their means, so a pair whose means are further apart than the best found
    on both sides is never looked at; and one that Sinkhorn's potentials show to be further apart is given up.
    """
    means_left, means_right = (
        torch.stack([(states[w].float() - centre).mean(0) for w in side]) for side in (left, right)
    )
    bound = torch.cdist(means_left, means_right, compute_mode="donot_use_mm_for_euclid_dist")  # (L, R)
    best_left, best_right = bound.new_full((len(left),), torch.inf), bound.new_full((len(right),), torch.inf)
    open_pairs = torch.ones_like(bound, dtype=torch.bool)
    longest = max(map(len, [*left, *right]))
    most = _MOST_NUMBERS["cpu" if states.device.type == "cpu" else "other"]
    at_once = max(1, most // (longest * (2 * states.shape[1] + 4 * longest)))
    candidates = 1  # at first, so that there is something to compare with
    while True:
        open_pairs &= (bound < best_left[:, None]) | (bound < best_right[None])
        if not open_pairs.any():
            return best_left, best_right
        waiting = bound.masked_fill(~open_pairs, torch.inf)
        chosen = torch.zeros_like(open_pairs)
        for dim in (0, 1):
            few = waiting.topk(min(candidates, waiting.shape[dim]), dim=dim, largest=False).indices
            chosen.scatter_(dim, few, True)
        pairs = (chosen & open_pairs).nonzero()  # (P, 2)
        for some in pairs.split(at_once):
            found = sinkhorn(
                _stacked(states, centre, [left[i] for i in some[:, 0].tolist()], longest),
                _stacked(states, centre, [right[j] for j in some[:, 1].tolist()], longest),
                torch.maximum(best_left[some[:, 0]], best_right[some[:, 1]]),
            )
            best_left.scatter_reduce_(0, some[:, 0], found, "amin")
            best_right.scatter_reduce_(0, some[:, 1], found, "amin")
        open_pairs[pairs[:, 0], pairs[:, 1]] = False
        candidates = _CANDIDATES


def _stacked(states: Tensor, centre: Tensor, windows: list[Tensor], width: int) -> tuple[Tensor, Tensor]:
    """States (P, width, D) of windows, filled with 0, and which of them are real (P, width)."""
    filled = states.new_zeros(len(windows), width, states.shape[1], dtype=torch.float32)
    real = torch.zeros(len(windows), width, dtype=torch.bool, device=states.device)
    for n, window in enumerate(windows):
        filled[n, : len(window)], real[n, : len(window)] = states[window].float() - centre, True
    return filled, real


def sinkhorn(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], beyond: Tensor | None = None) -> Tensor:
    """W₁ of pairs of point clouds, each (P, n, D) with its real points (P, n) → (P,).

    Scalings of a plan are products of matrix and vector, far cheaper than sums of exponentials. They are put into the
    potentials, in log space, before they can overflow. `beyond` (P,): a pair that is surely further apart than this is given
    up, and infinite. Potentials with f_i + g_j ≤ cost_ij bound the distance from below; for a given f the best g is a minimum.
    """
    (x, real_x), (y, real_y) = left, right
    real = real_x[:, :, None] & real_y[:, None, :]
    cost = torch.cdist(x, y) * real  # (P, n, m)
    scale = cost.sum((1, 2)) / real.sum((1, 2))
    epsilon = (EPSILON * scale).clamp(min=torch.finfo(cost.dtype).tiny)[:, None, None]
    cost, epsilon = cost.to(wide(cost)), epsilon.to(wide(cost))
    a, b = (side / side.sum(1, keepdim=True) for side in (real_x.to(cost.dtype), real_y.to(cost.dtype)))  # (P, n), (P, m)
    kernel = (-cost / epsilon).masked_fill_(~real, -torch.inf)
    f = (a.log() - kernel.logsumexp(2)).where(real_x, 0.0)
    g = (b.log() - (kernel + f[:, :, None]).logsumexp(1)).where(real_y, 0.0)
    found, pairs = cost.new_full((len(cost),), torch.inf), torch.arange(len(cost), device=cost.device)
    done = 1
    while len(pairs):
        plan = (kernel + f[:, :, None]).add_(g[:, None, :]).exp_()  # its columns sum to b
        if done == ITERATIONS:
            found[pairs] = (plan * cost).sum((1, 2)) / plan.sum((1, 2))
            break
        turned = plan.transpose(1, 2).contiguous()  # row vectors are the faster ones
        u, v = torch.ones_like(a), torch.ones_like(b)
        for _ in range(min(_SCALED, ITERATIONS - done)):
            u = (a / torch.bmm(v[:, None, :], turned)[:, 0]).where(real_x, 1.0)
            v = (b / torch.bmm(u[:, None, :], plan)[:, 0]).where(real_y, 1.0)
            done += 1
        f, g = f + u.log(), g + v.log()
        if beyond is not None:
            best = -(kernel + f[:, :, None]).amax(1).where(real_y, 0.0)  # (P, m) in units of ε
            least = epsilon[:, 0, 0] * ((a * f).sum(1) + (b * best).sum(1))
            near = least <= _MARGIN * beyond
            if not near.all():
                pairs, beyond, cost, epsilon, kernel = pairs[near], beyond[near], cost[near], epsilon[near], kernel[near]
                a, b, f, g, real_x, real_y = a[near], b[near], f[near], g[near], real_x[near], real_y[near]
    return found.float()
