"""RLCSD: a residual from two hinted selves, one shown correct and one shown wrong rollouts, is added to the advantage."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import number_in_group, wide
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_token
from gear_rl.methods.base import Cost, Hint, Schedule, grid, option, to_credit
from gear_rl.methods.outcome import OnOutcome


class RLCSD(OnOutcome):
    """RLCSD: A'_t = A_i + res_t on the tokens where the residual is large enough, without changing the sign.

        e_t = log q⁺_t(y_t) − log mean_k q⁻,k_t(y_t)          q⁺ has read a correct sibling, q⁻ wrong ones
        res_t = clip(β λ tanh(e_t / τ), ±2)                   selected where |res_t| > δ
        A > 0: max(A + res, 0)        A < 0: min(A + res, 0)        A = 0: 0

    The source's loss is the mean over the other tokens plus η times the mean over the selected ones. With a token-mean
    loss that is exact as a factor on the advantages, n / n_other and η n / n_selected (`denominators`): a clipped policy
    loss scales with a positive factor. Under other aggregations it is not. Rollouts without a correct and a wrong sibling
    are removed by the source; here they have advantage 0, and still count in the engine's mean.
    """

    name = "rlcsd"
    summary = "Adds to the advantage what a self shown correct rollouts and one shown wrong ones disagree about."
    paper = "RLCSD, arXiv 2606.11709"
    standing = "official code; ours: denominators of each group"
    needs = ("teacher_logprob", "wrong_teacher_logprob")
    hint: Hint = "sibling"
    schedule = Schedule(teacher="sync", teacher_every=10)
    cost = Cost(5, 0, "one forward of the teacher with a correct hint, and one with each of up to four wrong ones")
    mass = "not kept: up to ±0.5 is added to each selected token, and both sets of tokens weigh alike"
    strength = grid(beta=(1.0, 4.0), clip=(2.0, 8.0))

    class Options(OnOutcome.Options):
        tau: float = option(0.02, above=0.0)
        """τ: the residual saturates at a few of it. Default: RLCSD's configurations; its code has 0.03."""
        beta: float = option(1.0, at_least=0.0)
        """β, a factor of the residual. Default: RLCSD's configurations; its code has 0.2."""
        mix: float = option(0.5, at_least=0.0, at_most=1.0)
        """λ, a factor of the residual, constant; 0: no token is selected. Default: RLCSD's."""
        delta: float = option(0.02, at_least=0.0)
        """δ: tokens with a larger residual are selected. Default: RLCSD's."""
        clip: float = option(2.0, above=0.0)
        """Largest residual, either way. Default: RLCSD's configurations, where it never binds; its code has 0.5."""
        eta: float = option(1.0, at_least=0.0)
        """η, the weight of the selected tokens' mean. Default: RLCSD's."""
        success: float = option(0.5)
        """A rollout with at least this reward is correct. Default: ours; the source's rewards are 0 and 1."""
        denominators: str = option("group", choices=("group", "batch", "one"))
        """Over which tokens the two means are: those of the group, or of the batch; "one": no factor, all tokens in one
        mean. Default: ours; the source's is the batch, in which a rollout's credit depends on its neighbours."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        o, actions = self.options, rollouts.actions
        paired = has_pair(rollouts, o.success)[:, None]  # (B, 1)
        advantage = self.outcome(rollouts)[:, None] * (paired & actions.valid)  # (B, L)
        evidence = self.signal(rollouts, "teacher_logprob") - self.signal(rollouts, "wrong_teacher_logprob")
        residual = (o.beta * o.mix * _tanh(evidence / o.tau)).clamp(-o.clip, o.clip)
        live = actions.valid & (rollouts.counted & rollouts.credited)[:, None]  # the tokens of the loss
        selected = (residual.abs() > o.delta) & paired & live
        moved = advantage + residual
        moved = torch.where(advantage > 0, moved.clamp(min=0), moved.clamp(max=0)).where(advantage != 0, 0.0)
        result = torch.where(selected, moved, advantage)
        if o.denominators != "one":
            pools = rollouts.group_ids if o.denominators == "group" else torch.zeros_like(rollouts.group_ids)
            n, n_selected, n_paired = (_total(tokens, pools)[:, None] for tokens in (live, selected, live & paired))
            of_selected, of_others = o.eta * n / n_selected.clamp(min=1), n / (n_paired - n_selected).clamp(min=1)
            result = result * torch.where(selected, of_selected, of_others).to(result.dtype)
        return to_credit(rollouts, result, actions.valid.to(result.dtype), every_token(actions))


def has_pair(rollouts: Rollouts, success: float) -> Tensor:
    """(B,) bool: the group has another correct and another wrong rollout to show."""
    correct = rollouts.counted & (rollouts.rewards >= success)
    wrong = rollouts.counted & ~correct
    others = [number_in_group(kind, rollouts.group_ids) - kind.long() for kind in (correct, wrong)]
    return rollouts.counted & (others[0] > 0) & (others[1] > 0)


def _total(tokens: Tensor, pools: Tensor) -> Tensor:
    """How many of the tokens (B, L) each rollout's pool (B,) has → (B,), a float."""
    found, row = pools.unique(return_inverse=True)
    sums = torch.zeros(len(found), dtype=torch.long, device=tokens.device).index_add_(0, row, tokens.sum(1))
    return sums[row].to(wide(tokens))


def _tanh(x: Tensor) -> Tensor:
    """Not torch's: it may round a number by where it stands in the tensor, and the batch must not matter."""
    doubled = (2.0 * x.clamp(-20.0, 20.0)).expm1()
    return doubled / (doubled + 2.0)
