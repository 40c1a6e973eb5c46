"""What methods share whose turn rewards are the outcome in the last turn and, as an option, the turns' own."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.turns import Turns
from gear_rl.methods.base import Method, option


class OnTurnRewards(Method):
    class Options(Method.Options):
        turn_rewards: bool = option(False)
        """Add the turns' own rewards (signal "turn_reward"); else the outcome alone counts, in the last turn. Default:
        ours, for tasks whose turn rewards are part of the outcome already."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        if self.options.turn_rewards:
            self.needs = (*self.needs, "turn_reward")

    def rewards_of(self, turns: Turns, rollouts: Rollouts) -> Tensor:
        """The reward of each turn → (B, K)."""
        rewards = torch.where(turns.last, rollouts.rewards.to(rollouts.dtype)[:, None], 0.0)
        if self.options.turn_rewards:
            rewards = rewards + turns.at_last_tokens(self.signal(rollouts, "turn_reward"))
        return rewards
