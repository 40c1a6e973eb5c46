"""An audition from beginning to end: play, measure, credit, and what all of it comes to, as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

from gear_rl.assignment.trust import TrustMemory, trust_of
from gear_rl.audition.advice import advice
from gear_rl.audition.agreement import agreements
from gear_rl.audition.contents import effective_tokens, finds_mistakes, style, wrong_turns
from gear_rl.audition.groups import Groups
from gear_rl.audition.hint_forms import form_of
from gear_rl.audition.luck import lucky_wins
from gear_rl.audition.values import Interventions, TurnValue
from gear_rl.errors import GearError
from gear_rl.evaluation.intervals import mean_interval
from gear_rl.methods import method
from gear_rl.sampling.rewind import turns_of
from gear_rl.tasks.base import Row, Task

FEWEST_MIXED = 4
"""Groups with different rewards, without which nothing can be measured."""
Say = Callable[[str], None]


def audition(
    groups: Groups,
    methods: Sequence[str],
    rollouts: int,
    most: int,
    say: Say = lambda line: None,
    forms: Mapping[str, tuple[Task, list[Row]]] | None = None,
) -> dict[str, Any]:
    """`rollouts`: how many are measured turn by turn. `most`: continuations of each of their points at most. `forms`: hints in
    other forms (`other_forms`)."""
    mixed = groups.mixed
    if len(mixed) < FEWEST_MIXED:
        raise GearError(
            f"{len(mixed)} of {len(groups.rows) // groups.size} groups have different rewards, and at least {FEWEST_MIXED} are "
            "needed: where all rollouts of a prompt win or lose alike there is nothing to credit. Take other prompts, more "
            "--prompts, a larger --group, or a warm start."
        )
    names = list(dict.fromkeys(["grpo", *methods]))
    say(f"{len(groups.rows)} rollouts played; measuring turns …")
    began = time.monotonic()
    work = Interventions(groups, most)
    turns = work.turns(chosen_rollouts(groups, rollouts))
    measuring = time.monotonic() - began
    say(f"{work.continuations} continuations; crediting with {len(names)} methods …")
    credited, left_out = _credit(groups, names, turns)
    agreed = agreements(
        {name: one["turns"] for name, one in credited.items()},
        [turn.advantage for turn in turns],
        [turn.rollout for turn in turns],
        [groups.group_of[turn.rollout] for turn in turns],
        groups.seed,
    )
    rows = [
        {
            "method": name,
            "agreement": agreed[name].value,
            "interval": agreed[name].interval,
            **{key: one[key] for key in ("finds", "style", "tokens", "seconds", "passes")},
        }
        for name, one in credited.items()
    ]
    found = {
        "task": groups.task.name,
        "prompts": len(groups.rows) // groups.size,
        "group": groups.size,
        "rollouts": len(groups.rows),
        "continuations": work.continuations,
        "sampled_tokens": work.tokens + sum(sum(p.action_mask) for p in groups.played),
        "seconds": {"playing": groups.seconds, "measuring": measuring},
        "points": groups.points,
        "outcome": _outcome(groups, mixed, turns),
        "wrong_turns": wrong_turns(groups, turns),
        "lucky_wins": lucky_wins(groups, turns),
        "hint": _hint(groups, form_of(groups.task)) if groups.has_hints else None,
        "other_hints": [_hint(groups.told(*told), form) for form, told in (forms or {}).items()],
        "methods": sorted(rows, key=lambda row: -row["agreement"]),
        "left_out": left_out,
    }
    return {**found, "advice": advice(found)}


def chosen_rollouts(groups: Groups, count: int) -> list[int]:
    """Rollouts to measure, from groups with different rewards: one that lost and one that won of each in turn."""
    mixed, rewards = groups.mixed, groups.rewards
    ordered = [sorted(groups.siblings(g * groups.size), key=lambda i: rewards[i]) for g in mixed]
    both = [one[0] for one in ordered] + [one[-1] for one in ordered]
    return [both[i] for k in range(len(mixed)) for i in (k, k + len(mixed))][:count]


def _credit(
    groups: Groups, names: Sequence[str], turns: Sequence[TurnValue]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Method → its credit of the measured turns and what it cost; and why others have none here."""
    credited: dict[str, dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    for name in names:
        chosen = method(name)
        began = time.monotonic()
        try:
            scored = groups.credit(chosen)
        except GearError as error:
            left_out[name] = str(error)
            continue
        seconds = time.monotonic() - began
        if not bool(scored.credit.advantages.any()):
            left_out[name] = "it has a loss and no advantages"
            continue
        advantages = scored.credit.advantages
        by_turn = groups.turn_credit(advantages)
        credited[name] = {
            "turns": [by_turn[turn.rollout][turn.turn] for turn in turns],
            "finds": finds_mistakes(groups, advantages) if groups.task.judge_knows_decisions else None,
            "style": style(groups, chosen, advantages) if groups.has_hints else None,
            "tokens": effective_tokens(advantages),
            "seconds": seconds,
            "passes": f"{chosen.cost.forwards} + {chosen.cost.backwards}",
        }
    return credited, left_out


def _outcome(groups: Groups, mixed: list[int], turns: Sequence[TurnValue]) -> dict[str, Any]:
    """Is there anything to gain?"""
    rewards, size = groups.rewards, groups.size
    by_prompt = [mean(rewards[i : i + size]) for i in range(0, len(rewards), size)]
    moved = sorted((abs(turn.advantage) for turn in turns), reverse=True)
    spans = [turns_of(p.action_mask) for p in groups.played]
    return {
        "reward": mean(rewards),
        "reward_interval": mean_interval(by_prompt),
        "success": mean(v.success for v in groups.verdicts),
        "mixed_groups": len(mixed) / (len(rewards) // size),
        "turns": mean(map(len, spans)),
        "action_tokens": mean(sum(p.action_mask) for p in groups.played),
        "measured_turns": len(turns),
        "clear_turns": sum(abs(turn.advantage) > turn.half_width for turn in turns),
        "top_tenth": sum(moved[: max(1, len(moved) // 10)]) / max(sum(moved), 1e-12),
    }


def _hint(groups: Groups, form: str | None) -> dict[str, Any]:
    """Is the hint any good?"""
    verdicts, copied = groups.hinted()
    scored = groups.credit(method("gear"))
    trust = trust_of(scored.rollouts)
    assert trust is not None
    half = 1.96 * TrustMemory.SPREAD / max(1, trust.count) ** 0.5
    rewards = [v.reward for v in verdicts]
    return {
        "form": form,
        "reward": mean(rewards),
        "reward_interval": mean_interval(rewards),
        "success": mean(v.success for v in verdicts),
        "trust": trust.mean,
        "trust_interval": (trust.mean - half, trust.mean + half),
        "copied": scored.metrics.get("hints/copied", 0.0),
        "copied_with_it": copied,
    }
