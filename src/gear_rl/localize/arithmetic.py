"""Arithmetic chains: sums worked out step by step with one planted mistake, in the ProcessBench layout.

For any chat model: whether *its* divergence from its hinted self finds a mistake, before a training run is paid for. The
mistake is carried on consistently, as a model carries it on: every later step is right in itself.
"""

from __future__ import annotations

import random
from typing import Any

FEWEST_TERMS, MOST_TERMS = 5, 9
SLIPS = (-10, -3, -2, -1, 1, 2, 3, 10)
"""What a wrong step is off by. None shows in the number of digits."""


def arithmetic_chains(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """`count` different rows: {"id", "problem", "steps", "label", "answer", "solution"}."""
    rng = random.Random(f"arithmetic-{seed}")
    return [_chain(rng, f"arithmetic-{seed}-{i}") for i in range(count)]


def _chain(rng: random.Random, name: str) -> dict[str, Any]:
    terms = [rng.randrange(12, 90) for _ in range(rng.randint(FEWEST_TERMS, MOST_TERMS))]
    wrong = rng.randrange(len(terms) - 1)
    solution, total = _steps(terms, None, 0)
    steps, _ = _steps(terms, wrong, rng.choice(SLIPS))
    return {
        "id": name,
        "problem": f"Add these numbers one after the other, one sum per step: {', '.join(map(str, terms))}.",
        "steps": steps,
        "label": wrong,
        "answer": str(total),
        "solution": "\n".join(solution),
    }


def _steps(terms: list[int], wrong: int | None, slip: int) -> tuple[list[str], int]:
    steps, total = [], terms[0]
    for i, term in enumerate(terms[1:]):
        result = total + term + (slip if i == wrong else 0)
        steps.append(f"Step {i + 1}: {total} + {term} = {result}")
        total = result
    return steps, total
