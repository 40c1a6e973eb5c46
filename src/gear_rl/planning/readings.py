"""What a method reads beyond a GRPO step, from what it declares: signals, hint, distillation, cost.

Scoring reads each prompt once and each response once a side (`gear_rl.scoring.scorer`); only action tokens go to the head.
All numbers are of one GPU and one optimizer step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gear_rl.assignment.trust import TRUST_EVERY, takes_a_pass
from gear_rl.methods import Method
from gear_rl.planning.setup import Setup
from gear_rl.scoring.masking import BUDGET

STUDENT = {"reverse_kl", "forward_kl", "entropy", "student_logprob"}
TEACHER = {"reverse_kl", "forward_kl", "teacher_logprob"}
ANSWER = {"answer_logprob", "answer_logprob_start", "frozen_answer_logprob", "frozen_answer_logprob_start"}
DISTILLED_PRODUCTS = 6
"""Of hidden states and head, in a distillation loss: both sides forward, both again backward, and two gradients."""


@dataclass(frozen=True)
class Reading:
    """Passes of the body without gradient, and what is multiplied by the head."""

    what: str
    tokens: int = 0
    attended: float = 0.0
    """Sum over the tokens of how many others each attends to."""
    head: float = 0.0
    """Action tokens × sides: products of a hidden state with the head."""
    backward: bool = False
    """Also backwards, to the embeddings."""
    swapped: bool = False
    """With other weights than the policy's: they are copied in and out."""
    distilled: float = 0.0
    """Action tokens of a distillation loss."""


def teacher_kind(method: Method, setup: Setup) -> str:
    return setup.teacher or method.schedule.teacher or "live"


def keeps_weights(method: Method, setup: Setup) -> int:
    """How many copies of the trained weights the method keeps beside the policy."""
    frozen = bool(set(method.needs) & {"frozen_answer_logprob", "frozen_answer_logprob_start"})
    kind = teacher_kind(method, setup) if method.hint else "live"
    loss = method.distillation
    reference = bool(loss and loss.reference_coefficient and kind != "base")
    return (kind != "live") + (frozen and kind != "base") + reference


def readings(method: Method, setup: Setup) -> list[Reading]:
    needs, found = set(method.needs), list[Reading]()
    swapped = teacher_kind(method, setup) != "live"
    actions = setup.here * setup.completion
    shared, own = _hint(method, setup)
    student, teacher = bool(needs & STUDENT), bool(needs & TEACHER) and method.hint is not None
    if student and teacher and not swapped:
        tokens, attended = _side(setup, shared, own)
        more, more_attended = _side(setup, prompts=0)
        found.append(Reading("student and teacher", tokens + more, attended + more_attended, 2 * actions))
    else:
        if student:
            found.append(Reading("student", *_side(setup), actions))
        if teacher:
            found.append(Reading("teacher", *_side(setup, shared, own), actions, swapped=swapped))
    if "wrong_teacher_logprob" in needs:
        wrong = max(1, int(method.cost.forwards) - 1)
        tokens, attended = _side(setup, setup.completion)
        found.append(
            Reading(f"{wrong} wrong hint(s)", wrong * tokens, wrong * attended, wrong * actions, swapped=swapped)
        )
    if "hindsight_logprob" in needs:
        found.append(Reading("hindsight", *_side(setup, 0, setup.completion // setup.turns + setup.reply), actions))
    if "span_distance" in needs:
        found.append(Reading("hidden states", *_side(setup)))
    if "values" in needs and method.cost.forwards:  # a critic; measured values are further rollouts, which are not counted
        found.append(Reading("critic", *_side(setup)))
    if "judged_turn" in needs:  # by the policy; its short answer is not counted
        found.append(Reading("judge", *_side(setup, prompts=setup.here)))
    if needs & ANSWER:
        before = replace(setup, completion=setup.completion // setup.turns * (setup.turns - 1) or 1)  # the last turn
        tokens, attended = _side(before)
        answers = setup.here * setup.turns * setup.answer
        frozen = any(name.startswith("frozen") for name in needs & ANSWER)
        found.append(Reading("answers", tokens + answers, attended + answers * setup.length, answers, swapped=frozen))
    if needs & {"saliency_mask", "saliency_grad", "answer_saliency"}:
        passes = {"saliency_mask": min(BUDGET, setup.completion) + 1, "saliency_grad": 2, "answer_saliency": 1}
        name = next(name for name in passes if name in needs)
        length = setup.length + setup.answer
        one = setup.here * length
        found.append(
            Reading(
                "answer, token by token" if name == "saliency_mask" else "answer and its gradient",
                passes[name] * one, passes[name] * one * length / 2, passes[name] * setup.here * setup.answer,
                backward=name != "saliency_mask",
            )
        )  # fmt: skip
    if method.hint is not None and takes_a_pass(needs):
        sides = [_side(setup)] if teacher or swapped else [_side(setup, prompts=0)]  # the student's
        sides += [] if teacher else [_side(setup, shared, own)]
        share = 1 / TRUST_EVERY  # of a pass; that the teacher's weights are copied in and out for it is left out
        tokens, attended = round(share * sum(side[0] for side in sides)), share * sum(side[1] for side in sides)
        found.append(Reading(f"trust, every {TRUST_EVERY} steps", tokens, attended, share * len(sides) * actions))
    if (loss := method.distillation) is not None:
        found.append(
            Reading(
                "teacher", *_side(setup, shared, own), swapped=swapped,
                distilled=actions if loss.coefficient else 0,
            )
        )  # fmt: skip
        if loss.reference_coefficient:
            found.append(Reading("starting policy", *_side(setup), swapped=True, distilled=actions))
    return found


def _hint(method: Method, setup: Setup) -> tuple[int, int]:
    """Tokens of the hint: read once for a group, and once for each rollout."""
    if method.hint in ("own", "other"):
        return setup.hint, 0
    if method.hint == "sibling":  # what another rollout of the group said
        return setup.completion, 0
    return 0, setup.hint if method.hint == "feedback" else 0


def _side(setup: Setup, shared: int = 0, own: int = 0, prompts: int | None = None) -> tuple[int, float]:
    """One side's tokens, and what they attend to: prompts with `shared` tokens of hint once each, then for every rollout
    `own` tokens of hint and its response."""
    prompts = setup.prompts_here if prompts is None else prompts
    begin, response = setup.prompt + shared, setup.response + own
    attended = prompts * begin**2 / 2 + setup.here * (response * (setup.prompt + shared) + response**2 / 2)
    return prompts * begin + setup.here * response, attended
