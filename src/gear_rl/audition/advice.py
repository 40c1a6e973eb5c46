"""What the figures of an audition recommend, in words. The thresholds are ours."""

from __future__ import annotations

from typing import Any

MUCH_BETTER = 0.2
"""Reward that the hint adds, in shares of what is missing, from which imitation has something to give."""

LITTLE_TRUST = 0.02
"""Trust that is surely below this is none."""


def advice(found: dict[str, Any]) -> list[str]:
    """A few sentences, the most important first."""
    outcome, hint, rows = found["outcome"], found["hint"], found["methods"]
    said = []
    if outcome["mixed_groups"] < 0.2:
        said.append(
            f"Only {_percent(outcome['mixed_groups'])} of the groups have different rewards: most rollouts teach nothing, "
            "whatever the method. Easier or harder prompts, or larger groups, would help more than credit."
        )
    if hint is not None:
        said.append(_about_hint(outcome, hint))
    others = [row for row in rows if row["method"] not in ("grpo", "oracle")]
    ahead = [row for row in others if row["interval"][0] > 0]
    trusted = hint is not None and hint["trust_interval"][0] > 0 and hint["trust_interval"][1] >= LITTLE_TRUST
    if not ahead:
        best = f" (the best, {others[0]['method']}: {_with_interval(others[0])})" if others else ""
        said.append(
            f"No method's credit agrees clearly with what single turns did{best}. Plain GRPO may be enough here; "
            f"{outcome['measured_turns']} measured turns cannot show small agreements."
        )
    else:
        names = ", ".join(f"{row['method']} ({_with_interval(row)})" for row in ahead[:3])
        said.append(f"Credit that agrees with what single turns did: {names}. GRPO has 0.")
    if len(ahead) > 1:
        said.append(
            "Which of them learns most, an audition cannot say; the first fifth of a training says more: gear compare with a "
            "fifth of the steps and train.schedule=constant."
        )
    if hint is not None and not trusted:
        said.append("Prefer methods that read no hint.")
    return said


def _about_hint(outcome: dict[str, Any], hint: dict[str, Any]) -> str:
    """By two measures, which can disagree. Trust: do the policy's own rollouts win where they go with the hinted self? Reward:
    does the model win more with the hint in its prompt?"""
    gained = hint["reward"] - outcome["reward"]
    missing = max(1e-9, 1.0 - outcome["reward"])
    low, high = hint["trust_interval"]
    trust = f"trust {hint['trust']:.2f}, {low:.2f} to {high:.2f}"
    rewards = f"reward {hint['reward']:.2f} with it, {outcome['reward']:.2f} without"
    if high < LITTLE_TRUST:
        but = "reading it raises the reward, but " if gained > 0 else "reading it does not raise the reward, and "
        return f"Do not use the hint: {but}rollouts that follow it do not win more often ({rewards}; {trust})."
    if low <= 0:
        said = f"Whether following the hint goes with winning is not clear yet ({trust}: the interval holds 0)"
        more = "" if gained > 0 else f", and reading it does not raise the reward ({rewards})"
        return f"{said}{more}: take more prompts."
    if gained <= 0:
        by_chance = hint["reward_interval"][1] > outcome["reward"]
        return (
            f"The two measures of the hint disagree. Rollouts that follow it win more often ({trust}), but the model does not "
            f"win more when it reads it ({rewards}{'; this may be chance, take more prompts' if by_chance else ''}). Do not "
            "distil (opsd), which makes the model act as it does with the hint. Credit that reads the hint may still help."
        )
    if gained > MUCH_BETTER * missing:
        return (
            f"The hint helps ({rewards}) and following it goes with winning ({trust}). If every hint is right, distil (opsd); "
            "if some may be wrong, checked_hints weighs each by the outcomes."
        )
    return f"Following the hint goes with winning ({trust}), but reading it adds little ({rewards})."


def _with_interval(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    return f"{row['agreement']:.2f}, {low:.2f} to {high:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
