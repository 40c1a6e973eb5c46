"""SHEAR: spans count by how far their hidden states are from those of the group's other outcome. No teacher."""

from __future__ import annotations

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_token
from gear_rl.methods.base import HIDDEN_STATES, to_credit
from gear_rl.methods.outcome import OnOutcome


class SHEAR(OnOutcome):
    """SHEAR: A_{i,t} = ω_t A_i.

        d_j = min over the spans of all rollouts of the group with the other outcome of W₁(span j, that span)
        ω_t = max over the spans j that hold token t of d_j / (mean ‖h‖ over the group's tokens)

    Spans are windows of 100 tokens, one every 25; h is the last hidden state. All of that is the signal's; here ω only
    multiplies. It is made for binary rewards. A rollout without an opposing one has ω = 1, which is GRPO. Weights are not
    rescaled, so rollouts are also weighed against each other.
    """

    name = "shear"
    summary = "Scales each token by the distance of its span's hidden states to rollouts of the other outcome."
    paper = "SHEAR, arXiv 2604.23318"
    standing = "second-hand, two accounts"
    needs = ("span_distance",)
    cost = HIDDEN_STATES
    mass = "shrinks: ω is typically about 0.7"

    def assign(self, rollouts: Rollouts) -> Credit:
        omega = self.signal(rollouts, "span_distance").clamp(min=0)  # (B, L); a distance below 0 is rounding
        return to_credit(rollouts, self.outcome(rollouts)[:, None] * omega, omega, every_token(rollouts.actions))
