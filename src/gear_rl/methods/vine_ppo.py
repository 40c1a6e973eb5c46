"""VinePPO: the advantage of a step is what it did to the value, measured by sampling on from its start and its end."""

from __future__ import annotations

from gear_rl.methods.base import Cost, option
from gear_rl.methods.turn_ppo import TurnPPO


class VinePPO(TurnPPO):
    """VinePPO: every token has the advantage of its step. A step is a turn here.

        V(s_k)   mean reward of fresh continuations from the start of turn k
        A_k      V(s_{k+1}) − V(s_k); the last turn's is the reward − V(s_K)

    That is Turn-PPO's equation with γ = 1 and λ = 0, and values without a critic. It compares nothing within a group, and
    advantages that an engine gives are not read.
    """

    name = "vine_ppo"
    summary = "Each turn's advantage is what it did to the value, measured by sampling on from its start."
    paper = "VinePPO, arXiv 2410.01679"
    standing = "second-hand, its configuration; ours: a step is a turn"
    cost = Cost(0, 0, "but the values cost 9 further rollouts from the start of every turn (`train.value_continuations`)")
    mass = "another quantity: measured advantages, in place of A_i"

    class Options(TurnPPO.Options):
        gamma: float = option(1.0, at_least=0.0, at_most=1.0)
        """γ, the discount per turn. Default: VinePPO's."""
        trace: float = option(0.0, at_least=0.0, at_most=1.0)
        """λ of GAE; 0 is one step, 1 the whole return. Default: VinePPO's."""

    options: Options
