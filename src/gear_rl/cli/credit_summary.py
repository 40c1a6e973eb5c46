"""What `gear credit` prints: where the credit lies before and after, by turn and by token text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gear_rl.errors import printable

MOST_TURNS, MOST_TEXTS = 12, 6  # it should fit a screen


class Summary:
    """Where the credit lies, before and after: shares of Σ|A_t| by turn and by token text."""

    def __init__(self, before: str | None, after: str, was: str = "as recorded") -> None:
        self.names, self.was = (_printable(str(before)), _printable(after)), was
        self.rollouts = self.steps = 0
        self.by_turn, self.by_text = Shares(), Shares()

    def add(
        self,
        mask: Sequence[int],
        turns: Sequence[int],
        texts: Sequence[str],
        before: Sequence[float],
        after: Sequence[float],
    ) -> None:
        """One rollout; what stands beyond its texts is padding."""
        self.rollouts += 1
        for i, text in enumerate(texts):
            if mask[i]:
                self.by_turn.add(turns[i], before[i], after[i])
                self.by_text.add(text, before[i], after[i])

    def text(self) -> str:
        of = f" of {self.steps} steps" if self.steps else ""
        lines = [f"{self.rollouts} rollouts{of}, {self.by_turn.tokens.total()} action tokens"]
        if not self.by_turn.after.total():
            return "\n".join([*lines, f"{self.names[1]} gives no credit at all: every advantage is 0."])
        lines += ["", f"share of all tokens, and of all credit (|advantage|) {self.was} and now"]
        lines += [f"{'':18}{'tokens':>10}{self.names[0]:>18}{self.names[1]:>18}"]
        turns = sorted(self.by_turn.tokens)
        if len(turns) > 1:
            lines += [*self.by_turn.rows(turns, MOST_TURNS, "turn {}"), ""]
        texts = sorted(self.by_text.tokens, key=lambda text: -self.by_text.after[text])
        return "\n".join([*lines, *self.by_text.rows(texts, MOST_TEXTS, "{!r}")])


class Shares:
    """Tokens and |A_t| per key, before and after."""

    def __init__(self) -> None:
        self.tokens: Counter[Any] = Counter()
        self.before: Counter[Any] = Counter()
        self.after: Counter[Any] = Counter()

    def add(self, key: Any, before: float, after: float) -> None:
        self.tokens[key] += 1
        self.before[key] += abs(before)  # type: ignore[assignment]
        self.after[key] += abs(after)  # type: ignore[assignment]

    def rows(self, keys: list[Any], most: int, name: str) -> list[str]:
        counters = (self.tokens, self.before, self.after)
        totals = [counter.total() or 1 for counter in counters]
        rows = []
        for key in keys[:most]:
            tokens, before, after = (c[key] / total for c, total in zip(counters, totals, strict=True))
            rows.append(f"{_printable(name.format(key)):18}{tokens:>10.1%}{before:>18.1%}{after:>18.1%}")
        return rows + ([f"… and {len(keys) - most} more"] if len(keys) > most else [])


def _printable(text: str, width: int = 17) -> str:
    """Cut to `width`, and without control characters: what a model wrote must not steer the terminal."""
    text = printable(text)
    return text if len(text) <= width else text[: width - 1] + "…"
