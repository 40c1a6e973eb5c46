"""The streaming state: what one slice of the vocabulary says about a token, and how slices add up.

For a slice S of the vocabulary, with z_s and z_t the logits of student and teacher (temperature included):

    m_s = max_S z_s        w_s = exp(z_s − m_s)        l_s = Σ_S w_s            (m_t, w_t, l_t alike for the teacher)
    a = Σ_S w_s (z_s − m_s)
    b = Σ_S w_s [(z_s − m_s) − (z_t − m_t)]
    f = Σ_S w_t [(z_t − m_t) − (z_s − m_s)]            only where the forward KL is asked for
    y_s, y_t = logit of the sampled token if it lies in S, else ABSENT

Merging slices moves every sum to the common maxima M; with δ = m − M ≤ 0 and c = exp(δ):

    l ← Σ c l      a ← Σ c_s (a + l_s δ_s)      b ← Σ c_s (b + l_s (δ_s − δ_t))      f ← Σ c_t (f + l_t (δ_t − δ_s))

which is associative: token blocks, vocabulary tiles and tensor-parallel ranks all use it. Over the whole vocabulary

    H = log l_s − a / l_s        KL(p‖q) = b / l_s + log l_t − log l_s        log p(y) = y_s − m_s − log l_s

b is kept relative to *both* maxima, so an offset common to all logits cancels before it is summed, not after. That is
what keeps divergences of 1e-4 nats exact next to logits of 50.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gear_rl.scoring.backends.problem import Divergence

# Stands for −∞ and stays finite: 0 · ABSENT = 0 and ABSENT − ABSENT = 0, where −∞ would give NaN.
ABSENT = -1.0e30
LN2 = math.log(2.0)


@dataclass(frozen=True)
class VocabState:
    """Each field (N,) float32; (N, K) while K slices wait to be merged. Names as in the module's docstring."""

    max_s: Tensor
    sum_s: Tensor
    a: Tensor
    b: Tensor
    max_t: Tensor
    sum_t: Tensor
    target_s: Tensor
    target_t: Tensor
    f: Tensor | None = None

    @classmethod
    def empty(cls, n: int, device: torch.device, forward: bool) -> VocabState:
        """The state of an empty slice: merging it changes nothing."""
        zero, absent = torch.zeros(n, device=device), torch.full((n,), ABSENT, device=device)
        return cls(absent, zero, zero, zero, absent, zero, absent, absent, zero if forward else None)

    def pack(self) -> Tensor:
        """(8 or 9, N), to be sent to another rank."""
        return torch.stack([v for v in (getattr(self, f.name) for f in fields(self)) if v is not None])

    @classmethod
    def unpack(cls, packed: Tensor) -> VocabState:
        return cls(*packed.unbind(0))

    def log_normalisers(self) -> tuple[Tensor, Tensor]:
        """log Σ_v exp z(v) of student and teacher, each (N,)."""
        return self.max_s + self.sum_s.log(), self.max_t + self.sum_t.log()

    def finish(self, jensen_shannon: Tensor | None = None) -> Divergence:
        """The answer, once the state covers the whole vocabulary. Clamps take away rounding below 0 and keep NaN."""
        log_s, log_t = self.sum_s.log(), self.sum_t.log()
        forward = None if self.f is None else (self.f / self.sum_t + (log_s - log_t)).clamp_min(0)
        return Divergence(
            reverse_kl=(self.b / self.sum_s + (log_t - log_s)).clamp_min(0),
            entropy=(log_s - self.a / self.sum_s).clamp_min(0),
            student_logprob=(self.target_s - self.max_s - log_s).clamp_max(0),
            teacher_logprob=(self.target_t - self.max_t - log_t).clamp_max(0),
            forward_kl=forward,
            jensen_shannon=None if jensen_shannon is None else jensen_shannon.clamp(0, LN2),
        )


def merge_slices(state: VocabState) -> VocabState:
    """(N, K) slices of the vocabulary → (N,)."""
    max_s, max_t = state.max_s.amax(1), state.max_t.amax(1)
    shift_s, shift_t = state.max_s - max_s[:, None], state.max_t - max_t[:, None]
    scale_s, scale_t = shift_s.exp(), shift_t.exp()
    return VocabState(
        max_s=max_s,
        sum_s=(scale_s * state.sum_s).sum(1),
        a=(scale_s * (state.a + state.sum_s * shift_s)).sum(1),
        b=(scale_s * (state.b + state.sum_s * (shift_s - shift_t))).sum(1),
        max_t=max_t,
        sum_t=(scale_t * state.sum_t).sum(1),
        target_s=state.target_s.amax(1),
        target_t=state.target_t.amax(1),
        f=None if state.f is None else (scale_t * (state.f + state.sum_t * (shift_t - shift_s))).sum(1),
    )


def merge(states: Sequence[VocabState]) -> VocabState:
    """States of disjoint slices → the state of their union, in the order given (so the same bits on every run)."""
    if len(states) == 1:
        return states[0]
    return merge_slices(VocabState.unpack(torch.stack([state.pack() for state in states], dim=-1)))


def join_rows(states: Sequence[VocabState]) -> VocabState:
    """States of consecutive token blocks → one state."""
    return states[0] if len(states) == 1 else VocabState.unpack(torch.cat([s.pack() for s in states], dim=1))
