"""Where the credit lies: praise (positive advantages) and blame (negative ones) by turn, kind, decision, place and text.

A share beside the share of tokens is what says something: a method that spreads credit evenly gives each kind its share
of the tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gear_rl.records.record import RecordedRollout
from gear_rl.report.kinds import KINDS, token_kinds

MOST_TURNS, MOST_TEXTS = 12, 12
MOST_DISTINCT_TEXTS = 200_000
LONGEST_TEXT = 48
"""Characters. Two long tokens that begin alike are counted as one."""
PLACES = ("elsewhere", "at an onset", "in the segment after it")
DECISIONS = ("no decision", "right decision", "wrong decision")


class Tally:
    """Tokens, praise and blame per key: (K, 3), growing as keys appear."""

    def __init__(self, rows: int = 0) -> None:
        self.sums = np.zeros((rows, 3))

    def add(self, keys: np.ndarray, advantages: np.ndarray) -> None:
        """keys (n,) small whole numbers, advantages (n,)."""
        if not len(keys):
            return
        size = max(len(self.sums), int(keys.max()) + 1)
        self.sums = np.pad(self.sums, ((0, size - len(self.sums)), (0, 0)))
        for column, amount in enumerate((None, advantages.clip(min=0), (-advantages).clip(min=0))):
            self.sums[:, column] += np.bincount(keys, weights=amount, minlength=size)

    def row(self, key: int, name: str) -> dict[str, Any]:
        tokens, praise, blame = self.sums[key]
        return {"name": name, "tokens": int(tokens), "praise": _short(praise), "blame": _short(blame)}


def most_credited(shares: list[Shares]) -> list[str]:
    """The token texts worth a row: those with the largest share of credit in any run."""
    best: dict[str, float] = {}
    for each in shares:
        for text, share in each.top_texts().items():
            best[text] = max(share, best.get(text, 0.0))
    return sorted(best, key=lambda text: -best[text])[:MOST_TEXTS]


class Shares:
    """Of one run, a rollout at a time; never more in memory than the distinct texts."""

    def __init__(self) -> None:
        self.turns, self.texts = Tally(MOST_TURNS + 1), Tally()
        self.kinds, self.places, self.decisions = Tally(len(KINDS)), Tally(len(PLACES)), Tally(len(DECISIONS))
        self._number: dict[str, int] = {}
        self._more_turns = False

    def add(self, rollout: RecordedRollout) -> None:
        mask = np.asarray(rollout.action_mask, dtype=bool)
        credit = np.asarray(rollout.advantages, dtype=float)[mask]
        if not len(credit):
            return
        turns = np.asarray(rollout.turns)[mask]
        self._more_turns |= bool((turns > MOST_TURNS).any())
        self.turns.add(turns.clip(max=MOST_TURNS), credit)
        self.kinds.add(np.asarray(token_kinds(rollout.token_texts, rollout.action_mask))[mask], credit)
        self.places.add(_places(np.asarray(rollout.segments)[mask], np.asarray(rollout.onsets)[mask]), credit)
        if "decision" in rollout.signals:
            decision = np.asarray(rollout.signals["decision"], dtype=float)[mask]
            self.decisions.add(np.where(decision > 0, 1, np.where(decision < 0, 2, 0)), credit)
        spoken = [text[:LONGEST_TEXT] for text, sampled in zip(rollout.token_texts, rollout.action_mask) if sampled]  # noqa: B905
        self.texts.add(np.asarray([self._text_number(text) for text in spoken]), credit)

    def _text_number(self, text: str) -> int:
        """0 for all texts beyond what is worth remembering."""
        if len(self._number) < MOST_DISTINCT_TEXTS:
            return self._number.setdefault(text, len(self._number) + 1)
        return self._number.get(text, 0)

    def top_texts(self) -> dict[str, float]:
        """The token texts with the most credit, and their share of it."""
        names = {number: text for text, number in self._number.items()}
        credit = self.texts.sums[:, 1:].sum(1)
        order = np.argsort(-credit, kind="stable")[: MOST_TEXTS + 1]
        return {names[int(key)]: float(credit[key] / credit.sum()) for key in order if key in names and credit[key] > 0}

    def result(self, texts: list[str]) -> dict[str, list[dict[str, Any]]]:
        """Rows per question; `texts`: the token texts asked for."""
        last = f"turn {MOST_TURNS} and later" if self._more_turns else f"turn {MOST_TURNS}"
        turns = [f"turn {key}" for key in range(MOST_TURNS)] + [last]
        questions = {
            "turn": [self.turns.row(key, name) for key, name in enumerate(turns)],
            "kind": [self.kinds.row(key, name) for key, name in enumerate(KINDS)],
            "decision": [self.decisions.row(key, DECISIONS[key]) for key in (1, 2, 0)],
            "place": [self.places.row(key, PLACES[key]) for key in (1, 2, 0)],
            "text": [self.texts.row(self._number[text], text) for text in texts if text in self._number],
        }
        return {question: [row for row in rows if row["tokens"]] for question, rows in questions.items()}

    def totals(self) -> dict[str, Any]:
        tokens, praise, blame = self.kinds.sums.sum(0)
        return {"tokens": int(tokens), "praise": _short(praise), "blame": _short(blame)}


def _places(segments: np.ndarray, onsets: np.ndarray) -> np.ndarray:
    """Index into PLACES per action token; both (n,). A segment is adaptive when its first token is an onset."""
    adaptive = np.isin(segments, segments[onsets > 0])
    return np.where(onsets > 0, 1, np.where(adaptive, 2, 0))


def _short(x: float) -> float:
    return float(f"{x:.6g}")
