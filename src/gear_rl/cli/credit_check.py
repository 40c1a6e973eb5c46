"""`gear credit RECORD --check`: the turns that methods blame and praise most, beside what they did to the outcome.

The record's rollouts are played again, rewound, and continued by the policy that sampled them (`gear_rl.audition`).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gear_rl.cli.arguments import COUNT, add_task, read_settings
from gear_rl.cli.recorded_rollouts import add_step, groups_of, of_step, task_of
from gear_rl.cli.settings import options_by_method
from gear_rl.errors import GearError

if TYPE_CHECKING:
    from torch import Tensor

    from gear_rl.audition.groups import Groups
    from gear_rl.records.recorded import RecordedRollout

ONLY_HERE = ("turns", "continuations", "step", "task", "data", "seed", "json")
NOT_HERE = ("from_rewards", "hint_template", "chat_template")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "check", "Measure turns by going on from before and after them. Also reads --model."
    )
    group.add_argument("--check", action="store_true", help="measure the most blamed and most praised turns")
    group.add_argument("--turns", type=COUNT, metavar="N", help="of each side and method (default 8)")
    group.add_argument("--continuations", type=COUNT, metavar="N", help="of each point at most (default 32)")
    add_step(group)
    add_task(group, default="the run's")
    group.add_argument("--seed", type=int, help="of the task's problems (default: the run's)")
    group.add_argument("--json", action="store_true", help="print JSON")


def refuse_without_check(args: argparse.Namespace) -> None:
    if given := [name for name in ONLY_HERE if getattr(args, name) not in (None, False)]:
        raise GearError(f"--{given[0]} is for --check, which measures turns.")
    if args.credit is None:
        raise GearError("name the method with --credit, or measure the record's own with --check.")


def run(args: argparse.Namespace, source: Path, check_out: Any) -> int:
    """`check_out`: (source, out, force) → an error where `out` cannot be written."""
    from gear_rl.methods import method
    from gear_rl.records.measured import measured_path
    from gear_rl.records.record import is_record, open_record

    for name in NOT_HERE:
        if getattr(args, name):
            raise GearError(f"--{name.replace('_', '-')}: not with --check, which takes a record as it is.")
    if source.exists() and not is_record(source):
        raise GearError(f"{source} is no record: --check plays its rollouts again in their task's world.")
    header, rollouts = open_record(source)
    recorded = str(header.get("method"))
    settings = read_settings(args, ("credit", "task"), short="credit")
    names = [n.strip() for n in (args.credit or recorded).split(",") if n.strip()]
    options = options_by_method(settings.get("credit", {}), names)
    as_recorded = [name for name in names if name == recorded and not options[name]]
    methods = [method(name, **options[name]) for name in names if name not in as_recorded]
    task, config = task_of(source, args.task, settings.get("task", {}))
    out = args.out or measured_path(source)
    check_out(source, out, args.force)
    lines = of_step(rollouts, args.step, source)

    from gear_rl.audition.check import check, text
    from gear_rl.files import write_json

    try:
        groups = groups_of(args, source, config, task, lines)
        advantages: dict[str, Tensor] = {name: _recorded(groups, lines) for name in as_recorded}
        advantages |= {chosen.name: groups.credit(chosen).credit.advantages for chosen in methods}
        found = check(
            groups, lines, {name: advantages[name] for name in names}, args.turns or 8, args.continuations or 32
        )
    finally:
        task.close()
    write_json(out, found)
    print(json.dumps(found, indent=1) if args.json else text(found))
    print(f"\nwritten to {out}; gear report shows it", file=sys.stderr if args.json else sys.stdout)
    return 0


def _recorded(groups: Groups, lines: list[RecordedRollout]) -> Tensor:
    """(B, T) as the record has it."""
    import torch

    from gear_rl.scoring.padding import padded

    return padded([line.advantages for line in lines], torch.float32).to(groups.model.device)
