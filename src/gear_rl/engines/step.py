"""One step of credit for every engine: from what was sampled to token advantages, in one direction.

    Sampled → hints → signals → method → credit → record and metrics

An engine builds a `Sampled` from its own batch, calls the step, and puts `Scored.credit.advantages` where its loss reads
them. `gear credit` and `gear localize` use the same parts without an engine. Nothing here imports TRL or verl.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.trust import TRUST_EVERY, TRUST_READS, TrustMemory, takes_a_pass, trust_of
from gear_rl.engines.ranks import Alone, Ranks
from gear_rl.engines.whole_batch import own_rollouts, whole_batch, whole_hinted
from gear_rl.errors import GearError
from gear_rl.files import read_json
from gear_rl.methods import Method
from gear_rl.scoring.answer_logprob import FROZEN as FROZEN_SIGNALS
from gear_rl.scoring.guards import LEAST_SHARE, LEAST_TOKENS, Guards, copied_tokens, focus, has_contrast, share_of
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.distillation import DistillationTerm
from gear_rl.signals.families import DIVERGENCE
from gear_rl.signals.hinted import Hinted
from gear_rl.signals.providers import Reader, Reading, collect, from_task
from gear_rl.signals.reader import Among
from gear_rl.signals.sampled import Sampled

TEACHER, REFERENCE, GUARDS = "gear_teacher.safetensors", "gear_reference.safetensors", "gear_guards.json"
FROZEN = "gear_frozen.safetensors"
ALL = slice(None)
CHECKED_ROLLOUTS = 16
"""Rollouts that the start-up self-check reads, at most."""


@dataclass(frozen=True)
class Scored:
    """A batch with its credit."""

    step: int
    """Optimizer steps taken before it was sampled."""
    sampled: Sampled
    hinted: Hinted | None
    """What the teacher read; None: the method has no teacher."""
    rollouts: Rollouts
    credit: Credit
    metrics: dict[str, float]
    """Signals, credit and guards over the batch of all processes, to be logged."""


def teacher_of(
    method: Method, model: Any, kind: str | None = None, every: int | None = None, decay: float | None = None
) -> Teacher:
    """The teacher of `method`: what the user names, else what the method's source uses, else the live policy."""
    source = method.schedule
    return Teacher(
        model,
        kind or source.teacher or "live",
        every or source.teacher_every or 20,
        decay or source.teacher_decay or 0.05,
    )


class Recorder(Protocol):
    """Sees every scored batch: a run folder, a report, a test. With several processes the first one calls it, with the
    batch of all."""

    def __call__(self, scored: Scored, /) -> None: ...


