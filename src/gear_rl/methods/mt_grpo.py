"""MT-GRPO: an advantage for every turn that the environment answered, beside the outcome's."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import advantages_of, relative_to_group, relative_to_others
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_turn
from gear_rl.assignment.turns import Turns, returns_to_go
from gear_rl.methods.base import grid, option, to_credit
from gear_rl.methods.outcome import OnOutcome


class MTGRPO(OnOutcome):
    """Tokens of a turn that got a tool result: A_outcome + A_turn; tokens after the last tool result: A_outcome.

    That is the official code, which knows one tool call, taken to any number of them. The paper's general form adds up
    (`form=paper`): A_k = Σ_{l ≥ k, answered} α^{l − k} A_turn,l + α^{K − k} A_outcome. A rollout without any tool result
    has the advantage of its summed rewards (`fallback`).

    A_turn compares a turn's reward with those of the same-numbered turns of the group's other rollouts, if they took
    such a turn ("unbiased", leave-one-out). The naive form lets rollouts without the turn count as 0 in the mean, though
    they have no tokens there that could be blamed: whoever merely takes another turn with a positive reward then gains.
    """

    name = "mt_grpo"
    summary = "Adds each turn's own advantage to the outcome's; the baseline gives no bonus for taking more turns."
    paper = "MT-GRPO, arXiv 2505.11821"
    standing = "official code for one tool call, the paper second-hand; ours: the unbiased baseline"
    needs = ("turn_reward",)
    mass = "not kept: the turns' advantages are added"
    strength = grid(turn_weight=(0.5, 1.0, 2.0, 4.0))

    class Options(OnOutcome.Options):
        turn_weight: float = option(1.0, at_least=0.0)
        """What A_turn is multiplied with. Default: MT-GRPO's code."""
        form: str = option("own", choices=("own", "paper"))
        """"own": a turn has its own advantage and the outcome's. "paper": also those of later turns, discounted by α.
        Default: the code's; with one tool call and α = 1 they are the same."""
        discount: float = option(1.0, at_least=0.0, at_most=1.0)
        """α, for form=paper. Default: ours; the paper's value was not visible."""
        baseline: str = option("unbiased", choices=("unbiased", "naive"))
        """Of A_turn. "unbiased": minus the mean of the other rollouts that took the turn. "naive": minus the mean of the
        whole group, a turn not taken counting 0, over its standard deviation. Default: ours; the code's is naive."""
        fallback: str = option("combined", choices=("combined", "outcome"))
        """What a rollout without a tool result has. "combined": the group advantage of outcome and turn rewards summed.
        "outcome": A_outcome, which is without bias. Default: the code's."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        o, actions = self.options, rollouts.actions
        turns, outcome = Turns(actions), self.outcome(rollouts)
        rewards = turns.at_last_tokens(self.signal(rollouts, "turn_reward")).masked_fill_(~turns.answered, 0)  # (B, K)
        table = o.turn_weight * self._turn_advantages(rollouts, rewards, turns)
        if o.form == "own":
            table = outcome[:, None] + table
        else:
            table = returns_to_go(torch.where(turns.last, outcome[:, None], table), o.discount)
        if o.fallback == "combined":
            combined = rollouts.rewards.to(rewards.dtype) + rewards.sum(1)
            summed = advantages_of(combined, rollouts, o.scale_rewards)[:, None]
            table = torch.where(turns.counts[:, None] == 1, summed, table)
        return to_credit(rollouts, turns.spread(table), actions.valid.to(table.dtype), every_turn(actions))

    def _turn_advantages(self, rollouts: Rollouts, rewards: Tensor, turns: Turns) -> Tensor:
        """A_turn of each turn that was answered, (B, K) → (B, K); 0 for the others."""
        # A turn has peers: the same-numbered turns of its group.
        columns = torch.arange(rewards.shape[1], device=rewards.device)
        _, groups = rollouts.group_ids.unique(return_inverse=True)  # (B,) from 0
        peers = groups[:, None] * rewards.shape[1] + columns  # (B, K)
        unbiased = self.options.baseline == "unbiased"
        counted = rollouts.scorable[:, None] & (turns.answered if unbiased else torch.ones_like(turns.answered))
        relative = relative_to_others if unbiased else relative_to_group
        table = torch.zeros_like(rewards)
        table[counted] = relative(rewards[counted], peers[counted]).to(table.dtype)
        return table.masked_fill_(~turns.answered, 0)
