"""The one table of signals: what each is, where it comes from, what it costs, and how to get it.

A signal is a tensor (B, T): one number per token. A method names those it reads (`Method.needs`). Those that a model gives
are computed in `gear_rl.signals.providers`; those that only the task knows come from its verdicts. A package of your own
adds one by an entry point in the group "gear_rl.signals" that holds a `Signal` with `compute`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from gear_rl import plugins
from gear_rl.errors import GearError


@dataclass(frozen=True)
class Signal:
    name: str
    letter: str
    """Short form for tables."""
    source: Literal["model", "task"]
    """model: scoring computes it. task: only the task can say it."""
    scope: Literal["token", "turn", "group"]
    """What one value is about. group: it compares the rollouts of a group, so it needs whole groups."""
    cost: str
    """Beyond a GRPO step."""
    meaning: str
    """What it is, and where the number stands. For the task's own signals: what the task has to say."""
    hint: Literal["own", "other", "final_state"] | None = None
    """What a teacher reads for it, where that does not follow from the method's own hint."""
    compute: Callable[[Any], Any] | None = None
    """Third parties only: `gear_rl.signals.providers.Reading` → (B, T). None: one of ours."""

    @property
    def follows_the_methods_hint(self) -> bool:
        """Whether it is read by a teacher that is shown what the method says (`Method.hint`)."""
        return self.hint is None and self.cost in (_TEACHER, _BOTH)

    @property
    def how_to_get(self) -> str:
        if self.source == "task":
            return f"the task must say it: {self.meaning}"
        if self.scope == "token" and self.cost in _ONE_PASS:
            return f"{self.meaning}; gear_rl.scoring.token_divergence computes it, and an engine given this method does"
        return f"scoring: {self.meaning}"


_STUDENT, _TEACHER = "one forward of the student", "one forward of the teacher"
_BOTH = "one forward of the student and one of the teacher"
_ONE_PASS = (_STUDENT, _TEACHER, _BOTH)

_TABLE = (
    Signal("reverse_kl", "D", "model", "token", _BOTH, "KL(student ‖ teacher) over the full vocabulary, in nats"),
    Signal("forward_kl", "F", "model", "token", _BOTH, "KL(teacher ‖ student) over the full vocabulary, in nats"),
    Signal("entropy", "H", "model", "token", _STUDENT, "entropy of the student, in nats"),
    Signal("student_logprob", "p", "model", "token", _STUDENT, "log-probability of the sampled token under the student"),
    Signal("teacher_logprob", "q", "model", "token", _TEACHER, "log-probability of the sampled token under the teacher"),
    Signal(
        "wrong_teacher_logprob", "q-", "model", "group", "one forward of the teacher per wrong hint, 4 at most",
        "log of the mean probability of the sampled token under teachers shown wrong hints: the data's, or unsuccessful "
        "rollouts of the group",
    ),
    Signal(
        "sibling_length", "m", "model", "group", "none",
        "how many action tokens the rollout has that the teacher was shown, on all tokens; 0 where it was shown none",
    ),
    Signal(
        "hindsight_logprob", "ph", "model", "token", _TEACHER,
        "log-probability of the sampled token under a teacher that has read how the rollout ended", "final_state",
    ),
    Signal(
        "answer_logprob", "a", "model", "turn", "one short forward per turn",
        "mean log-probability of the reference answer after each turn, on all tokens of the turn",
    ),
    Signal(
        "answer_logprob_start", "a0", "model", "turn", "one short forward",
        "mean log-probability of the reference answer before the first turn, on all tokens",
    ),
    Signal(
        "frozen_answer_logprob", "f", "model", "turn", "one short forward per turn",
        "as answer_logprob, with the starting weights",
    ),
    Signal(
        "frozen_answer_logprob_start", "f0", "model", "turn", "one short forward",
        "as answer_logprob_start, with the starting weights",
    ),
    Signal(
        "saliency_mask", "xm", "model", "token", "one forward per hidden token (train.mask_budget)",
        "divergence of the final answer's distribution when the token is masked",
    ),
    Signal(
        "saliency_grad", "xg", "model", "token", "two forwards and one backward",
        "gradient times embedding of the final answer's divergence under noise",
    ),
    Signal(
        "answer_saliency", "xb", "model", "token", "one forward and one backward",
        "norm of gradient times embedding of the negative log-probability of the rollout's own answer, at the position that "
        "predicts the token",
    ),
    Signal(
        "answer_box", "b", "model", "token", "none",
        "1 on tokens inside the rollout's own answer, 2 on its marker, its closing brace and what follows, 0 elsewhere",
    ),
    Signal(
        "span_distance", "w", "model", "group", "one forward of the student for its hidden states, and optimal transport",
        "distance of the token's span of hidden states to the nearest span of the group's rollouts of the other outcome, "
        "over the mean norm of the group's hidden states; 1 where there is no such rollout",
    ),
    Signal("decision", "decision", "task", "token", "none", "+1 at a right decision, -1 at a wrong one, 0 elsewhere"),
    Signal(
        "turn_reward", "r", "task", "turn", "none",
        "the reward of each turn on the turn's last action token, 0 elsewhere",
    ),
    Signal(
        "anchor_state", "s", "task", "turn", "none",
        "a number for the state of the world before each turn, on all tokens of the turn; equal numbers within a group "
        "mean the same state",
    ),
    Signal(
        "request_ids", "k", "task", "turn", "none",
        "the number, from 1, of the user request that the turn belongs to, on all tokens of the turn",
    ),
    Signal(
        "values", "v", "task", "turn", "a critic, or further rollouts",
        "the value estimate before each turn, from a critic or from further rollouts, on all tokens of the turn",
    ),
    Signal(
        "prefix_value", "vp", "task", "token", "further rollouts",
        "the value estimate before the token, from further rollouts, on all tokens up to where the next value is measured",
    ),
    Signal(
        "judged_turn", "j", "task", "turn", "one short answer of a model per rollout",
        "1 on all tokens of the turn that a prompted judge named, 0 elsewhere; 0 everywhere where it named none",
    ),
    Signal("tool_call", "c", "task", "token", "none", "1 on the tokens of a tool call, 0 on thinking"),
    Signal(
        "answer_span", "span", "task", "token", "none", "1 on the tokens of the rollout's own final answer, 0 elsewhere"
    ),
)  # fmt: skip
SIGNALS: dict[str, Signal] = {signal.name: signal for signal in _TABLE}


def find_signal(name: str) -> Signal | None:
    """One of ours, or one that an installed package brings; None: nobody knows it."""
    return SIGNALS.get(name) or _third_party().get(name)


def how_to_get(name: str) -> str:
    """In brackets, for error messages; empty for a signal nobody knows."""
    known = find_signal(name)
    return f" ({known.how_to_get})" if known else ""


@cache
def _third_party() -> dict[str, Signal]:
    found: dict[str, Signal] = {}
    for entry in plugins.found("signal", SIGNALS).values():
        signal = plugins.load("signal", entry)
        if not isinstance(signal, Signal) or signal.name != entry.name:
            raise GearError(
                f"signal {entry.name!r}: {entry.value!r} is no gear_rl.assignment.signals.Signal of that name."
            )
        found[entry.name] = signal
    return found
