"""`gear credit`: assign credit to saved rollouts with any method, and see where it goes now.

No model is run: the method reads the signals that are in the record.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gear_rl.errors import GearError
from gear_rl.settings import parse_assignments

if TYPE_CHECKING:
    from gear_rl.methods import Method
    from gear_rl.record import RecordedRollout

MOST_ROWS = 12
"""Of a summary's table: it should fit a screen."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("record", metavar="RECORD", type=Path, help="rollouts.jsonl of a run, or the run's folder")
    parser.add_argument("--credit", metavar="NAME", required=True, help="the method; `gear methods` lists them")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="an option of the method; may be repeated"
    )
    parser.add_argument(
        "--from-rewards",
        action="store_true",
        help="compute group advantages from the rewards, instead of taking those the engine trained with",
    )
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, help="the new record (RECORD's name with .NAME added)")
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")


def run(args: argparse.Namespace) -> int:
    from gear_rl.methods import method
    from gear_rl.record import open_record

    source = args.record / "rollouts.jsonl" if args.record.is_dir() else args.record
    chosen = method(args.credit, **parse_assignments(args.set))
    header, rollouts = open_record(source)
    if not args.from_rewards and _sets_its_own_scale(chosen, args.set):
        raise GearError(
            f"{args.credit} was asked for its own scaling of rewards, but the record holds the engine's advantages, and "
            "these would be used as they are. Add --from-rewards."
        )
    out = args.out or source.with_name(f"{source.stem}.{args.credit}.jsonl")
    if out.exists() and out.samefile(source):
        raise GearError(f"{out} is the record being read; write the new one elsewhere.")
    if out.exists() and not args.force:
        raise GearError(f"{out} exists. Give another name with --out, or --force to replace it.")
    summary = Summary(header.get("method"), args.credit)
    reassign(rollouts, chosen, header, out, summary, args.from_rewards)
    print(summary.text())
    print(f"\nwritten to {out}")
    return 0


def reassign(
    rollouts: Iterator[RecordedRollout],
    chosen: Method,
    header: dict[str, Any],
    out: Path,
    summary: Summary,
    from_rewards: bool,
) -> None:
    """Credit by `chosen`, step by step, into a new record at `out`; a failure leaves nothing there."""
    from gear_rl.record import RecordWriter, to_rollouts

    facts = {key: value for key, value in header.items() if key not in ("schema", "version")}
    facts |= {
        "method": chosen.name,
        "options": vars(chosen.options),
        "trained_with": header.get("trained_with", {"method": header.get("method"), "options": header.get("options")}),
    }
    scratch = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        with RecordWriter(scratch, facts) as writer:
            for step, lines in groupby(rollouts, key=lambda line: line.step):
                batch = list(lines)
                tensors = to_rollouts(batch, from_rewards=from_rewards)
                credit = chosen.assign(tensors)
                writer.write(
                    step=step,
                    rollouts=tensors,
                    credit=credit,
                    prompts=[line.prompt for line in batch],
                    hinted_prompts=[line.hinted_prompt for line in batch],
                    token_texts=[line.token_texts for line in batch],
                    successes=[line.success for line in batch],
                )
                summary.add(batch, credit.advantages.tolist())
        if not summary.rollouts:
            raise GearError("the record has a header and no rollouts.")
        os.replace(scratch, out)
    finally:
        scratch.unlink(missing_ok=True)


def _sets_its_own_scale(chosen: Method, pairs: list[str]) -> bool:
    return "scale_rewards" in parse_assignments(pairs) or getattr(chosen, "scale_rewards", True) is False


class Summary:
    """Where the credit lies, before and after: shares of Σ|A_t| by turn and by token text."""

    def __init__(self, before: str | None, after: str) -> None:
        self.names = (before or "before", after)
        self.rollouts = self.steps = 0
        self.by_turn: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())  # tokens, credit before, credit after
        self.by_text: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())

    def add(self, lines: list[RecordedRollout], advantages: list[list[float]]) -> None:
        self.steps += 1
        self.rollouts += len(lines)
        for line, after in zip(lines, advantages, strict=True):
            for i, sampled in enumerate(line.action_mask):
                if not sampled:
                    continue
                # repr: what a model wrote must not reach the terminal as control characters
                for counters, key in ((self.by_turn, f"turn {line.turns[i]}"), (self.by_text, repr(line.token_texts[i]))):
                    for counter, amount in zip(counters, (1, abs(line.advantages[i]), abs(after[i])), strict=True):
                        counter[key] += amount  # type: ignore[assignment]

    def text(self) -> str:
        tokens = self.by_turn[0].total()
        lines = [f"{self.rollouts} rollouts of {self.steps} steps, {tokens} action tokens"]
        if not self.by_turn[2].total():
            return "\n".join([*lines, f"{self.names[1]} gives no credit at all: every advantage is 0."])
        lines.append(f"\n{'share of':18}{'tokens':>10}{self.names[0][:16]:>18}{self.names[1][:16]:>18}")
        turns = list(self.by_turn[0])
        if len(turns) > 1:
            lines += self._rows(self.by_turn, turns[:MOST_ROWS], len(turns))
        texts = sorted(self.by_text[0], key=lambda text: -self.by_text[2][text])
        lines += self._rows(self.by_text, texts[: MOST_ROWS // 2], len(texts))
        return "\n".join(lines)

    @staticmethod
    def _rows(counters: tuple[Counter[str], ...], keys: list[str], of: int) -> list[str]:
        totals = [max(counter.total(), 1e-30) for counter in counters]
        rows = []
        for key in keys:
            shares = [counter[key] / total for counter, total in zip(counters, totals, strict=True)]
            name = key if len(key) <= 18 else key[:17] + "…"
            rows.append(f"{name:18}{shares[0]:>10.1%}{shares[1]:>18.1%}{shares[2]:>18.1%}")
        return rows + ([f"… and {of - len(keys)} more"] if of > len(keys) else [])
