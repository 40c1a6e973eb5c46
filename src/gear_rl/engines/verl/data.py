"""A task's problems as a file that verl reads.

    python -m gear_rl.engines.verl.data workshop --set steps=4 --split train --count 256 --out train.parquet

Each line has verl's own columns and, as JSON text in `gear_row`, the task's row, which the agent loop `gear_task` plays.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.tasks import make_task
from gear_rl.tasks.base import Row, check_rows

ROW = "gear_row"
LOOP = "gear_task"


def as_verl(row: Row, index: int, split: str, source: str) -> dict[str, Any]:
    """One line of the file. Prompts of plain text become one user message: verl's agent loops read messages."""
    prompt = row["prompt"]
    return {
        "prompt": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt,
        "data_source": source,
        "reward_model": {"style": "rule", "ground_truth": str(row.get("answer") or "")},
        "extra_info": {"index": index, "split": split},
        "agent_name": LOOP,
        "hint": str(row.get("hint") or ""),
        ROW: json.dumps(row, ensure_ascii=False),
    }


def write(task: str, options: dict[str, Any], split: str, count: int | None, seed: int, out: Path) -> int:
    """Writes the file; returns how many problems it holds."""
    if out.suffix != ".parquet":
        raise GearError(f"--out {out}: verl reads .parquet.")
    import datasets

    rows = check_rows(make_task(task, **options).rows(split, count, seed), split)
    lines = [as_verl(row, i, split, task) for i, row in enumerate(rows)]
    out.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_list(lines).to_parquet(str(out))
    return len(lines)


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """`["steps=4", "task.hint=answer"]` → `{"steps": 4, "hint": "answer"}`: JSON where it is some, else text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise GearError(f"--set {pair!r}: write it as NAME=VALUE.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        options[name.removeprefix("task.")] = value
    return options


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m gear_rl.engines.verl.data", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task", metavar="TASK", help="a task's name, package.module:Class, or a .jsonl file")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="an option of the task")
    parser.add_argument("--split", default="train")
    parser.add_argument("--count", type=int, help="problems (default: the whole split)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    try:
        written = write(args.task, parse_options(args.set), args.split, args.count, args.seed, args.out)
    except GearError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: {written} problems of {args.task}, {args.split}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
