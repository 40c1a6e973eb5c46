"""Every method and teacher kind in two processes against one: `python tests/helpers/processes_matrix.py OUT [STRATEGY …]`.

Prints a table of the largest differences in weights (the teacher's included). Strategies: ddp, fsdp2, zero2, zero3; the last
two need deepspeed. A minute per ten cases.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from process_cases import difference, run_cases

from gear_rl.methods import METHODS, method
from gear_rl.scoring.teacher import KINDS

AT_ONCE = 12
EVERY_TEACHER = ("gear", "checked_hints", "rlsd", "opsd", "sdpo", "sdpg")
"""Methods that run with every kind of teacher; the others with one kind after the other."""


def cases() -> list[dict]:
    found = []
    for name in [*METHODS, "rlsd+shuffled_outcomes", "opsd+wrong_hint"]:
        arguments = {"loss_type": "dr_grpo", "scale_rewards": "none"} if name == "dr_grpo" else {}
        kinds = KINDS if name in EVERY_TEACHER else (KINDS[len(found) % len(KINDS)],)
        for kind in kinds if method(name).hint else (None,):
            found.append({"name": f"{name}-{kind or 'none'}", "credit": name, "teacher": kind, **arguments})
    return found


def run_all(out: Path, strategy: str, wanted: list[dict]) -> dict[str, str]:
    """Name → why it failed. A failure ends a launch; the cases after it are launched again."""
    failed, left = {}, [case for case in wanted if not (out / strategy / f"{case['name']}.json").exists()]
    while left:
        some, left = left[:AT_ONCE], left[AT_ONCE:]
        result = run_cases(out / strategy, strategy, some, timeout=600)
        undone = [case for case in some if not (out / strategy / f"{case['name']}.json").exists()]
        if undone:
            said = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
            failed[undone[0]["name"]] = said[-1] if said else result.stderr[-300:]
            left = undone[1:] + left
    return failed


def main() -> None:
    out, strategies = Path(sys.argv[1]), sys.argv[2:] or ["ddp", "fsdp2"]
    wanted = cases()
    failed = {strategy: run_all(out, strategy, wanted) for strategy in ["one", *strategies]}
    print(f"| method | teacher | {' | '.join(strategies)} |\n|---|---|{'---|' * len(strategies)}")
    for case in wanted:
        cells = []
        for strategy in strategies:
            if case["name"] in failed[strategy] or case["name"] in failed["one"]:
                cells.append("failed")
                continue
            gap = difference(out / "one", out / strategy, case["name"])
            cells.append(f"{gap.largest:.0e}" + ("" if gap.same_rollouts else " (other rollouts)"))
        print(f"| {case['credit']} | {case['teacher'] or '–'} | {' | '.join(cells)} |", flush=True)
    for strategy, whys in failed.items():
        for name, why in whys.items():
            print(f"\n{strategy}, {name}: {why}", file=sys.stderr)


if __name__ == "__main__":
    main()