class CreditStep:
    """Call it with a batch and the number of optimizer steps taken. It keeps the teacher and the guards between calls.

    Args:
        method: The credit method.
        reader: Reads signals with the policy and its teacher. None: there is no model, which methods without needs allow.
        mix_steps: Let λ (`mix`) fall linearly to 0 over so many optimizer steps. None: as the method's source. 0: constant.
        ranks: The processes that share a batch. None: this one alone.
        recorder: Called with every scored batch.
    """

    def __init__(
        self,
        method: Method,
        reader: Reader | None,
        *,
        mix_steps: int | None = None,
        ranks: Ranks | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.method, self.recorder = method, recorder
        self.mix_steps = method.schedule.mix_steps if mix_steps is None else mix_steps
        self._reader = reader
        self.ranks: Ranks = ranks or Alone()
        self.guards = Guards()
        self.trust = TrustMemory()
        self._checked = False
        self._frozen: Teacher | None = None
        if reader is not None and set(method.needs) & set(FROZEN_SIGNALS):
            self._frozen = reader.frozen  # now, before a step moves the weights

    def __call__(self, sampled: Sampled, step: int = 0, hinted: Hinted | None = None) -> Scored:
        """This process's rollouts → they, with their credit. `hinted`: what `read_hints` gave, where an engine had to ask
        for it before."""
        if self._reader is not None:
            self._reader.teacher.begin()  # before the first optimizer step, whether it is read by then or not
        ranks = self.ranks
        whole, mine = whole_batch(sampled, ranks)
        hinted = hinted or self.read_hints(sampled, whole, mine)
        self.check(sampled, hinted)
        signals = {}
        if self._reader is not None:
            said = from_task(sampled, self.reader.sources)
            among = Among(whole, mine, ranks.rows) if ranks.size > 1 else None
            signals = collect(Reading(self.reader, sampled, hinted, said, among), self._signals_to_read(step))
        channels = self._channels(sampled)
        rollouts = Rollouts(
            action_mask=whole.action_mask,
            rewards=whole.rewards,
            group_ids=whole.group_ids,
            advantages=whole.advantages,
            token_ids=whole.token_ids,
            signals={name: ranks.rows(signals[name]) for name in sorted(signals)} if ranks.size > 1 else signals,
            channels={name: ranks.rows(values) for name, values in channels.items()},
            trained=whole.trained,
        )
        if self.method.hint is not None and (trust := trust_of(self.method.view(rollouts))) is not None:
            self.trust.add(trust)
            rollouts = replace(rollouts, hint_trust=self.trust.at_least)
        credit = self.current_method(step).assign(rollouts)
        hinted_all = whole_hinted(hinted, ranks)
        scored = Scored(step, whole, hinted_all, rollouts, credit, self._metrics(rollouts, credit, whole, hinted_all))
        if self.recorder is not None and ranks.index == 0:
            self.recorder(scored)
        if ranks.size == 1:
            return scored
        own = own_rollouts(rollouts, credit, mine, sampled.action_mask.shape[1])
        return Scored(step, sampled, hinted, *own, scored.metrics)

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            raise GearError(f"method {self.method.name!r} needs signals, and there is no model to read them with.")
        return self._reader

    @cached_property
    def distillation(self) -> DistillationTerm | None:
        """The loss that the method adds to the engine's. An engine that trains asks for it before its first step: the
        term may keep the starting weights."""
        loss = self.method.distillation
        return DistillationTerm(loss, self.reader.scorer, self.reader.teacher) if loss else None

    def current_method(self, step: int) -> Method:
        """The method with λ as it stands after `step` optimizer steps."""
        if not self.mix_steps or not hasattr(self.method.options, "mix"):
            return self.method
        options = vars(self.method.options)
        left = max(0.0, 1.0 - step / self.mix_steps)
        return type(self.method)(**{**options, "mix": left * options["mix"]})

    def _signals_to_read(self, step: int) -> tuple[str, ...]:
        """What the method needs; and, for a method with a hint, what trust in it is measured with."""
        needs = self.method.needs
        if self.method.hint is None or (takes_a_pass(needs) and step % TRUST_EVERY):
            return needs
        return tuple(dict.fromkeys((*needs, *TRUST_READS)))

    # ------------------------------------------------------------------------------------------ hints and checks
    def read_hints(self, sampled: Sampled, whole: Sampled | None = None, mine: slice = ALL) -> Hinted | None:
        """What the teacher reads of `sampled`, which is the part `mine` of the batch `whole`; None: all of it."""
        if self.method.hint is None:
            return None
        hints = self.reader.hints
        if whole is None:
            return hints.read(self.method.hint, sampled)
        feedback = hints.feedback(self.method.hint, sampled)  # of this process: only it has the environments
        feedback = [text for part in self.ranks.objects(feedback) for text in part]
        return hints.hinted(hints.texts(self.method.hint, whole, feedback)[mine], sampled)

    def check(self, sampled: Sampled, hinted: Hinted | None) -> None:
        """Once, before the first step: do teacher and student read what they should, where they should?"""
        if self._checked or self._reader is None:
            return
        reader = self._reader
        if hinted is not None:
            reader.hints.check_tokenization(sampled)
        if self.method.distillation is not None or set(self.method.needs) & set(DIVERGENCE):
            few = slice(0, CHECKED_ROLLOUTS)
            other = hinted.prompt_ids if hinted else sampled.prompt_ids
            reader.scorer.self_check(
                sampled.prompt_ids[few],
                other[few],
                sampled.completion_ids[few],
                sampled.action_mask[few],
                reader.teacher,
            )
        self._checked = True

    def _channels(self, sampled: Sampled) -> dict[str, Tensor]:
        """Name → (B,): the parts of the reward, where the method reads them."""
        if not self.method.fewest_channels:
            return {}
        if sampled.channels:
            return dict(sampled.channels)
        found = self.reader.sources.knowledge.channels(sampled)
        for name, values in found.items():
            if len(values) != len(sampled):
                raise GearError(f"channel {name!r} has {len(values)} values for {len(sampled)} rollouts.")
        device = sampled.action_mask.device
        return {name: torch.tensor(values, dtype=torch.float32, device=device) for name, values in found.items()}

    # ------------------------------------------------------------------------------------------ metrics
    def _metrics(self, rollouts: Rollouts, credit: Credit, sampled: Sampled, hinted: Hinted | None) -> dict[str, float]:
        mask, n = rollouts.action_mask, rollouts.action_mask.sum().clamp(min=1)
        values = {f"signals/{name}": float((signal * mask).sum() / n) for name, signal in rollouts.signals.items()}
        if self._reader is not None:
            values |= self._reader.sources.knowledge.metrics
        if rollouts.hint_trust is not None:
            values["hints/trust"] = self.trust.mean
        values["credit/mean_abs_advantage"] = float(credit.advantages.abs().sum() / n)
        values["credit/weight_max"] = float(credit.weights.max())
        values["credit/onsets_per_rollout"] = float(credit.onsets.sum(1).float().mean())
        length, even = float(n) / len(mask), focus(credit.weights, mask)
        guarded = {"length": length, "focus": even}
        if length >= LEAST_TOKENS:
            guarded["tokens"] = even * length
        if rollouts.hint_trust is not None:
            guarded["trust"] = self.trust.at_most
        contrast = has_contrast(rollouts.rewards, rollouts.group_ids)
        guarded |= self.guards.after_rewards(contrast, float(rollouts.rewards.nanmean().nan_to_num()))
        known = rollouts.signals.get("entropy", sampled.known.get("entropy"))  # a method that does not need it may know it
        entropy = self.guards.entropy if known is None else float((known * mask).sum() / n)
        if entropy is not None:
            guarded["entropy"] = entropy
        if hinted is not None:
            unique = list(dict.fromkeys(hinted.texts))
            ids = dict(zip(unique, self.reader.tokenizer(unique, add_special_tokens=False)["input_ids"], strict=True))
            copied = copied_tokens(sampled.completion_ids, [ids[text] for text in hinted.texts], mask)
            values["hints/copied"] = share_of(copied)
            is_short = self.guards.short_of_best(rollouts.rewards)
            if sum(is_short) >= LEAST_SHARE * len(is_short):
                guarded["leak"] = share_of([counts for counts, short in zip(copied, is_short, strict=True) if short])
        values |= {f"guards/{name}": value for name, value in self.guards.watch(guarded).items()}
        return values

    # ------------------------------------------------------------------------------------------ state
    def after_step(self, step: int) -> None:
        """Call after optimizer step number `step`, counted from 1."""
        self.reader.teacher.after_step(step)

    def save(self, folder: Path) -> None:
        """What must be in a checkpoint beside the engine's own files. All processes call it; the first one writes."""
        writes = self.ranks.index == 0
        for name, teacher in self._stateful():
            state = teacher.state(keep=writes)
            if writes:
                save_file({key: value.contiguous() for key, value in state.items()}, folder / name)
        if writes:
            (folder / GUARDS).write_text(json.dumps(vars(self.guards) | {"trust": vars(self.trust)}))

    def load(self, folder: Path) -> None:
        if not (folder / TEACHER).exists():
            return  # a checkpoint of the engine alone
        for name, teacher in self._stateful():
            teacher.load_state(load_file(folder / name))
        kept = read_json(folder / GUARDS, strict=False)
        self.trust = TrustMemory(**kept.pop("trust", {}))
        self.guards = Guards(**kept)

    def _stateful(self) -> Iterable[tuple[str, Teacher]]:
        yield TEACHER, self.reader.teacher
        if self.distillation is not None and self.distillation.reference is not None:
            yield REFERENCE, self.distillation.reference
        if self._frozen is not None and self._frozen is not self.reader.teacher:
            yield FROZEN, self._frozen
