"""Credit for traces of verifiers: group by group through the step of every engine, then written into the same lines.

The file is read three times: once for what is in it (an index), once a group at a time for the credit, once to write it. In
memory are the index, one batch of groups, and the advantages, four bytes each.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import torch

from gear_rl.assignment.baselines import relative_to_group
from gear_rl.chat.assistant_tokens import ConversationTokens
from gear_rl.chat.templates import end_tokens
from gear_rl.engines.step import CreditStep, Scored
from gear_rl.engines.transcripts import batches, check_method, check_truth, reader_of, row_of
from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.models import context_of
from gear_rl.records.messages import read_messages
from gear_rl.records.transcripts import TRUTHS, truth_of
from gear_rl.records.verifiers_traces import (
    LONGEST_LINE,
    VerifiersBranch,
    VerifiersTrace,
    filled,
    raw_lines,
    read_verifiers_traces,
    traces_of,
)
from gear_rl.scoring.padding import padded
from gear_rl.signals.hint_texts import other_hints
from gear_rl.signals.sampled import Sampled
from gear_rl.tasks.base import Row

NO_REWARD, FAILED, NOT_TRAINED, ALONE, NO_TOKENS = (
    "without a reward",
    "that failed",
    "of agents that are not trained",
    "alone in their group",
    "without token ids",
)


@dataclass(frozen=True)
class Place:
    """Where a branch of a trace is to be found again."""

    line: str
    """File and line, for messages to the user."""
    offset: int
    trace: int
    branch: int
    group: str
    reward: float
    truth: str
    only: bool
    """Whether it is its trace's only branch."""


@dataclass
class Index:
    places: list[Place] = field(default_factory=list)
    traces: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Traces that get no advantages, by reason."""


def index_traces(path: Path, method: Method, hint_field: str | None = None) -> Index:
    """What of `path` gets credit, with everything checked that can be before a model is loaded."""
    check_method(method, "traces")
    index, members = Index(), Counter[str]()
    for trace in read_verifiers_traces(path):
        index.traces += 1
        branches = [i for i, b in enumerate(trace.branches) if b.trainable and 1 in b.action_mask]
        reason = _reason(trace, bool(branches))
        if reason is not None:
            index.left_out[reason] += 1
            continue
        assert trace.reward is not None
        if len(trace.channels) < method.fewest_channels:
            raise GearError(f"{trace.where}: {len(trace.channels)} rewards; {method.name} needs {method.fewest_channels}.")
        truth, answer = _truth(trace, hint_field), truth_of(trace.data, ("answer",), trace.where)
        check_truth(method, truth, answer, trace.where)
        for i in branches:
            if trace.branches[i].prompt_length == 0:
                raise GearError(f"{trace.where}: begins with a sampled token; nothing stands before it to predict it from.")
        members[trace.group] += 1
        kept = (truth or "") if method.hint == "other" else ""
        index.places += [
            Place(trace.line, trace.offset, trace.index, i, trace.group, trace.reward, kept, len(branches) == 1)
            for i in branches
        ]
    alone = {group for group, n in members.items() if n == 1}
    index.places = [place for place in index.places if place.group not in alone]
    index.left_out[ALONE] += len(alone)
    if not index.places:
        reasons = ", ".join(f"{n} {reason}" for reason, n in index.left_out.items() if n)
        raise GearError(f"{path}: none of {index.traces} traces can get credit: {reasons or 'it is empty'}.")
    return index


def _reason(trace: VerifiersTrace, sampled: bool) -> str | None:
    """Why a trace gets no advantages; None: it does."""
    if not trace.trainable:
        return NOT_TRAINED
    if not trace.ok:
        return FAILED
    if trace.reward is None:
        return NO_REWARD
    return None if sampled else NO_TOKENS


def _truth(trace: VerifiersTrace, hint_field: str | None) -> str | None:
    """What the teacher may read: of the task's data, or of its `info`."""
    info = trace.data.get("info")
    for name in (hint_field,) if hint_field else TRUTHS:
        for place in (trace.data, info if isinstance(info, dict) else {}):
            if (found := truth_of(place, (name,), trace.where)) is not None:
                return found
    return None


