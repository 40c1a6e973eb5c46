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

MOST_TURNS, MOST_TEXTS = 12, 6  # the summary should fit a screen


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
    options = parse_assignments(args.set)
    if isinstance(options.get("credit"), dict):  # credit.alpha=4, as `gear train` spells it
        options |= options.pop("credit")
    chosen = method(args.credit, **options)
    header, rollouts = open_record(source)
    out = args.out or source.with_name(f"{source.stem}.{args.credit}.jsonl")
    if out.exists() and out.samefile(source):
        raise GearError(f"{out} is the record being read; write the new one elsewhere.")
    if out.exists() and not out.is_file():  # never put a file in the place of a folder or a device
        raise GearError(f"{out} is not a file; give the name of a file with --out.")
    if out.exists() and not args.force:
        raise GearError(f"{out} exists. Give another name with --out, or --force to replace it.")
    if not out.parent.is_dir():
        raise GearError(f"there is no folder {out.parent} to write to.")
    summary = Summary(header.get("method"), args.credit)
    own_scale = "scale_rewards" in options or getattr(chosen, "scale_rewards", True) is False
    reassign(rollouts, chosen, header, out, summary, args.from_rewards, own_scale)
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
    own_scale: bool,
) -> None:
    """Credit by `chosen`, step by step, into a new record at `out`; a failure leaves nothing there.

    `own_scale`: the method is meant to scale rewards its own way, which it cannot where an engine has done so already.
    """
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
                if own_scale and tensors.advantages is not None:
                    raise GearError(
                        f"{chosen.name} would scale rewards its own way, but the record holds the advantages that the "
                        "engine trained with, and these are used as they are. Add --from-rewards."
                    )
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


class Summary:
    """Where the credit lies, before and after: shares of Σ|A_t| by turn and by token text."""

    def __init__(self, before: str | None, after: str) -> None:
        self.names = _printable(str(before)), _printable(after)
        self.rollouts = self.steps = 0
        self.by_turn, self.by_text = Shares(), Shares()

    def add(self, lines: list[RecordedRollout], advantages: list[list[float]]) -> None:
        self.steps += 1
        self.rollouts += len(lines)
        for line, after in zip(lines, advantages, strict=True):
            for i, sampled in enumerate(line.action_mask):
                if sampled:
                    self.by_turn.add(line.turns[i], line.advantages[i], after[i])
                    self.by_text.add(line.token_texts[i], line.advantages[i], after[i])

    def text(self) -> str:
        lines = [f"{self.rollouts} rollouts of {self.steps} steps, {self.by_turn.tokens.total()} action tokens"]
        if not self.by_turn.after.total():
            return "\n".join([*lines, f"{self.names[1]} gives no credit at all: every advantage is 0."])
        lines += ["", "share of all tokens, and of all credit (|advantage|) as recorded and now"]
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
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= width else text[: width - 1] + "…"
