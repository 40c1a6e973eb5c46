"""An audition for people, in 80 columns."""

from __future__ import annotations

import textwrap
from typing import Any

WIDTH = 80


def text(found: dict[str, Any]) -> str:
    outcome, hint, seconds = found["outcome"], found["hint"], found["seconds"]
    low, high = outcome["reward_interval"]
    many = f"{found['prompts']} prompts, {found['group']} rollouts each, {found['continuations']} continuations"
    moved = (
        f"{outcome['clear_turns']} of {outcome['measured_turns']} measured {found['points']} clearly moved the outcome"
    )
    lucky = found["lucky_wins"]
    lines = [
        f"Task {found['task']}: {many}",
        f"({seconds['playing']:.0f} s playing, {seconds['measuring']:.0f} s measuring)",
        "",
        "Is there anything to gain?",
        f"  reward {outcome['reward']:.3f} ({low:.3f} to {high:.3f}), success {_percent(outcome['success'])}",
        f"  {_percent(outcome['mixed_groups'])} of the groups have different rewards",
        f"  {outcome['turns']:.1f} turns and {outcome['action_tokens']:.0f} tokens of the policy in a rollout",
        f"  {moved}",
        f"  the top tenth made {_percent(outcome['top_tenth'])} of all that was moved",
        *_known(found),
        f"  {lucky['lucky']} of {lucky['won']} measured wins were lucky: their value had collapsed on the way",
        "",
        "Is the hint any good?",
    ]
    lines += _about(hint) if hint else ["  there is none"]
    for other in found["other_hints"]:
        lines += [f"  of form {other['form']} instead:", *(f"  {line}" for line in _about(other))]
    lines += [
        "",
        f"Whose credit agrees with what each {found['points'][:-1]} did to the outcome? (95 % intervals)",
        f"  {'method':18} {'agreement':23} {'finds':>5} {'style':>5} {'tokens':>6} {'seconds':>7} {'passes':>6}",
    ]
    lines += [f"  {_row(row)}" for row in found["methods"]]
    for why in dict.fromkeys(found["left_out"].values()):
        names = ", ".join(name for name, given in found["left_out"].items() if given == why)
        lines += textwrap.wrap(f"left out: {names}: {why}", WIDTH, initial_indent="  ", subsequent_indent="    ")
    lines += _step(found.get("step"))
    lines += ["", "What to do"]
    for said in found["advice"]:
        lines += textwrap.wrap(said, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(lines)


def _step(step: dict[str, Any] | None) -> list[str]:
    """Methods that cost the same share a line."""
    if step is None:
        return ["", "What would it cost? gear plan does not know this kind of model"]
    by_cost: dict[str, list[str]] = {}
    for name, one in sorted(step["methods"].items(), key=lambda item: item[1]["seconds"]):
        fits = "" if one["fits"] else " (does not fit)"
        by_cost.setdefault(f"{rounded(one['gib'])} GiB{fits}, {rounded(one['seconds'])} s", []).append(name)
    lines = ["", f"What would it cost? A step of {step['rollouts']} such rollouts, one {step['gpu']}, by gear plan"]
    for cost, names in by_cost.items():
        lines += textwrap.wrap(f"{cost}: {', '.join(names)}", WIDTH, initial_indent="  ", subsequent_indent="    ")
    return lines


def rounded(value: float) -> str:
    """Two digits of a small number, and no exponent for a large one."""
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _known(found: dict[str, Any]) -> list[str]:
    """What measuring says of turns that the task knows to be wrong."""
    if (known := found["wrong_turns"]) is None:
        return []
    low, high = known["interval"]
    told = f"{known['wrong']} wrong {found['points']} are told from {known['right']} right ones"
    return [f"  {told} with an AUC of {known['auc']:.2f} ({low:.2f} to {high:.2f})"]


def _about(hint: dict[str, Any]) -> list[str]:
    (low, high), trust = hint["reward_interval"], hint["trust_interval"]
    return [
        f"  with it: reward {hint['reward']:.3f} ({low:.3f} to {high:.3f}), success {_percent(hint['success'])}",
        f"  trust {hint['trust']:.3f} ({trust[0]:.3f} to {trust[1]:.3f}): correlation of following it and winning",
        f"  copied from it: {_percent(hint['copied_with_it'])} of the tokens with it, {_percent(hint['copied'])} without it",
    ]


def _row(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    agreement = f"{row['agreement']:.2f} ({low:.2f} to {high:.2f})"
    finds, style = ("–" if row[key] is None else _percent(row[key]) for key in ("finds", "style"))
    figures = f"{finds:>5} {style:>5} {row['tokens']:6.1f} {row['seconds']:7.1f} {row['passes']:>6}"
    return f"{row['method']:18} {agreement:23} {figures}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
