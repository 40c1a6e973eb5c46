"""What `gear eval` prints: 80 columns, every share with its interval and the number it rests on."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from gear_rl.errors import printable
from gear_rl.evaluation.task_check import Check
from gear_rl.tasks import Task


def show(name: str, split: str, model: str, summary: dict[str, Any], folder: Path, task: Task) -> None:
    ways = [how for how in ("sampled", "greedy") if how in summary]
    problems = summary[ways[0]]["n"]
    print(
        f"{model}\non {problems} problem{'s' if problems != 1 else ''} of {name} ({split}), 95 % intervals over problems"
    )
    for how in ways:
        _show_way(how, summary[how])
    _show_speed(summary["speed"], task)
    print(f"every sample is in {folder}")


def show_check(name: str, check: Check) -> None:
    """One split's reference and empty answers, judged."""
    n = check.problems
    print(f"{name} {check.split}: {n} problem{'s' if n != 1 else ''}")
    for what, right in (("reference", check.reference_right), ("empty", check.empty_right)):
        print(f"  {what:10s}{right:5d} right, {100 * right / n:.4g} %")
    if check.trivially_passable:
        few = "problem is" if check.trivially_passable == 1 else "problems are"
        print(f"  {check.trivially_passable} {few} passed by doing nothing, and the task says so")
    for what, notes in (
        ("not passed even by their reference answer", check.unpassable),
        ("reference answer corrected", check.corrected),
    ):
        if notes:
            print(f"  {len(notes)} of the benchmark's problems: {what}")
        for reason in dict.fromkeys(notes.values()):
            ids = ", ".join(printable(id) for id, why in notes.items() if why == reason)
            print(textwrap.fill(f"{ids}: {reason}", 80, initial_indent="    ", subsequent_indent="      "))
    for failure in check.failures[:5]:
        print(f"  FAILED  {printable(failure)}")
    if len(check.failures) > 5:
        print(f"  and {len(check.failures) - 5} more")
    rate = 2 * n / max(check.seconds, 1e-9)
    print(f"  {check.seconds:.1f} s, {rate:.0f} answers judged a second", flush=True)


def _show_way(how: str, figures: dict[str, Any]) -> None:
    k, n = figures["k"], figures["n"]
    print(f"\n{how}, {k} sample{'s' if k > 1 else ''} of each")
    label = "true success" if k == 1 else f"avg@{k}"
    print(f"  {label:14s}{_share(figures['success'], figures['success_interval'])}")
    for sign in ("pass@", "pass^"):
        for number, value in figures[sign].items():
            print(f"  {sign + number:14s}{_share(value['value'], value['interval'])}")
    low, high = figures["reward_interval"]
    print(f"  {'reward':14s}{figures['reward']:7.3f}   ({low:.3f} to {high:.3f})")
    for channel, value in figures["channels"].items():
        print(f"    {channel[:30]:30s} {value:7.3f}")
    for name, part in figures.get("parts", {}).items():
        print(f"  {printable(name)[:14]:14s}{_share(part['share'], part['interval'])}  {part['decisions']} decisions")
    if "categories" in figures:
        print("  by category" + (f", avg@{k}" if k > 1 else ""))
        for category, part in figures["categories"].items():
            shown = _share(part["success"], part["success_interval"])
            print(f"    {printable(category)[:32]:32s}{shown}  n {part['n']}")
    if figures["trivially_passable"]:
        print(f"  {figures['trivially_passable']} of {n} problems are passed by doing nothing;")
        rest = figures.get("without_trivially_passable")
        if rest:
            print(f"  without them  {_share(rest['success'], rest['success_interval'])}  n {rest['n']}")
    for key, text in (("cut_off", "samples cut off at a limit"), ("malformed_calls", "malformed tool calls")):
        if figures[key]:
            print(f"  {figures[key]} {text}")


def _show_speed(speed: dict[str, Any], task: Task) -> None:
    print()
    if speed["samples"]:
        rate = speed["tokens"] / max(speed["seconds"], 1e-9)
        tokens = f"{speed['tokens']} tokens, {rate:.0f} a second" if speed["tokens"] else "tokens not reported"
        print(f"{speed['samples']} samples in {speed['seconds']:.1f} s: {tokens}")
    else:
        print("all samples were there already")
    if speed["judged"]:
        print(f"{speed['judged']} answers judged, {speed['judged'] / max(speed['judging_seconds'], 1e-9):.0f} a second")
    if task.judge_process is not None and task.judge_process.tally.judged:
        print(f"in processes of their own: {task.judge_process.tally}")


def _share(value: float, interval: tuple[float, float]) -> str:
    return f"{100 * value:6.1f} % ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
