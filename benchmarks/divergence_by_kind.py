"""Which tokens does the hinted self disagree about? By kind of token, as a table, JSON and a picture.

    python benchmarks/divergence_by_kind.py --worlds 1 2 3 --rollouts 500 --out kinds.json --svg kinds.svg

The model of each world plays test orders. Its hinted self then reads the same tokens. Per kind of token: how many there are,
the mean reverse KL in nats, the share of all divergence, and the share of the tenth of all tokens that diverge most.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gear_rl.localize.tasks import from_task
from gear_rl.localize.teachers import Teachers
from gear_rl.models import load_model
from gear_rl.signals.sources import Sources
from gear_rl.tasks.workshop import Workshop
from gear_rl.tasks.workshop.world import FILLERS, PARTS, TOOLS

KINDS = ("filler", "right tool", "wrong tool", "part", "answer", "end and form")
FIGURES = {"mean": "mean reverse KL, nats", "share": "share of all divergence", "top": "share of the top tenth"}


def kind_of(word: str, before: str, decision: float) -> str:
    if before == "answer":
        return "answer"
    if word in TOOLS:
        return "right tool" if decision > 0 else "wrong tool"
    return "filler" if word in FILLERS else "part" if word in PARTS else "end and form"


def measure(task: Workshop, rollouts: int, model: str | None = None) -> dict[str, dict[str, float]]:
    """Kind → its figures, over the action tokens of all rollouts."""
    policy, tokenizer = load_model(model or task.default_model(), "cpu")
    teachers = Teachers(
        policy, tokenizer, None, "cpu", needs=["reverse_kl"], sources=Sources(hint_template=task.hint_template)
    )
    rows = task.rows("test", rollouts)
    scored, _ = from_task(task, rows, policy, tokenizer, teachers, hinted=True, seed=0, temperature=1.0)
    played = scored[0].labelled.rollouts
    divergence, decision = played.signals["reverse_kl"], played.signals["decision"]
    kinds, values = [], []
    for i, t in played.action_mask.nonzero().tolist():
        word, before = (tokenizer.decode([int(played.token_ids[i, k])]) for k in (t, max(0, t - 1)))
        kinds.append(kind_of(word, before if t else "", float(decision[i, t])))
        values.append(float(divergence[i, t]))
    found, total = torch.tensor(values), max(sum(values), 1e-12)
    top = set(found.topk(max(1, len(values) // 10)).indices.tolist())
    measured = {}
    for kind in KINDS:
        own = [i for i, name in enumerate(kinds) if name == kind]
        amount = sum(values[i] for i in own)
        shares = {"share": amount / total, "top": sum(i in top for i in own) / len(top)}
        measured[kind] = {"tokens": len(own), "mean": amount / max(1, len(own)), **shares}
    return measured


def picture(measured: Mapping[str, Mapping[str, float]], title: str) -> str:
    """Three panels of bars, a bar per kind."""
    width, row, left = 720, 22, 110
    panel = (width - left) / len(FIGURES)
    height = 60 + row * len(KINDS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/><text x="8" y="18" font-size="13">{title}</text>',
    ]
    for p, (figure, label) in enumerate(FIGURES.items()):
        x, most = left + p * panel, max(measured[kind][figure] for kind in KINDS) or 1.0
        parts.append(f'<text x="{x:.0f}" y="40" fill="#555">{label}</text>')
        for k, kind in enumerate(KINDS):
            y, value = 50 + k * row, measured[kind][figure]
            parts.append(f'<text x="8" y="{y + 14}">{kind}</text>' if p == 0 else "")
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{(panel - 60) * value / most:.1f}" height="16" fill="#1f6fb5"/>'
            )
            parts.append(f'<text x="{x + (panel - 60) * value / most + 4:.0f}" y="{y + 13}">{value:.3g}</text>')
    return "\n".join([*filter(None, parts), "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--worlds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rollouts", type=int, default=500)
    parser.add_argument("--model", help="a trained model in place of each world's own")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    found = {world: measure(Workshop(world=world), given.rollouts, given.model) for world in given.worlds}
    mean: dict[str, Any] = {
        kind: {name: sum(w[kind][name] for w in found.values()) / len(found) for name in found[given.worlds[0]][kind]}
        for kind in KINDS
    }
    given.out.write_text(json.dumps({"rollouts": given.rollouts, "worlds": found, "mean": mean}, indent=1) + "\n")
    print(f"{'kind':14s} {'tokens':>8s} {'mean':>8s} {'share':>8s} {'top':>8s}")
    for kind, m in mean.items():
        print(f"{kind:14s} {m['tokens']:8.0f} {m['mean']:8.3f} {m['share']:8.3f} {m['top']:8.3f}")
    if given.svg:
        worlds = ", ".join(map(str, given.worlds))
        given.svg.write_text(
            picture(mean, f"Where student and hinted self disagree: world {worlds}, {given.rollouts} rollouts each")
        )


if __name__ == "__main__":
    main()
