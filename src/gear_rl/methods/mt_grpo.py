"""MT-GRPO: an advantage for every turn that the environment answered, beside the outcome's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gear_rl.assignment.baselines import group_advantages, relative_to_group, relative_to_others
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_turn
from gear_rl.assignment.turns import Turns
from gear_rl.methods.base import Method, option, to_credit


class MTGRPO(Method):
    """Tokens of a turn that got a tool result: A_outcome + A_turn; tokens after the last tool result: A_outcome.

    A_turn compares a turn's reward with those of the same-numbered turns of the group's other rollouts, if they took
    such a turn ("unbiased", leave-one-out). The naive form lets rollouts without the turn count as 0 in the mean, though
    they have no tokens there that could be blamed: whoever merely takes another turn with a positive reward then gains.

    It does not look ahead: a turn has its own reward and the outcome, not those of the turns that follow.
    """

    name = "mt_grpo"
    summary = "Adds each turn's own advantage to the outcome's; the baseline gives no bonus for taking more turns."
    paper = "MT-GRPO, arXiv 2505.11821"
    standing = "seen for one tool call; ours: any number of turns, the unbiased baseline"
    needs = ("turn_reward",)
    preserves_mass = False

    @dataclass(frozen=True)
    class Options(Method.Options):
        turn_weight: float = option(1.0, at_least=0.0)
        """What A_turn is multiplied with; 0 is GRPO. Default: MT-GRPO's."""
        baseline: str = option("unbiased", choices=("unbiased", "naive"))
        """Of A_turn. "unbiased": minus the mean of the other rollouts that took the turn. "naive": minus the mean of the
        whole group, a turn not taken counting 0, over its standard deviation. Default: ours; the source's is naive."""
        scale_rewards: bool = option(True)
        """Divide A_outcome by the group's standard deviation. Without effect where an engine gives the advantages.
        Default: GRPO's."""

    options: Options

    def outcome(self, rollouts: Rollouts) -> Tensor:
        """(1): the advantage of each rollout → (B,)."""
        return group_advantages(rollouts, scale=self.options.scale_rewards)

    def assign(self, rollouts: Rollouts) -> Credit:
        o, actions = self.options, rollouts.actions
        turn_reward = self.signal(rollouts, "turn_reward")
        advantages = turn_level_advantages(rollouts, self.outcome(rollouts), turn_reward, o.turn_weight, o.baseline)
        return to_credit(rollouts, advantages, actions.valid.to(advantages.dtype), every_turn(actions))


def turn_level_advantages(
    rollouts: Rollouts, outcome: Tensor, turn_reward: Tensor, weight: float, baseline: str
) -> Tensor:
    """A_outcome + weight · A_turn of the token's turn, A_turn being 0 after the last tool result → (B, L).

    `outcome` (B,); `turn_reward` packed (B, L), read at each turn's last token.
    """
    turns = Turns(rollouts.actions)
    rewards = turns.at_last_tokens(turn_reward)  # (B, K)
    # A turn has peers: the same-numbered turns of its group.
    columns = torch.arange(rewards.shape[1], device=rewards.device)
    _, groups = rollouts.group_ids.unique(return_inverse=True)  # (B,) from 0
    peers = groups[:, None] * rewards.shape[1] + columns  # (B, K)
    counted = turns.answered if baseline == "unbiased" else turns.taken.any(1, keepdim=True).expand_as(turns.taken)
    earned = rewards.masked_fill(~turns.answered, 0)[counted]
    relative = relative_to_others if baseline == "unbiased" else relative_to_group
    table = torch.zeros_like(rewards).masked_scatter_(counted, relative(earned, peers[counted]).to(rewards.dtype))
    of_turn = turns.spread(table.masked_fill_(~turns.answered, 0))
    return (outcome[:, None] + weight * of_turn) * rollouts.actions.valid
