"""What a method that distils asks of the engine: a divergence between student and teacher, as a loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Distillation:
    """loss += coefficient · mean over action tokens of the divergence, gradient through the student only.

    p is the student's distribution over the vocabulary at a token, q the teacher's. Tokens of a rollout whose teacher
    has nothing to read (no successful sibling, no feedback) are left out. Whether the policy loss counts beside it is
    for the advantages to say: a method that distils and does nothing else gives 0 to every token.
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
    teacher: Literal["live", "sync", "ema", "base"] = "live"
    """The kind of teacher its source uses; a user who names another gets that one."""
    reference_coefficient: float = 0.0
    """Times KL(p ‖ π_ref), mean over action tokens, is added too; π_ref: the starting weights, without a hint."""
