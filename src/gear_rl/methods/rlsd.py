"""RLSD and SERL: the outcome gives the direction, the hinted self the size of a token's update.

    Δ_t = log q_t(y_t) − log p_t(y_t)                teacher minus student on the sampled token; no gradient
    w_t = clip(exp(sign(A_i) Δ_t), 1 ± clip)         RLSD
    A_{i,t} = A_i ((1 − λ) + λ w_t)                  λ is `mix`

SERL keeps w_t to tool calls.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_token
from gear_rl.methods.base import STUDENT_AND_TEACHER, Hint, Schedule, grid, option, to_credit
from gear_rl.methods.outcome import OnOutcome
from gear_rl.methods.reweighting import Reweighting


class RLSD(OnOutcome):
    """RLSD: w_t = clip(exp(sign(A) Δ_t), 1 ± 0.2). A won rollout's tokens that the hinted teacher finds likelier than
    the student did gain most; of a lost one, those it finds less likely are blamed most.

    It does not preserve a rollout's advantage (the weights are clipped, not normalised). λ falls and the teacher ages as
    `schedule` says, which the engine does: a method remembers nothing between calls.
    """

    name = "rlsd"
    summary = "Weights each token by how much likelier the hinted self finds it, in the outcome's direction."
    paper = "RLSD, arXiv 2604.03128"
    standing = "official code; the paper second-hand"
    needs: tuple[str, ...] = ("student_logprob", "teacher_logprob")
    hint: Hint = "own"
    schedule = Schedule(mix_steps=50, teacher="sync", teacher_every=10)
    cost = STUDENT_AND_TEACHER
    mass = "not kept: each token between 1 − λ·clip and 1 + λ·clip of A_i (0.9 to 1.1)"
    strength = grid(mix=(0.5, 1.0), clip=(0.2, 1.0))

    class Options(Reweighting.Options):
        mix: float = option(0.5, at_least=0.0, at_most=1.0)
        """λ: 0 is GRPO, 1 the full weights. Default: where RLSD starts; it falls to 0 over 50 steps (the paper; its
        script says 60)."""
        clip: float = option(0.2, above=0.0, at_most=1.0)
        """How far a weight may be from 1, either way. Default: RLSD's."""

    options: Options

    def weights(self, rollouts: Rollouts, advantage: Tensor) -> Tensor:
        """w_t, given each rollout's advantage (B,) → (B, L)."""
        return evidence(advantage[:, None], self.gap(rollouts), self.options.clip)

    def gap(self, rollouts: Rollouts) -> Tensor:
        """Δ_t → (B, L)."""
        return self.signal(rollouts, "teacher_logprob") - self.signal(rollouts, "student_logprob")

    def assign(self, rollouts: Rollouts) -> Credit:
        advantage = self.outcome(rollouts)
        weights = self.weights(rollouts, advantage)
        mixed = advantage[:, None] * (1.0 + self.options.mix * (weights - 1.0))
        return to_credit(rollouts, mixed, weights, every_token(rollouts.actions))


class SERL(RLSD):
    """SERL: RLSD's weights on the tokens of tool calls alone; thinking keeps GRPO's advantage.

    Its teacher reads no reference answer, but what the environment said, or a successful rollout of the same group. It
    does not decide which tokens are a tool call: the task does. Where all action tokens are, this is RLSD.
    """

    name = "serl"
    summary = "RLSD on the tokens of tool calls alone; the teacher reads the environment's feedback."
    paper = "SERL, arXiv 2605.19447"
    standing = "official code"
    needs = ("student_logprob", "teacher_logprob", "tool_call")
    hint: Hint = "feedback"
    mass = "not kept: tokens of calls between 0.9 and 1.1 of A_i, all others exactly A_i"
    strength = grid(mix=(0.25, 0.5, 0.75, 1.0))

    class Options(RLSD.Options):
        mix: float = option(0.5, at_least=0.0, at_most=1.0)
        """λ: 0 is GRPO, 1 the full weights. Default: where SERL starts; it falls to 0 over 50 policy updates."""
        hint: str = option("feedback", choices=("feedback", "sibling"))
        """What the teacher reads: the environment's feedback, or a successful rollout of the same group. Default: SERL's;
        its code knows the second too."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        self.hint = "sibling" if self.options.hint == "sibling" else "feedback"

    def weights(self, rollouts: Rollouts, advantage: Tensor) -> Tensor:
        calls = self.signal(rollouts, "tool_call") != 0  # (B, L)
        return torch.where(calls, super().weights(rollouts, advantage), rollouts.actions.valid.to(advantage.dtype))


def evidence(advantage: Tensor, gap: Tensor, clip: float) -> Tensor:
    """clip(exp(sign(A) Δ), 1 ± clip) → (B, L), `advantage` (B, 1) or (B, L). Where A = 0 the weight is 1."""
    return (advantage.sign() * gap).exp().clamp(1.0 - clip, 1.0 + clip)
