"""From records to what a page holds: facts per rollout, shares, scales, and the tokens packed for later.

Each record is read once, a rollout at a time. What a page can hold is bounded: when the first run has more, every second
group is let go, then every second of the rest; the groups kept stay whole, and spread over all of training.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gear_rl.methods import METHODS
from gear_rl.records.record import RecordedRollout
from gear_rl.report import packing
from gear_rl.report.clusters import Blamed, Clusters
from gear_rl.report.comparable import Key, SameProblems, refuse_different_tasks
from gear_rl.report.curves import Outcomes, alarms, curves
from gear_rl.report.measured import Measured
from gear_rl.report.scales import Scale
from gear_rl.report.shares import Shares
from gear_rl.report.sources import NothingRecorded, Source, name_runs

MOST_ROLLOUTS = 1000
MOST_TOKENS = 2_000_000
"""In all runs of a page together: about 45 MB."""
PREVIEW = 160
"""Characters of a prompt that the list of groups may show."""
FIRST_TEXTS = 5000
"""So many token texts decide whether this tokenizer writes its own spaces."""


@dataclass
class Entry:
    """One rollout in one run: what the page knows without decoding anything, and the packed rest."""

    facts: dict[str, Any]
    prompt: str
    which_prompt: int
    """The same for two rollouts with the same prompt."""
    prompts: bytes
    texts: bytes
    tokens: bytes
    signals: bytes
    credit: bytes
    verdict: bytes | None
    blamed: Blamed | None


@dataclass
class Run:
    """One run of the page."""

    source: Source
    measured: Measured
    shares: Shares = field(default_factory=Shares)
    outcomes: Outcomes = field(default_factory=Outcomes)
    clusters: Clusters = field(default_factory=Clusters)
    rollouts: int = 0
    tokens: int = 0
    steps: set[int] = field(default_factory=set)
    groups: dict[Key, list[Entry]] = field(default_factory=dict)
    having: dict[str, int] = field(default_factory=dict)
    """Signal → how many rollouts have it."""
    has_hints: bool = False
    spaces: list[int] = field(default_factory=lambda: [0, 0])
    """Texts looked at, and those of them with white space."""

    def add(self, rollout: RecordedRollout) -> Blamed | None:
        """What concerns every rollout, shown or not. Its blamed step."""
        self.rollouts += 1
        self.tokens += len(rollout.token_ids)
        self.steps.add(rollout.step)
        self.shares.add(rollout)
        self.outcomes.add(rollout)
        self.has_hints |= rollout.hinted_prompt is not None
        for name in rollout.signals:
            self.having[name] = self.having.get(name, 0) + 1
        if self.spaces[0] < FIRST_TEXTS:
            self.spaces[0] += len(rollout.token_texts)
            self.spaces[1] += sum(any(c.isspace() for c in text) for text in rollout.token_texts)
        return self.clusters.add(rollout)


@dataclass
class Collection:
    """All that a page, a figure or a JSON summary is made from."""

    runs: list[Run]
    scales: dict[str, Scale]

    @property
    def keys(self) -> list[Key]:
        """Of the groups shown, in the order of training."""
        return list(self.runs[0].groups)


def collect(sources: list[Source], most_rollouts: int = MOST_ROLLOUTS) -> Collection:
    """Read all of `sources`. Raises for one that cannot be compared with the first."""
    name_runs(sources)
    refuse_different_tasks(sources)
    problems = SameProblems(sources[0])
    scales: dict[str, Scale] = {}
    first = _read_first(sources[0], problems, scales, most_rollouts, MOST_TOKENS // len(sources))
    runs = [first, *(_read_other(source, first, problems, scales) for source in sources[1:])]
    for run in runs:
        run.clusters.form()
    return Collection(runs, scales)


def _read_first(
    source: Source, problems: SameProblems, scales: dict[str, Scale], most_rollouts: int, most_tokens: int
) -> Run:
    run = Run(source, Measured(source.record))
    number: dict[Key, int] = {}
    every, rollouts, tokens = 1, 0, 0
    for rollout in source.rollouts():
        blamed, measured = run.add(rollout), run.measured.of(rollout)
        key = (rollout.step, rollout.group)
        problems.remember(key, rollout.prompt)
        if number.setdefault(key, len(number)) % every:
            continue
        run.groups.setdefault(key, []).append(_entry(rollout, scales, blamed, measured))
        rollouts, tokens = rollouts + 1, tokens + len(rollout.token_ids)
        while (rollouts > most_rollouts or tokens > most_tokens) and len(run.groups) > 1:
            every *= 2
            run.groups = {key: entries for key, entries in run.groups.items() if number[key] % every == 0}
            kept = [entry for entries in run.groups.values() for entry in entries]
            rollouts, tokens = len(kept), sum(entry.facts["tokens"] for entry in kept)
    if not run.rollouts:
        raise NothingRecorded(f"{source.record} has a header and no rollouts.")
    return run


def _read_other(source: Source, first: Run, problems: SameProblems, scales: dict[str, Scale]) -> Run:
    """Only the groups that the first run shows are packed; the shares are over all."""
    run = Run(source, Measured(source.record))
    shared: set[Key] = set()
    for rollout in source.rollouts():
        blamed, measured = run.add(rollout), run.measured.of(rollout)
        key = (rollout.step, rollout.group)
        if problems.check(source, key, rollout.prompt):
            shared.add(key)
            if key in first.groups:
                run.groups.setdefault(key, []).append(_entry(rollout, scales, blamed, measured))
    if not run.rollouts:
        raise NothingRecorded(f"{source.record} has a header and no rollouts.")
    problems.refuse_without_overlap(source, len(shared))
    return run


def _entry(
    rollout: RecordedRollout, scales: dict[str, Scale], blamed: Blamed | None, measured: list[dict[str, Any]]
) -> Entry:
    mask = np.asarray(rollout.action_mask, dtype=bool)
    advantages = np.asarray(rollout.advantages, dtype=float)[mask]
    weights = np.asarray(rollout.weights, dtype=float)[mask]
    signals = {name: np.asarray(row, dtype=float)[mask] for name, row in rollout.signals.items()}
    values = {"advantage": advantages, "weight": np.log2(weights, where=weights > 0, out=np.zeros_like(weights))}
    if "student_logprob" in signals and "teacher_logprob" in signals:
        values["gap"] = signals["teacher_logprob"] - signals["student_logprob"]
    for name, row in (values | {f"signal {name}": row for name, row in signals.items()}).items():
        scales.setdefault(name, Scale()).add(row)
    facts = {
        "reward": rollout.reward,
        "success": rollout.success,
        "advantage": rollout.group_advantage,
        "tokens": len(mask),
        "actions": int(mask.sum()),
        "turns": len(np.unique(np.asarray(rollout.turns, dtype=int)[mask])),
        "segments": len(np.unique(np.asarray(rollout.segments, dtype=int)[mask])),
        "onsets": sum(rollout.onsets),
        "peak": _largest(np.abs(advantages)),
        "divergence": _largest(signals["reverse_kl"]) if "reverse_kl" in signals else None,
        "signals": list(signals),
        **({"measured": measured} if measured else {}),
    }
    return Entry(
        facts=facts,
        prompt=rollout.prompt[:PREVIEW],
        which_prompt=hash(rollout.prompt),
        prompts=packing.deflated(packing.texts([rollout.prompt, rollout.hinted_prompt])),
        texts=packing.deflated(packing.texts(rollout.token_texts)),
        tokens=packing.deflated(
            packing.whole_numbers(rollout.token_ids),
            packing.small_numbers(rollout.action_mask),
            packing.whole_numbers(rollout.turns),
        ),
        signals=packing.deflated(*map(packing.floats, signals.values())),
        credit=packing.deflated(
            packing.whole_numbers(rollout.segments),
            packing.small_numbers(rollout.onsets),
            packing.floats(weights),
            packing.floats(advantages),
        ),
        verdict=packing.deflated(packing.texts([json.dumps(rollout.verdict)])) if rollout.verdict else None,
        blamed=blamed,
    )


def _largest(values: np.ndarray) -> float:
    return float(f"{values.max():.6g}") if len(values) else 0.0


# ---------------------------------------------------------------------------------------------------- as plain data
def describe_run(run: Run, texts: list[str], keys: list[Key]) -> dict[str, Any]:
    """A run as the page's index and the JSON summary hold it; `texts`: the tokens whose share is asked for; `keys`: the
    groups shown."""
    shown = sum(map(len, run.groups.values()))
    source, header = run.source, run.source.header
    notes, metrics, trained = list(source.notes), source.metrics, header.get("trained_with")
    if source.config is None and not trained and len(run.steps) > 1:  # a record alone, of a training
        metrics = run.outcomes.metrics()
        notes.append("The curves are of the recorded rollouts: a record alone has no other metrics and no evaluation.")
    elif source.config is None:
        why = "credit was reassigned to rollouts recorded earlier" if trained else "a record of one step has none"
        notes.append(f"No training curves and no evaluation: {why}.")
    if run.measured.others:
        notes.append(f"{run.measured.path.name} has {run.measured.others} turns of other rollouts: they are left out.")
    if shown < run.rollouts:
        notes.append(f"The page holds {shown} of {run.rollouts} rollouts: whole groups, spread evenly over training.")
    return {
        "name": source.name,
        "method": source.method,
        "options": _settings(header.get("options"), source.method),
        "trained_with": trained.get("method") if isinstance(trained, dict) else None,
        "task": source.task,
        "model": _compact(model) if (model := header.get("model")) else None,
        "seed": source.config.get("seed") if source.config else None,
        "rollouts": run.rollouts,
        "steps": len(run.steps),
        "tokens": run.tokens,
        "credit": run.shares.totals(),
        "missing": _missing(run),
        "notes": notes,
        "gaps": run.spaces[1] < 0.02 * run.spaces[0],  # a tokenizer of whole words: the page puts gaps between them
        "evaluation": source.evaluation,
        "curves": curves(metrics),
        "alarms": alarms(metrics),
        "shares": run.shares.result(texts),
        "clusters": run.clusters.result(_places(run, keys)),
    }


def _places(run: Run, keys: list[Key]) -> dict[int, tuple[int, int]]:
    """Id of a blamed step → number of its group on the page, and of its rollout in the group."""
    shown = [(g, i, entry) for g, key in enumerate(keys) for i, entry in enumerate(run.groups.get(key, []))]
    return {id(entry.blamed): (g, i) for g, i, entry in shown if entry.blamed is not None}


def _missing(run: Run) -> dict[str, str]:
    """Colouring → why it cannot be had, or not everywhere."""
    found = {}
    for name in ("reverse_kl", "entropy", "student_logprob", "teacher_logprob", "decision"):
        having = run.having.get(name, 0)
        if not having:
            found[name] = f"{run.source.method} recorded none"
        elif having < run.rollouts:
            found[name] = f"{run.rollouts - having} of {run.rollouts} rollouts have none"
    if not run.has_hints:
        found["hinted_prompt"] = "no teacher was shown a hint"
    return found


def _settings(options: Any, method: str) -> str:
    """An untrusted table of options on one line, less the defaults of our own methods."""
    defaults = vars(METHODS[method].Options()) if method in METHODS else {}
    given = options if isinstance(options, dict) else {}
    other = {key: value for key, value in given.items() if key not in defaults or value != defaults[key]}
    return _compact(", ".join(f"{key}={value}" for key, value in other.items()))


def _compact(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 300 else text[:299] + "…"
