"""What a method that distils asks of the engine: a divergence between student and teacher, as a loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Distillation:
    """loss += coefficient · mean over action tokens of D_t, gradient through the student only.

    p is the student's distribution over the vocabulary at a token, q the teacher's, y the sampled token. Tokens of a
    rollout whose teacher has nothing to read (no successful sibling, no feedback) are left out of loss and mean.
    Whether the policy loss counts beside it is for the advantages to say: a method that distils and does nothing else
    gives 0 to every token. Which weights the teacher has is said in `Method.schedule`.
    """

    kind: Literal["jsd", "reverse_kl", "forward_kl"]
    """jsd: β KL(q ‖ m) + (1 − β) KL(p ‖ m), m = β q + (1 − β) p.  reverse_kl: KL(p ‖ q).  forward_kl: KL(q ‖ p)."""
    coefficient: float
    beta: float = 0.5
    """β of the Jensen–Shannon divergence; ½ is the symmetric one."""
    top_k: int | None = None
    """Only the student's so many most likely tokens. None: the full vocabulary, exactly."""
    tail: bool = True
    """With `top_k`: all other tokens count as one further token, so that both distributions still sum to 1."""
    entry_clip: float | None = None
    """Each vocabulary entry of the divergence's sum is clamped from above at this, before the sum. The result can be
    negative, and is no divergence any more."""
    token_cap: float | None = None
    """D_t is clamped from above at this: a token beyond it has no gradient."""
    temper_teacher: bool = True
    """Whether the sampling temperature divides the teacher's logits too, or only the student's."""
    importance_clip: float | None = None
    """D_t is multiplied by min(exp(clamp(log p(y) − log p_old(y), ±20)), this), without gradient; p_old sampled y."""
    reference_coefficient: float = 0.0
    """Times the mean over action tokens of R_t is added too; π_ref: the starting weights, without a hint."""
    reference: Literal["squared", "ratio"] = "squared"
    """R_t on the sampled token. squared: ½ (log p(y) − log π_ref(y))².  ratio: π_ref(y) / p(y)."""


def divergence_kind(beta: float) -> Literal["jsd", "reverse_kl", "forward_kl"]:
    """Where sources write one family with a parameter: 0 is KL(q ‖ p), 1 is KL(p ‖ q), between them the JSD."""
    return "forward_kl" if beta == 0.0 else "reverse_kl" if beta == 1.0 else "jsd"
