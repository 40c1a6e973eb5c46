"""CREST: advantages of single user requests, amplified a little where a hinted self agrees with their outcome."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import relative_to_group, wide
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments
from gear_rl.assignment.turns import Turns
from gear_rl.methods.base import STUDENT_AND_TEACHER, Hint, Method, Schedule, grid, option, to_credit
from gear_rl.methods.rlsd import evidence


class CREST(Method):
    """CREST: a token has the advantage of the user request that it answers, times φ_t.

        A_{i,k} = (R_{i,k} − mean_g R_{·,k}) / (std_g R_{·,k} + ε)         request k in all rollouts of the group
        Δ_t = (log q_t(y_t) − log p_t(y_t)) / 2                            w_t = clip(exp(sign(A) Δ_t), 1 ± 0.28)
        λ_t = clip(0.3 · 1[sign(A) Δ_t > 0] · (1 + 0.5 (2 σ(z_t) − 1)), 0, 0.3)
        φ_t = 1 + λ_t (w_t − 1)          A_{i,t} = A_{i,k} φ_t             z_t: surprisal, standardised over the rollout

    So φ lies between 1 and 1.084: CREST only amplifies. R_k is the sum of the turn rewards within request k; the outcome
    itself and advantages that an engine gives are not read. Requests must be the same in all rollouts of a group (sessions
    with a fixed list of them). It has no answer for rollouts that break off early: those that reach a request are compared
    with each other.
    """

    name = "crest"
    summary = "The advantage of each user request, amplified by up to 8 % where the hinted self agrees with it."
    paper = "CREST (Teach the Magnitude, Not the Direction), 2026"
    standing = "full text; ours: the std of z"
    needs = ("student_logprob", "teacher_logprob", "turn_reward", "request_ids")
    hint: Hint = "own"
    schedule = Schedule(teacher="base")
    cost = STUDENT_AND_TEACHER
    mass = "not kept: each token between 1 and 1.084 of its request's advantage"
    strength = grid(mix=(0.3, 1.0), clip=(0.28, 1.0))

    class Options(Method.Options):
        mix: float = option(0.3, at_least=0.0, at_most=1.0)
        """λ, the largest share of w that counts; 0 leaves the requests' advantages alone. Default: CREST's, constant."""
        clip: float = option(0.28, above=0.0, at_most=1.0)
        """How far w may be from 1. Default: CREST's."""
        tau: float = option(2.0, above=0.0)
        """τ, what the gap is divided by. Default: CREST's."""
        surprise: float = option(0.5, at_least=0.0, at_most=1.0)
        """ρ: how far an unsurprising token lowers λ; a surprising one cannot raise it. Default: CREST's."""
        scale_rewards: bool = option(True)
        """Divide by the standard deviation of the request's rewards. Default: CREST's."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        o, actions = self.options, rollouts.actions
        request = self.signal(rollouts, "request_ids")
        advantage = self._of_requests(rollouts, request)  # (B, L)
        gap = (self.signal(rollouts, "teacher_logprob") - self.signal(rollouts, "student_logprob")) / o.tau
        z = standardised(-self.signal(rollouts, "student_logprob"), rollouts)
        # Not torch's sigmoid: it rounds a number by where it stands in the tensor, and the batch must not matter.
        surprise = 1.0 + o.surprise * (2.0 / (1.0 + (-z).exp()) - 1.0)
        share = (o.mix * surprise * (advantage.sign() * gap > 0)).clamp(0.0, o.mix)
        phi = 1.0 + share * (evidence(advantage, gap, o.clip) - 1.0)
        firsts = actions.valid.clone()
        firsts[:, 1:] &= request[:, 1:] != request[:, :-1]
        return to_credit(rollouts, advantage * phi, phi, Segments(firsts, torch.zeros_like(firsts)))

    def _of_requests(self, rollouts: Rollouts, request: Tensor) -> Tensor:
        """A_{i,k} of each token's request → (B, L)."""
        actions, turns = rollouts.actions, Turns(rollouts.actions)
        found, number = request.unique(return_inverse=True)  # (B, L) from 0
        taken = torch.zeros(len(request), len(found), dtype=torch.bool, device=request.device)  # (B, R)
        taken.scatter_(1, number.where(actions.valid, number[:, :1]), rollouts.counted[:, None].expand_as(number))
        # A turn's reward goes to the request that its last token belongs to.
        turn_reward = turns.at_last_tokens(self.signal(rollouts, "turn_reward"))  # (B, K)
        rewards = torch.zeros(taken.shape, dtype=wide(turn_reward), device=request.device)
        rewards.scatter_add_(1, turns.at_last_tokens(number), turn_reward.to(rewards.dtype))
        groups = rollouts.group_ids.unique(return_inverse=True)[1][:, None] * len(found)
        peers = groups + torch.arange(len(found), device=request.device)  # (B, R)
        relative = relative_to_group(rewards[taken], peers[taken], self.options.scale_rewards)
        table = torch.zeros_like(turn_reward[:, :1]).expand(taken.shape).clone()
        table[taken] = relative.to(table.dtype)
        return table.gather(1, number).masked_fill_(~actions.valid, 0)


def standardised(values: Tensor, rollouts: Rollouts) -> Tensor:
    """(x − mean) / (std + 1e-4) over each rollout's action tokens, packed (B, L) → (B, L); one token: 0."""
    actions = rollouts.actions
    n = actions.counts.clamp(min=1)[:, None]
    spread = values.to(wide(values))
    spread = (spread - spread.sum(1, keepdim=True) / n) * actions.valid  # the filling of `values` is 0
    std = (spread.square().sum(1, keepdim=True) / n).sqrt()
    return (spread / (std + 1e-4)).to(values.dtype)
