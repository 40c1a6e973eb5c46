"""`gear methods`: what methods there are, what each needs and costs; and one of them in full."""

from __future__ import annotations

import argparse
import re
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gear_rl.cli.arguments import option_lines, show
from gear_rl.options import listing

if TYPE_CHECKING:
    from gear_rl.methods import Method

LEGEND = """\
needs     signals of each token: {letters}. hint, sibling, feedback: what a teacher reads. \
channels: the parts of the reward. loss: the engine adds a distillation loss.
cost      extra passes over the rollouts of a GRPO step, forwards + backwards; n: one per action token, k: one per turn.
standing  where most of what the code does is known from: the source's full text, its official code, second-hand (a \
transcription or another's implementation), known (GEAR: the abstract's own words), or ours.
`gear methods NAME` shows one in full, with its options."""
HINTS = {
    None: "no teacher",
    "own": "the teacher reads the rollout's own ground truth",
    "other": "the teacher reads another problem's ground truth",
    "sibling": "the teacher reads a successful rollout of the same group",
    "sibling_or_feedback": "the teacher reads a successful rollout of the same group, or else the environment's feedback",
    "any_sibling": "the teacher reads a correct rollout of the same group, or any other where nobody is correct",
    "feedback": "the teacher reads the environment's feedback",
}
OPTIONAL = {"loss": "distillation", "channels": "fewest_channels", "schedule": "schedule", "strength": "strength"}
"""Facts that are shown only of methods that have them, and the key that says so."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this method in full, with its options")
    parser.add_argument("--json", action="store_true", help="print JSON: a list of objects, or one for NAME")


def run(args: argparse.Namespace) -> int:
    from gear_rl.methods import all_methods, find_method

    chosen = [find_method(args.name)] if args.name else list(all_methods().values())
    return show([describe(method) for method in chosen], args, in_full, table)


def describe(method: type[Method]) -> dict[str, Any]:
    """Everything a method declares, as plain data."""
    loss = method().distillation
    return {
        "name": method.name,
        "summary": method.summary,
        "needs": [*method.needs, *needs_beside_signals(method)],
        "cost": {"forwards": method.cost.forwards, "backwards": method.cost.backwards, "why": method.cost.why},
        "standing": method.standing,
        "paper": method.paper,
        "hint": method.hint,
        "fewest_channels": method.fewest_channels,
        "distillation": asdict(loss) if loss else None,
        "schedule": {name: value for name, value in asdict(method.schedule).items() if value is not None},
        "preserves_mass": method.preserves_mass,
        "mass": method.mass,
        "strength": list(method.strength),
        "options": listing(method.Options),
    }


def needs_beside_signals(method: type[Method]) -> list[str]:
    """What must be given or added beside signals: something for a teacher to read, parts of the reward, a loss."""
    from gear_rl.methods.base import SIBLINGS

    reads = {"own": ["hint"], "other": ["hint"], "feedback": ["feedback"], None: []}
    read = ["sibling"] if method.hint in SIBLINGS else reads[method.hint]
    return [*read, *["channels"] * bool(method.fewest_channels), *["loss"] * bool(method().distillation)]


def table(methods: list[dict[str, Any]], width: int) -> str:
    """All methods, a few lines each, within `width` columns."""
    from gear_rl.assignment.signals import find_signal

    rows = [
        (
            m["name"],
            short_needs(m),
            f"{m['cost']['forwards']}+{m['cost']['backwards']}",
            short_standing(m["standing"]),
        )
        for m in methods
    ]
    head = ("method", "needs", "cost", "standing")
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    indent = sum(widths) + 2 * len(widths)
    lines = [_columns(head, widths) + "paper"]
    for row, m in zip(rows, methods, strict=True):
        paper = textwrap.wrap(m["paper"] or "a control of our own", max(20, width - indent))
        lines += [_columns(row, widths) + paper[0], *(" " * indent + line for line in paper[1:])]
        lines.append(textwrap.fill(m["summary"], width, initial_indent="    ", subsequent_indent="    "))
    read = dict.fromkeys(name for m in methods for name in m["needs"])
    letters = ", ".join(f"{s.letter} {name}" for name in read if (s := find_signal(name)) and s.letter != name)
    legend = [
        textwrap.fill(line, width, subsequent_indent=" " * 10) for line in LEGEND.format(letters=letters).splitlines()
    ]
    return "\n".join([*lines, "", *legend])


def short_needs(m: dict[str, Any]) -> str:
    """Signals by their letters."""
    from gear_rl.assignment.signals import find_signal

    return " ".join(s.letter if (s := find_signal(name)) else name for name in m["needs"]) or "-"


def short_standing(standing: str) -> str:
    """What most of it is known from, in a word: "code"."""
    words = re.findall(r"known|full text|official code|second-hand|abstract|ours", standing)
    return words[0].split()[-1] if words else standing.split()[0]


def in_full(m: dict[str, Any], width: int) -> str:
    """One method with its options."""
    facts = {
        "needs": ", ".join(m["needs"]) or "nothing",
        "hint": HINTS[m["hint"]],
        "cost": f"{m['cost']['forwards']} forwards, {m['cost']['backwards']} backwards: {m['cost']['why']}",
        "mass": m["mass"],
        "strength": "gear compare tries "
        + "; ".join(", ".join(f"{k} {v:g}" for k, v in s.items()) for s in m["strength"]),
        "schedule": "as its source: " + ", ".join(f"{name} {value}" for name, value in m["schedule"].items()),
        "loss": str(m["distillation"] and loss_in_words(m["distillation"])),
        "channels": f"at least {m['fewest_channels']} channels of the reward",
        "paper": m["paper"] or "none; a control of our own",
        "standing": m["standing"],
    }
    facts = {name: fact for name, fact in facts.items() if m.get(OPTIONAL.get(name, "name"))}
    lines = [textwrap.fill(f"{m['name']}: {m['summary']}", width), ""]
    for name, fact in facts.items():
        lines.append(textwrap.fill(fact, width, initial_indent=f"{name:10}", subsequent_indent=" " * 10))
    lines += ["", "options (--set credit.NAME=VALUE):" if m["options"] else "no options"]
    return "\n".join([*lines, *option_lines(m["options"], width)])


def loss_in_words(d: dict[str, Any]) -> str:
    """A `Distillation`, as a sentence."""
    over = f"the {d['top_k']} likeliest tokens and a tail" if d["top_k"] else "the full vocabulary"
    kind = {
        "jsd": f"JSD with beta {d['beta']}",
        "reverse_kl": "KL(student, teacher)",
        "forward_kl": "KL(teacher, student)",
    }
    said = f"{d['coefficient']} x {kind[d['kind']]} over {over}"
    if d["entry_clip"]:
        said += f", each entry at most {d['entry_clip']}"
    if d["token_cap"]:
        said += f", each token at most {d['token_cap']}"
    if d["importance_clip"]:
        said += f", times an importance ratio of at most {d['importance_clip']}"
    if d["reference_coefficient"]:
        squared = "the squared log-ratio to" if d["reference"] == "squared" else "the inverse ratio to"
        said += f"; {d['reference_coefficient']} x {squared} the starting policy"
    return said


def _columns(cells: tuple[str, ...], widths: list[int]) -> str:
    return "".join(f"{cell:<{width + 2}}" for cell, width in zip(cells, widths, strict=True))
