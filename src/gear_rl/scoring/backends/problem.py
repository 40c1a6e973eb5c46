"""What a backend is asked (`Problem`) and what it answers (`Divergence`). Inputs are checked before they get here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from gear_rl.scoring.head import Head

EXTRAS = ("forward_kl", "jensen_shannon")


@dataclass(frozen=True)
class Divergence:
    """Per token, in nats, each (N,) float32. p is the student's distribution, q the teacher's, y the sampled token."""

    reverse_kl: Tensor
    """KL(p ‖ q) = Σ_v p(v) [log p(v) − log q(v)]"""
    entropy: Tensor
    """−Σ_v p(v) log p(v)"""
    student_logprob: Tensor
    """log p(y)"""
    teacher_logprob: Tensor
    """log q(y)"""
    forward_kl: Tensor | None = None
    """KL(q ‖ p), where `extra` asks for it"""
    jensen_shannon: Tensor | None = None
    """½ KL(p ‖ m) + ½ KL(q ‖ m), m = ½ (p + q), where `extra` asks for it"""

    def items(self) -> dict[str, Tensor]:
        """The numbers that were computed, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Problem:
    student_hidden: Tensor
    """(N, D)"""
    teacher_hidden: Tensor
    """(N, D)"""
    student_head: Head
    teacher_head: Head
    """the same object where the head is shared: then its weight is read once for both"""
    token_ids: Tensor
    """(N,) int64. An id outside [0, student_head.size) leaves the log-probs of that row without a meaning; with a
    vocabulary split over ranks such an id belongs to another rank."""
    temperature: float
    workspace: int
    """bytes a backend may take beyond inputs and outputs; the naive reference does not obey it"""
    extra: tuple[str, ...] = ()

    @property
    def shared(self) -> bool:
        return self.student_head is self.teacher_head

    def rows(self, start: int, stop: int) -> Problem:
        """The same problem for tokens [start, stop)."""
        return replace(
            self,
            student_hidden=self.student_hidden[start:stop],
            teacher_hidden=self.teacher_hidden[start:stop],
            token_ids=self.token_ids[start:stop],
        )
