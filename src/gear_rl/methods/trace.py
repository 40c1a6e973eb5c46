"""TRACE: a turn is worth how much nearer it brings a frozen model to the reference answer."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import POPULATION, group_advantages
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_turn
from gear_rl.assignment.turns import Turns, powers
from gear_rl.methods.base import ANSWER_READINGS, Method, grid, option, to_credit


class TRACE(Method):
    """TRACE: A_{i,t} = A_i + 0.2 r_k on a turn's tokens; the last turn, the answer itself, has A_i.

        s_k: mean log-probability of the reference answer after k turns, under the starting weights, k = 0 … K
        V_k = log(d_0 / d_k),  d_k = 0.1 − s_k;   δ_k = V_{k+1} − V_k
        r_k = Σ_{j<h} γ^j δ_{k+j} / Σ_{j<h} γ^j   h = 3, γ = 0.8; both sums end with the last tool turn
              + 2 γ^{K−k} A_i                     where the window reaches that end

    Turn rewards are not compared within the group. Both readings, that the denominator is cut too and that K counts the
    turns before the answer, are ours. It is for tasks with a short textual answer, not for those that end in a state.
    """

    name = "trace"
    summary = "Adds to each turn how much nearer it brought a frozen model to the reference answer."
    paper = "TRACE, arXiv 2607.13988"
    standing = "second-hand, two re-implementations; ours: where the window ends"
    needs = ("frozen_answer_logprob", "frozen_answer_logprob_start")
    cost = ANSWER_READINGS
    mass = "not kept: a share of the turn's progress is added, and up to 0.4 A_i near the end"
    strength = grid(turn_weight=(0.1, 0.2, 0.5, 1.0))

    class Options(Method.Options):
        turn_weight: float = option(0.2, at_least=0.0)
        """What r_k is multiplied with; 0 leaves the outcome alone. Default: TRACE's."""
        window: int = option(3, at_least=1)
        """h, turns. Default: TRACE's."""
        gamma: float = option(0.8, above=0.0, at_most=1.0)
        """γ, the discount per turn. Default: TRACE's."""
        terminal: float = option(2.0, at_least=0.0)
        """What the outcome is multiplied with where the window reaches the end. Default: TRACE's."""
        offset: float = option(0.1, above=0.0)
        """What is added to the negative log-probability, so that a certain answer does not count without bound. Default:
        TRACE's."""
        scale_rewards: bool = option(True)
        """Divide by the group's standard deviation, of the population, in (1). Without effect where an engine gives the
        advantages. Default: TRACE's."""

    options: Options

    def outcome(self, rollouts: Rollouts) -> Tensor:
        """(1) with the population's std → (B,)."""
        return group_advantages(rollouts, self.options.scale_rewards, POPULATION)

    def assign(self, rollouts: Rollouts) -> Credit:
        o, actions = self.options, rollouts.actions
        turns, outcome = Turns(actions), self.outcome(rollouts)[:, None]  # (B, 1)
        after = turns.at_last_tokens(self.signal(rollouts, "frozen_answer_logprob"))  # (B, K)
        start = self.signal(rollouts, "frozen_answer_logprob_start")[:, :1]  # (B, 1)
        distance = o.offset - torch.cat([start, after], dim=1).clamp(max=0)  # (B, K + 1); above 0 is rounding
        progress = (distance[:, :-1] / distance[:, 1:]).log().masked_fill(~turns.answered, 0)  # (B, K) δ
        left = (turns.counts[:, None] - 1 - torch.arange(progress.shape[1], device=progress.device)).clamp(
            min=0
        )  # K − k
        gained, weight = torch.zeros_like(progress), torch.zeros_like(progress)
        for j in range(min(o.window, progress.shape[1])):  # over turns, of which there are few
            ahead = torch.zeros_like(progress)
            ahead[:, : progress.shape[1] - j] = progress[:, j:]
            gained, weight = gained + o.gamma**j * ahead, weight + o.gamma**j * (left > j).to(weight.dtype)
        to_end = powers(o.gamma, left).to(progress.dtype)  # γ^{K−k}
        reward = gained / weight.clamp(min=1) + torch.where(left <= o.window, o.terminal * to_end * outcome, 0.0)
        table = outcome + o.turn_weight * reward.masked_fill(~turns.answered, 0)
        return to_credit(rollouts, turns.spread(table), actions.valid.to(table.dtype), every_turn(actions))
