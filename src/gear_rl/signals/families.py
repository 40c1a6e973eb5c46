"""Where each signal is computed: one function per family, (batch, names wanted) → name → (B, T)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gear_rl.scoring import answer_logprob, scorer
from gear_rl.scoring.masking import masking_divergence
from gear_rl.scoring.saliency import answer_saliency, noise_saliency
from gear_rl.scoring.span_distance import distances
from gear_rl.scoring.states import states_after
from gear_rl.signals.hint_texts import siblings, wrong_hint_texts
from gear_rl.signals.own_answer import answer_box, answers_in_place, own_answers, own_readings
from gear_rl.signals.reader import Reading

WRONG = "wrong_teacher_logprob"
DIVERGENCE = (*scorer.SIGNALS, *scorer.ON_REQUEST, WRONG)
REFERENCE_ANSWER = (*answer_logprob.SIGNALS, *answer_logprob.FROZEN)
SALIENCY = ("saliency_mask", "saliency_grad")
OWN_ANSWER = ("answer_saliency", "answer_box")

Family = Callable[[Reading, list[str]], dict[str, Tensor]]


def divergence(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    """Student and teacher, in one pass where their weights are the same; and teachers that read wrong hints."""
    reader, sampled, hinted = reading.reader, reading.sampled, reading.hinted
    prompts = sampled.prompt_ids
    asked = [name for name in wanted if name != WRONG]
    if WRONG in wanted and "teacher_logprob" not in asked:
        asked.append("teacher_logprob")
    scored = reader.scorer.score(
        prompts, hinted.prompt_ids if hinted else prompts, sampled.token_ids, sampled.action_mask, reader.teacher,
        asked, sampled.known,
    )  # fmt: skip
    if hinted and hinted.unread:  # a teacher with nothing to read agrees, even where its weights are not the student's
        if "teacher_logprob" in scored and "student_logprob" in scored:
            scored["teacher_logprob"][hinted.unread] = scored["student_logprob"][hinted.unread]
        for name in ("reverse_kl", "forward_kl"):
            if name in scored:
                scored[name][hinted.unread] = 0.0
    if WRONG in wanted:
        scored[WRONG] = _wrong_teachers(reading, scored["teacher_logprob"])
    return scored


def _wrong_teachers(reading: Reading, teacher: Tensor) -> Tensor:
    """log of the mean over a rollout's wrong hints of their teachers' probabilities → (B, T). A rollout without any gets
    the teacher's own word (B, T) back, so that a contrast of the two is 0 (CEPO's code; its paper takes the student)."""
    reader, sampled = reading.reader, reading.sampled
    whole, mine = reading.whole
    texts = wrong_hint_texts(reader.sources, whole, reader.tokenizer, reader.method, reader.success)[mine]
    rollout = [i for i, wrong in enumerate(texts) for _ in wrong]
    out = teacher.clone()
    if not rollout and not reader.scorer.weights.sharded:  # of sharded weights, other processes may have some to read
        return out
    prompts = reader.hints.with_texts([text for wrong in texts for text in wrong], sampled, rollout)
    pick = torch.tensor(rollout, dtype=torch.long, device=sampled.action_mask.device)
    scored = reader.scorer.score(
        prompts, prompts, sampled.token_ids[pick], sampled.action_mask[pick], reader.teacher, ("teacher_logprob",)
    )["teacher_logprob"]
    first = 0
    for i, wrong in enumerate(texts):
        if wrong:
            several = scored[first : first + len(wrong)].double()
            out[i] = (several.logsumexp(0) - torch.tensor(float(len(wrong))).log()).float() * sampled.action_mask[i]
            first += len(wrong)
    return out


def hindsight(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    """The teacher's word once it has read how the rollout ended."""
    reader, sampled = reading.reader, reading.sampled
    prompts = reader.hints.read("final_state", sampled).prompt_ids
    scored = reader.scorer.score(
        prompts, prompts, sampled.token_ids, sampled.action_mask, reader.teacher, ("teacher_logprob",)
    )
    return {"hindsight_logprob": scored["teacher_logprob"]}


def reference_answer(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    reader, sampled = reading.reader, reading.sampled
    answers = [reader.answer(row, i) for i, row in enumerate(sampled.rows)]
    signals: dict[str, Tensor] = {}
    for names in (answer_logprob.SIGNALS, answer_logprob.FROZEN):
        if set(names) & set(wanted):
            read = answer_logprob.answer_logprobs(
                reader.scorer, sampled.prompt_ids, sampled.completion_ids, sampled.action_mask, answers,
                reader.frozen if names is answer_logprob.FROZEN else None,
            )  # fmt: skip
            signals |= {name: read[plain] for name, plain in zip(names, answer_logprob.SIGNALS, strict=True)}
    return signals


def saliency(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    reader, actions = reading.reader, reading.sampled.action_mask
    readings = answers_in_place(reading)
    weights, temperature = reader.scorer.weights, reader.scorer.temperature
    signals = {}
    if "saliency_mask" in wanted:
        signals["saliency_mask"] = masking_divergence(
            weights, readings, actions, temperature, reader.sources.mask_budget
        )
    if "saliency_grad" in wanted:
        signals["saliency_grad"] = noise_saliency(weights, readings, actions, temperature)
    return signals


def own_answer(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    """A rollout without an answer of its own has 0 in both."""
    reader, actions = reading.reader, reading.sampled.action_mask
    answers = own_answers(reading)
    signals = {"answer_box": answer_box(answers, actions)}
    if "answer_saliency" in wanted:
        readings = own_readings(reading, answers)
        signals["answer_saliency"] = answer_saliency(
            reader.scorer.weights, readings, actions, reader.scorer.temperature
        )
    return signals


def spans(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    s, among = reading.sampled, reading.among
    states = states_after(reading.reader.scorer, s.prompt_ids, s.completion_ids, s.action_mask)  # (N, D)
    if among is None:
        return {"span_distance": distances(states, s.action_mask, s.rewards, s.group_ids)}
    whole = among.whole
    distance = distances(among.gather(states), whole.action_mask, whole.rewards, whole.group_ids)
    return {"span_distance": distance[among.mine, : s.action_mask.shape[1]]}


def sibling_length(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    """Of what hints of the kind "any_sibling" show."""
    whole, mine = reading.whole
    lengths = whole.action_mask.sum(1).tolist()
    shown = [0 if j is None else lengths[j] for j in siblings(whole, reading.reader.success, any_where_none=True)][mine]
    actions = reading.sampled.action_mask
    return {"sibling_length": actions * torch.tensor(shown, dtype=torch.float32, device=actions.device)[:, None]}


def tool_call(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    """For a task that cannot tell tool calls from other text: every action token counts as one."""
    return {"tool_call": reading.sampled.action_mask.float()}


FAMILIES: tuple[tuple[tuple[str, ...], Family], ...] = (
    (DIVERGENCE, divergence),
    (("hindsight_logprob",), hindsight),
    (REFERENCE_ANSWER, reference_answer),
    (SALIENCY, saliency),
    (OWN_ANSWER, own_answer),
    (("span_distance",), spans),
    (("sibling_length",), sibling_length),
    (("tool_call",), tool_call),
)