class TraceCredit:
    """Advantages of one file's traces. `model` may be None where the method needs no signals."""

    def __init__(
        self,
        path: Path,
        index: Index,
        method: Method,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "",
        hint_template: str = "",
        hint_field: str | None = None,
        temperature: float = 1.0,
        chat: dict[str, Any] | None = None,
    ) -> None:
        self.path, self.index, self.method, self.hint_field = path, index, method, hint_field
        self.model, self.name, self.device = model, name, "cpu" if model is None else model.device
        reader = None
        if model is not None:
            tokens = ConversationTokens(tokenizer, end_tokens(model, tokenizer), name, chat)
            reader = reader_of(method, model, tokenizer, tokens, hint_template, temperature)
        self.step = CreditStep(method, reader)
        self.advantages: dict[int, dict[tuple[int, int], array[float]]] = {}
        """Offset of a line → (trace, node) → a number per sampled token."""

    def assign(self, say: Callable[[int], None] = lambda done: None) -> Iterator[Scored]:
        """Scored batches of whole groups; `advantages` has what they come to."""
        places, groups, done = self.index.places, dict[str, list[int]](), 0
        for i, place in enumerate(places):
            groups.setdefault(place.group, []).append(i)
        wrong = other_hints([place.truth for place in places]) if self.method.hint == "other" else [""] * len(places)
        branched = not all(place.only for place in places)
        with open(self.path, "rb") as file:
            for members, group_ids in batches(list(groups.values())):
                chosen = [places[i] for i in members]
                found = [_read(file, place) for place in chosen]
                sampled = self._sampled(found, group_ids, [wrong[i] for i in members])
                if branched:
                    sampled = self._with_group_advantages(sampled, chosen)
                scored = self.step(sampled)
                for place, (_, branch), row in zip(chosen, found, scored.credit.advantages.tolist(), strict=True):
                    self._keep(place, branch, row)
                yield scored
                done += len(members)
                say(done)

    def write(self, scratch: Path) -> None:
        """The file again, with the advantages in it. All else is as it was, byte for byte."""
        with open(self.path, "rb") as file, open(scratch, "wb") as out:
            for line, _, offset in raw_lines(file, self.path):
                fills = self.advantages.get(offset)
                out.write(filled(line, fills) if fills else line)

    def _sampled(self, found: list[tuple[VerifiersTrace, VerifiersBranch]], group_ids: list[int], wrong: list[str]) -> Sampled:
        traces, device = [trace for trace, _ in found], self.device
        cut = [(branch, branch.prompt_length) for _, branch in found]
        for trace, branch in found:
            self._check_fits(trace, branch)
        names = list(traces[0].channels)
        if self.method.fewest_channels and (other := [t for t in traces if list(t.channels) != names]):
            raise GearError(f"{other[0].where}: its rewards are {', '.join(other[0].channels)}; others' {', '.join(names)}.")
        completions = [branch.token_ids[start:] for branch, start in cut]
        return Sampled(
            rows=[self._row(trace, other) for trace, other in zip(traces, wrong, strict=True)],
            prompts=[self._prompt(trace, branch) for trace, branch in found],
            prompt_ids=[branch.token_ids[:start] for branch, start in cut],
            completion_ids=completions,
            token_ids=padded(completions, torch.long).to(device),
            action_mask=padded([branch.action_mask[start:] for branch, start in cut], torch.bool).to(device),
            rewards=torch.tensor([trace.reward for trace in traces], dtype=torch.float32, device=device),
            group_ids=torch.tensor(group_ids, device=device),
            channels={
                name: torch.tensor([trace.channels[name] for trace in traces], dtype=torch.float32, device=device)
                for name in (names if self.method.fewest_channels else ())
            },
        )

    def _with_group_advantages(self, sampled: Sampled, places: list[Place]) -> Sampled:
        """A trace of several branches is one attempt: in its group's mean and spread it counts once."""
        first = {(place.offset, place.trace): i for i, place in reversed(list(enumerate(places)))}
        rows = torch.tensor(list(first.values()), device=self.device)
        values = relative_to_group(sampled.rewards[rows], sampled.group_ids[rows]).tolist()
        of = dict(zip(first, values, strict=True))
        given = [of[place.offset, place.trace] for place in places]
        return replace(sampled, advantages=torch.tensor(given, dtype=torch.float32, device=self.device))

    def _row(self, trace: VerifiersTrace, wrong: str) -> Row:
        tools = [{"type": "function", "function": {k: v for k, v in tool.items() if k in _SCHEMA}} for tool in trace.tools]
        answer = truth_of(trace.data, ("answer",), trace.where)
        return row_of(_truth(trace, self.hint_field) or "", wrong, answer, tools or None, trace.where)

    def _prompt(self, trace: VerifiersTrace, branch: VerifiersBranch) -> list[dict[str, Any]]:
        """The messages before the first that was sampled: what a hint is put into."""
        if self.method.hint is None:
            return []
        before = branch.messages[: branch.first_sampled]
        return read_messages(before, trace.where)

    def _check_fits(self, trace: VerifiersTrace, branch: VerifiersBranch) -> None:
        if self.model is None:
            return
        known, context = self.model.get_input_embeddings().num_embeddings, context_of(self.model.config)
        if (largest := max(branch.token_ids)) >= known:
            raise GearError(
                f"{trace.where}: token id {largest}, and {self.name} has {known} tokens. Give the model that wrote the traces."
            )
        if len(branch.token_ids) > context:
            raise GearError(f"{trace.where}: longer than the context of {self.name}, {context} tokens.")

    def _keep(self, place: Place, branch: VerifiersBranch, row: list[float]) -> None:
        """A message that several branches share keeps what the first of them came to."""
        line, at = self.advantages.setdefault(place.offset, {}), -branch.prompt_length
        for node, mask in zip(branch.nodes, branch.masks, strict=True):
            values = [row[at + i] for i, sampled in enumerate(mask) if sampled]
            at += len(mask)
            if values:
                line.setdefault((place.trace, node), array("f", values))


_SCHEMA = ("name", "description", "parameters")


def _read(file: BinaryIO, place: Place) -> tuple[VerifiersTrace, VerifiersBranch]:
    file.seek(place.offset)
    trace = traces_of(file.readline(LONGEST_LINE), place.line, place.offset)[place.trace]
    return trace, trace.branches[place.branch]
