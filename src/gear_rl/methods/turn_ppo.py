"""Turn-PPO: generalised advantage estimation with a turn as the unit of action, given values."""

from __future__ import annotations

import torch

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_turn
from gear_rl.assignment.turns import Turns, returns_to_go
from gear_rl.methods.base import Cost, grid, option, to_credit
from gear_rl.methods.turn_rewards import OnTurnRewards


class TurnPPO(OnTurnRewards):
    """Turn-PPO: every token has the advantage of its turn, by GAE over turns.

        δ_k = R_k + γ V_{k+1} − V_k          V after the last turn is 0
        A_k = Σ_l (γ λ)^l δ_{k+l}

    The outcome is the last turn's reward. It compares nothing within a group, so one rollout per prompt will do, and
    advantages that an engine gives are not read. It does not train the critic, and does not clip one ratio per turn as
    the source does: those are the engine's.
    """

    name = "turn_ppo"
    summary = "Generalised advantage estimation over turns, from given values; no groups."
    paper = "Turn-PPO, arXiv 2512.17008"
    standing = "second-hand"
    needs: tuple[str, ...] = ("values",)
    cost = Cost(1, 0, "one forward of a critic; training it is not counted")
    mass = "another quantity: advantages against a critic, in place of A_i"
    strength = grid(trace=(0.0, 0.5, 0.9, 1.0))

    class Options(OnTurnRewards.Options):
        gamma: float = option(0.99, at_least=0.0, at_most=1.0)
        """γ, the discount per turn. Default: Turn-PPO's."""
        trace: float = option(0.9, at_least=0.0, at_most=1.0)
        """λ of GAE; 0 is one step, 1 the whole return. Default: Turn-PPO's."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        o, actions = self.options, rollouts.actions
        turns = Turns(actions)
        values = turns.at_first_tokens(self.signal(rollouts, "values"))  # (B, K)
        rewards = self.rewards_of(turns, rollouts)
        following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)  # 0 where there is no such turn
        table = returns_to_go(rewards + o.gamma * following - values, o.gamma * o.trace)
        return to_credit(rollouts, turns.spread(table), actions.valid.to(table.dtype), every_turn(actions))
