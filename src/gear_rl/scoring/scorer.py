"""From a model to signals: student and teacher read the same sampled tokens, and their distributions are compared.

    student input = prompt ids        + completion ids
    teacher input = hinted prompt ids + the same completion ids, verbatim (never decoded and tokenised again)

The hidden state *before* a token predicts it, so token j of the completion is scored at position P + j − 1, with P the
length of that side's own prompt. Being off by one here is the classic bug of this family; `self_check` looks for it.

What it costs: each prompt once, and what prompts begin with alike once for all; each completion once a side, up to its
last action token; no padding, in passes of at most `token_budget` tokens; and the head for action tokens only. A teacher
that is the live policy reads in the same pass as the student. A side that no needed signal looks at is not read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import torch
from torch import Tensor, nn

from gear_rl.errors import GearError, unknown_name
from gear_rl.scoring.backing_off import backing_off
from gear_rl.scoring.batching import Batch, packed_batches, padded_batches, token_budget, tokens_to_read
from gear_rl.scoring.body import Ids, body_of, evaluating, plain_logprobs, rounds, unwrapped
from gear_rl.scoring.checks import checked
from gear_rl.scoring.divergence import token_divergence
from gear_rl.scoring.fused_norms import fused, provable_norms
from gear_rl.scoring.head import Head
from gear_rl.scoring.packing import KeptPrompts
from gear_rl.scoring.reading import Asked, read_packed, read_padded, why_not_packed
from gear_rl.scoring.teacher import Teacher
from gear_rl.scoring.weights import Body, Weights

SIGNALS = ("reverse_kl", "entropy", "student_logprob", "teacher_logprob")
ON_REQUEST = ("forward_kl",)
"""Signals that cost a little more than `SIGNALS`: computed only where they are asked for."""
_LOOKS_AT = {
    "forward_kl": {"student", "teacher"},
    "reverse_kl": {"student", "teacher"},
    "entropy": {"student"},
    "student_logprob": {"student"},
    "teacher_logprob": {"teacher"},
}
LEAST_SAVED = 0.1
"""Prompts are shared where that saves at least this part of the tokens to read."""

log = logging.getLogger("gear_rl")


class Scorer:
    """Signals for rollouts.

    Args:
        model: A causal language model of transformers: the policy.
        temperature: What the rollouts were sampled with.
        token_budget: Tokens of one forward pass at most, which bounds memory. None: from the memory that is free.
        share_prompts: Read a prompt once for all its rollouts. None: where a check on the model allows it and it saves a
            tenth of the tokens; True: always, and an error where the model does not allow it; False: never.
    """

    def __init__(
        self,
        model: nn.Module | Weights,
        temperature: float = 1.0,
        token_budget: int | None = None,
        share_prompts: bool | None = None,
    ) -> None:
        if token_budget is not None and token_budget < 1:
            raise GearError(f"token_budget must be at least 1 token, not {token_budget}.")
        self.weights = model if isinstance(model, Weights) else Weights(unwrapped(model))
        self.model, self.temperature = self.weights.model, temperature
        self.token_budget, self.share_prompts = token_budget, share_prompts
        self.against_sharing: str | None = None
        """why this model's prompts cannot be shared, once that was looked into"""
        self._proven = False
        self._norms: list[nn.Module] | None = None

    @cached_property
    def _body(self) -> Body:
        """Looked for when first needed: a method without signals of the model trains models that have none."""
        return self.weights.body

    @backing_off
    def score(
        self,
        prompts: Ids,
        hinted_prompts: Ids,
        completions: Ids | Tensor,
        action_mask: Tensor,
        teacher: Teacher,
        needs: Iterable[str] = SIGNALS,
        known: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """`action_mask` (B, T) over the padded completions → signals by name, each (B, T) float32, 0 where masked.

        completions: lists of ids, or all of them padded on the right, (B, T): a tensor on the device saves a copy.
        needs: the signals asked for. Others that come at no cost are returned with them.
        known: signals the caller has already, (B, T): a side is not read for their sake.
        """
        needs, sides = tuple(needs), set[str]()
        has = {name: signal.float() * action_mask for name, signal in (known or {}).items() if name in needs}
        for name in needs:
            if name not in _LOOKS_AT:
                raise unknown_name("signal", name, _LOOKS_AT)
            sides |= _LOOKS_AT[name] if name not in has else set()
        if not sides:
            return has
        prompts, hinted_prompts = _each_once(prompts, hinted_prompts)
        read = {"student": prompts, "teacher": hinted_prompts}
        extra = tuple(name for name in ON_REQUEST if name in needs and name not in has)
        return has | self._score(
            {k: v for k, v in read.items() if k in sides}, completions, action_mask, teacher, extra
        )

    def _score(
        self,
        prompts: dict[str, Ids],
        completions: Ids | Tensor,
        action_mask: Tensor,
        teacher: Teacher,
        extra: tuple[str, ...] = (),
        merge: bool = True,
    ) -> dict[str, Tensor]:
        """The signals that the sides in `prompts` can give. `merge`: do not read twice where both sides read the same."""
        sides_given, live = prompts.keys(), teacher.kind == "live"
        if merge and live and len(prompts) == 2 and prompts["student"] == prompts["teacher"]:
            prompts = {"student": prompts["student"]}
        passes = [list(prompts)] if live else [[side] for side in prompts]  # sides with the same weights read together
        kept = [KeptPrompts() for _ in passes]
        # the mask is brought to the CPU once: below, nothing waits for the device but the look at each result
        ids, mask, counts = checked(self._body, prompts, completions, action_mask)
        names = [name for name in (*SIGNALS, *extra) if _LOOKS_AT[name] <= sides_given]
        signals = {name: torch.zeros(mask.shape, device=ids.device) for name in names}
        if self._norms is None:
            fusible = ids.is_cuda and self.weights.layout.name != "ZeRO-3"  # its hooks stand around every module
            self._norms = provable_norms(body_of(self.model)) if fusible else []
        with evaluating(self.model), fused(self._norms):
            heads: dict[str, Head] = {}
            for sides in passes:
                with self._weights_of(
                    sides[0], teacher
                ):  # a head keeps the tensors it was made from after the swap back
                    heads |= dict.fromkeys(sides, self.weights.head())
            packed, batches = self._batches([[prompts[side] for side in sides] for sides in passes], counts)
            for batch in self._with_idle(batches):
                if batch is None:  # another process has more to read
                    for sides in passes:
                        with self._weights_of(sides[0], teacher):
                            self._body.idle(ids.device)
                    continue
                rows = torch.tensor(batch.rows)
                asked = Asked.of(ids[rows.to(ids.device)], mask[rows], batch.rows)
                at = rows.to(ids.device)[asked.rollout] * mask.shape[1] + asked.token
                states: dict[str, Tensor] = {}
                for i, sides in enumerate(passes):
                    kept[i] = KeptPrompts() if batch.first else kept[i]
                    with self._weights_of(sides[0], teacher):
                        of_sides = [[prompts[side][row] for row in batch.rows] for side in sides]
                        memory = kept[i] if batch.more or not batch.first else None
                        states |= zip(sides, self._hidden(of_sides, asked, packed, memory), strict=True)
                student, teaching = next(iter(states)), list(states)[-1]  # the same one, where one side is read
                result = token_divergence(
                    states[student].to(heads[student].weight.dtype),
                    states[teaching].to(heads[teaching].weight.dtype),
                    heads[student],
                    ids.flatten()[at],
                    heads[teaching],
                    self.temperature,
                    extra=extra,
                )
                for name in names:
                    signals[name].view(-1)[at] = getattr(result, name)
        return signals

    def _weights_of(self, side: str, teacher: Teacher) -> AbstractContextManager[None]:
        return teacher.in_place() if side == "teacher" else nullcontext()

    def _hidden(self, sides: list[Ids], asked: Asked, packed: bool, kept: KeptPrompts | None = None) -> list[Tensor]:
        """For each side, given by its prompts, the hidden state before each wanted token: (N, D)."""
        if packed:
            return read_packed(self._body, sides, asked, kept)
        return [read_padded(self._body, prompts, asked) for prompts in sides]

    def _plain(self, prompts: Ids, completions: Ids, action_mask: Tensor) -> Tensor:
        """What `self_check` compares with: (B, T) log-probabilities by a plain forward."""
        every = self.weights.sharded
        return plain_logprobs(self.model, prompts, completions, action_mask, self.temperature, every)

    def _batches(self, passes: list[list[Ids]], counts: list[int]) -> tuple[bool, Iterable[Batch]]:
        """Whether prompts are shared, and which rollouts go together. Arguments as for `packed_batches`."""
        weight = next(self._body.parameters())
        usual = self.token_budget or token_budget(self._body.config, weight.device, weight.dtype)
        budget = self.weights.part_of(usual)
        if self._may_share(*tokens_to_read(passes, counts), weight.device):
            return True, packed_batches(passes, counts, budget)
        return False, padded_batches(passes, counts, budget)

    def _with_idle(self, batches: Iterable[Batch]) -> Iterable[Batch | None]:
        """`batches`, and None for each one more that another process has, where all must run the same number of passes."""
        if not self.weights.sharded:
            return batches
        mine = list(batches)
        return [*mine, *[None] * (self.weights.most(len(mine)) - len(mine))]

    def _may_share(self, alone: int, shared: int, device: torch.device) -> bool:
        """Whether to share prompts: `alone` tokens to read without, `shared` with it."""
        worth = self.share_prompts or shared <= (1 - LEAST_SAVED) * alone
        if self.share_prompts is False or not (worth or self.weights.sharded):
            return False
        kind = type(self.model).__name__
        if not self._proven:  # with sharded weights, by all processes together, whether it is worth it here or not
            self.against_sharing, self._proven = why_not_packed(self._body, device), True
            if self.against_sharing is not None and self.share_prompts is None:
                log.warning("scoring reads every rollout with its own prompt: %s, %s.", kind, self.against_sharing)
        if self.against_sharing is not None and self.share_prompts:
            raise GearError(f"share_prompts=True, but {kind} cannot share prompts: {self.against_sharing}.")
        return worth and self.against_sharing is None

    def self_check(
        self, prompts: Ids, hinted_prompts: Ids, completions: Ids, action_mask: Tensor, teacher: Teacher
    ) -> None:
        """Before the first step: stop the run unless teacher and student read what they should, where they should.

        (a) With an empty hint the teacher must be the student. (b) With the hint, both must agree with one plain forward
        over each unpadded sequence. (a) alone would not see both being shifted together.
        """
        tolerance = 0.1 if rounds(self.model) else 2e-3
        prompts, hinted_prompts = _each_once(prompts, hinted_prompts)
        # (a) is about what is read, so with the same weights: after a resume an older teacher rightly differs.
        live, unhinted = Teacher(self.model, "live"), {"student": prompts, "teacher": prompts}
        same = self._score(unhinted, completions, action_mask, live, merge=False)
        hinted = self._score({"student": prompts, "teacher": hinted_prompts}, completions, action_mask, teacher)
        with evaluating(self.model):
            plain_student = self._plain(prompts, completions, action_mask)
            with teacher.in_place():
                plain_teacher = self._plain(hinted_prompts, completions, action_mask)
        n = action_mask.sum().clamp(min=1)
        for what, left, right in (
            ("the teacher with an empty hint and the student", same["teacher_logprob"], same["student_logprob"]),
            ("the student's scores and a plain forward", hinted["student_logprob"], plain_student),
            ("the hinted teacher's scores and a plain forward", hinted["teacher_logprob"], plain_teacher),
        ):
            gap = float(((left - right).abs() * action_mask).sum() / n)
            if not gap <= tolerance:
                raise GearError(
                    f"start-up self-check failed: {what} differ by {gap:.3g} nats a token on average (allowed {tolerance}). "
                    "The usual causes: positions shifted by one, a prompt template that differs between the two, or "
                    "dropout left on. Training would learn from wrong signals, so it was stopped."
                )


def _each_once(*sides: Ids) -> list[Ids]:
    """The same prompts, equal ones as one object: from here on they are compared by identity."""
    known: dict[tuple[int, ...], list[int]] = {}
    return [[known.setdefault(tuple(prompt), prompt) for prompt in side] for side in sides]
