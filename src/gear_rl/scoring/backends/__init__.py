"""Three ways to one answer, each `divergence(problem) -> Divergence`: naive, chunked torch, fused Triton.

Which one runs is decided here, by device and inputs. A fallback is stated: logged once per reason, and shown by
`gear doctor`.
"""

from __future__ import annotations

import logging
from types import ModuleType

from gear_rl.errors import GearError, unknown_name
from gear_rl.scoring.backends import chunked, fused, naive
from gear_rl.scoring.backends.problem import Divergence, Problem

BACKENDS = ("auto", "naive", "chunked", "fused")

# modules with vocab_state(problem) and jensen_shannon(problem, log_norm_s, log_norm_t)
_STREAMING: dict[str, ModuleType] = {"chunked": chunked, "fused": fused}
_log = logging.getLogger(__name__)
_said: set[str] = set()


def choose(problem: Problem, backend: str = "auto") -> tuple[str, str | None]:
    """(backend, why the fused kernel is not used or None).

    Asking for "fused" where it cannot run is an error; "auto" falls back to "chunked" and says so.
    """
    if backend not in BACKENDS:
        raise unknown_name("divergence backend", backend, BACKENDS)
    if backend in ("naive", "chunked"):
        return backend, None
    if backend == "auto" and problem.student_hidden.device.type == "cpu":
        return "chunked", "the inputs are on the CPU"
    reason = fused.why_not(problem)
    if reason is None:
        return "fused", None
    if backend == "fused":
        raise GearError(f"the fused divergence backend cannot run here: {reason}. Use backend='auto' or 'chunked'.")
    if reason not in _said:
        _said.add(reason)
        _log.warning("token_divergence uses the chunked backend instead of the fused kernel: %s", reason)
    return "chunked", reason


def choose_streaming(problem: Problem, backend: str) -> tuple[ModuleType, str | None]:
    """As `choose`, for callers that need the streaming state: the module instead of its name."""
    name, reason = choose(problem, backend)
    if name == "naive":
        raise GearError("the naive reference keeps no partial states to merge: use backend='auto', 'chunked' or 'fused'.")
    return _STREAMING[name], reason


def divergence(problem: Problem, backend: str) -> Divergence:
    """`backend` as `choose` returned it."""
    if backend == "naive":
        return naive.divergence(problem)
    streaming = _STREAMING[backend]
    state = streaming.vocab_state(problem)
    if "jensen_shannon" not in problem.extra:
        return state.finish()
    return state.finish(streaming.jensen_shannon(problem, *state.log_normalisers()))
