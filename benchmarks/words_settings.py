"""Learning rate × strength, tuned for each method on the workshop in words: `python benchmarks/words_settings.py FILE [FILE]`.

The files are what `words.py settings --out` wrote: tuning runs and, called again with `--tuned`, reported runs. The two have
different warm starts, handbooks and seeds, and need not be made on one day; reported runs may come from several handbooks,
each with its own warm start. In tuning every method has four runs with each kind of hint: two learning rates × two of its
strengths, and four rates for GRPO, which has no strength and reads no hint, so it is tuned once, beside right hints. The
setting with the highest training reward over the second half of the steps is the method's with that kind of hint; without all
four runs there is no choice. True success is shown in parentheses and chooses nothing.

The grid: the rate at which earlier warm starts found the method best (J, words_rates.py; for GEAR K, words_alpha.py), and twice
that, since most were best at the highest rate tried; the strength of all runs so far, and the one that equal tuning on the
embedded task prefers now or, where it is the same, the next one: up for OPSD, down for RLSD, whose options end there. GRPO has
four rates around J's. GEAR had 3e-5 and 6e-5 in a first form of the grid; K was run after it, so K's handbook and start must
not be reported with it. Tuned on handbook 2 (docs/evidence.md), which must not be reported with it either.
"""

from __future__ import annotations

import argparse
import json
import math
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

from differences import signed
from words_pooled import HINTS, interval
from words_rates import HINT, success
from words_runs import WITHOUT_HINT, late_reward, make_run
from words_runs import Run as Planned

from gear_rl.compare.plan import FIRST_TUNING_SEED

Setting = tuple[str, float]
"""An arm, which is a method with a strength, and a learning rate."""
Run = dict[str, Any]


def _grid(rate: float, *arms: str) -> tuple[Setting, ...]:
    return tuple((arm, times * rate) for times in (1, 2) for arm in arms)


GRID: dict[str, tuple[Setting, ...]] = {
    "grpo": tuple(("grpo", times * 1.5e-5) for times in (0.25, 0.5, 1, 2)),
    "gear": _grid(6e-5, "gear_alpha4", "gear_alpha8"),
    "rlsd": _grid(6e-5, "rlsd", "rlsd_half"),
    "opsd": _grid(6e-5, "opsd", "opsd_coefficient30"),
    "checked_hints": _grid(6e-5, "checked_hints", "checked_hints_coefficient30"),
    "token": _grid(6e-5, "token_alpha4", "token_alpha8"),
    "random_segments": _grid(3e-5, "random_segments_alpha4", "random_segments_alpha8"),
}
"""Method → its four settings."""
COMPARED = (
    *((method, "grpo") for method in GRID if method != "grpo"),
    *((method, "gear") for method in ("rlsd", "checked_hints", "opsd", "token", "random_segments")),
    ("opsd", "rlsd"), ("checked_hints", "opsd"),
)  # fmt: skip
"""A method, and what it is compared with."""
Place = tuple[int, int]
"""Handbook and seed. All reported runs of a handbook are from one warm start."""
SET_THE_GRID = (0, 1)
"""Handbooks of the runs from which the grid was made (A to J, and K)."""


def setting(run: Run) -> Setting:
    return run["arm"], run["learning_rate"]


def hint_of(method: str, hint: str) -> str:
    """Of the method's runs that stand beside others with this kind of hint. GRPO's are the same for all."""
    return HINT if method in WITHOUT_HINT else hint


def tried(runs: list[Run], hint: str) -> dict[str, dict[Setting, Run]]:
    """Method → setting → its tuning run with this kind of hint. All runs of a method are from one warm start (`start`, where
    a file has several): the one with most of them."""
    found: dict[str, dict[Setting, Run]] = {}
    for method, settings in GRID.items():
        by_start: dict[str | None, dict[Setting, Run]] = {}
        for run in runs:
            if run["seed"] == FIRST_TUNING_SEED and run["hint"] == hint_of(method, hint) and setting(run) in settings:
                by_start.setdefault(run.get("start"), {})[setting(run)] = run
        found[method] = max(by_start.values(), key=len, default={})
    return found


def choose(runs: list[Run], hint: str) -> dict[str, Setting]:
    """Method → its setting with this kind of hint, of the methods that have had the whole budget. A run whose reward is not a
    number is none."""
    return {
        method: max(GRID[method], key=lambda one: late_reward(found[one]))
        for method, found in tried(runs, hint).items()
        if len(found) == len(GRID[method]) and all(math.isfinite(late_reward(run)) for run in found.values())
    }


def plan(args: argparse.Namespace, train: Run, task: Run) -> list[Planned]:
    """The tuning runs, method by method; with `args.tuned`, the files that have them, the reported runs, seed by seed."""
    wanted = [(hint, method) for hint in args.hints for method in args.methods if hint_of(method, hint) == hint]
    if not args.tuned:
        first = [(hint, *setting) for hint, method in wanted for setting in GRID[method]]
        return [make_run(args, train, task, arm, hint, rate, FIRST_TUNING_SEED) for hint, arm, rate in first]
    tuning = read(args.tuned)
    if any(run["seed"] == FIRST_TUNING_SEED and world_of(run) == task.get("world", 0) for run in tuning):
        raise SystemExit("--set task.world: another handbook, with its own warm start, than that of the tuning runs.")
    if any(seed >= FIRST_TUNING_SEED for seed in args.seeds):
        raise SystemExit(f"--seeds: below {FIRST_TUNING_SEED}, where the seeds of tuning begin.")
    chosen = {hint: choose(tuning, hint) for hint in args.hints}
    missing = [f"{method}:{hint}" for hint, method in wanted if method not in chosen[hint]]
    if missing:
        raise SystemExit(f"--tuned: no choice for {', '.join(missing)}: tuning runs are missing (see --methods, --hints).")
    best = [(hint, *chosen[hint][method]) for hint, method in wanted]
    return [make_run(args, train, task, arm, hint, rate, seed) for seed in args.seeds for hint, arm, rate in best]


def read(files: list[Path]) -> list[Run]:
    return [run for file in files for run in json.loads(file.read_text())["runs"]]


def reported(runs: list[Run], hint: str) -> dict[str, dict[Place, Run]]:
    """Method → place → its run with the setting chosen for this kind of hint."""
    chosen = choose(runs, hint)
    of = {one: method for method, one in chosen.items()}
    found: dict[str, dict[Place, Run]] = {method: {} for method in chosen}
    used = {world_of(run) for run in runs if run["seed"] >= FIRST_TUNING_SEED} | set(SET_THE_GRID)
    starts: dict[int, set[str | None]] = {}
    for run in sorted(runs, key=lambda run: (world_of(run), run["seed"])):
        method, place = of.get(setting(run)), (world_of(run), run["seed"])
        if method and run["seed"] < FIRST_TUNING_SEED and run["hint"] == hint_of(method, hint):
            if place[0] in used:
                raise SystemExit(f"a run of {method} is on handbook {place[0]}, where settings or their grid were chosen.")
            if place in found[method]:
                raise SystemExit(f"two runs of {method} have handbook {place[0]} and seed {place[1]}.")
            found[method][place] = run
            starts.setdefault(place[0], set()).add(run.get("start"))
    for world, several in starts.items():
        if len(several) > 1:
            raise SystemExit(f"the runs of handbook {world} are from several warm starts: {', '.join(map(str, several))}.")
    return found


def world_of(run: Run) -> int:
    """Its handbook. The oldest files, all of handbook 0, do not say."""
    return run.get("world", 0)


def tuning_table(runs: list[Run], hint: str = HINT) -> str:
    """A row per setting: the reward that chooses, and true success in %."""
    chosen, found = choose(runs, hint), tried(runs, hint)
    lines = ["| method | setting | rate | reward (success, %) | chosen |", "|---" * 5 + "|"]
    for method, settings in GRID.items():
        for arm, rate in settings:
            run = found[method].get((arm, rate))
            shown = f"{late_reward(run):.3f} ({100 * success(run):.1f})" if run else ""
            mark = "yes" if chosen.get(method) == (arm, rate) else ""
            lines.append(f"| {method} | {arm} | {rate:g} | {shown} | {mark} |")
    return "\n".join(lines)


def table(runs: list[Run], hint: str = HINT) -> str:
    """Every reported run, a column per handbook, and the tuned settings."""
    found, chosen = reported(runs, hint), choose(runs, hint)
    worlds = sorted({world for mine in found.values() for world, _ in mine})
    heads = ["method", "setting", *(f"handbook {world}, by seed" for world in worlds), "mean", "greedy, mean"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for method, mine in found.items():
        if mine:
            arm, rate = chosen[method]
            by_world = (
                ", ".join(f"{100 * success(run):.1f}" for (place, _), run in mine.items() if place == world) for world in worlds
            )
            means = (f"{100 * mean(success(run, how) for run in mine.values()):.1f}" for how in ("sampled", "greedy"))
            lines.append("| " + " | ".join([method, f"{arm}, {rate:g}", *by_world, *means]) + " |")
    return "\n".join(lines)


def distances(runs: list[Run]) -> str:
    """Pairs of the same handbook and seed, by kind of hint. Intervals are Student's: over all pairs, as if they were
    independent; and over the warm starts' own means, since seeds of one start are alike, where there are three."""
    heads = ["hint", "", "pairs, warm starts", "mean (95 % over pairs)", "over starts (95 %)", "least to most", "greedy, mean"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for hint, words in HINTS.items():
        found = reported(runs, hint)
        for method, other in COMPARED:
            by_world, greedy = pairs(found, method, other), pairs(found, method, other, "greedy")
            apart = [value for each in by_world.values() for value in each]
            if len(apart) > 1:
                of_starts = interval([mean(each) for each in by_world.values()]) if len(by_world) > 2 else ""
                cells = [words, f"{method} over {other}", f"{len(apart)}, {len(by_world)}", interval(apart), of_starts]
                cells += [f"{signed(min(apart))} to {signed(max(apart))}"]
                cells += [signed(mean(value for each in greedy.values() for value in each))]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pairs(found: dict[str, dict[Place, Run]], method: str, other: str, how: str = "sampled") -> dict[int, list[float]]:
    """Handbook → differences in points, of the seeds that both have."""
    mine, theirs = found.get(method, {}), found.get(other, {})
    apart: dict[int, list[float]] = {}
    for (world, seed), run in mine.items():
        if (world, seed) in theirs:
            apart.setdefault(world, []).append(100 * (success(run, how) - success(theirs[world, seed], how)))
    return apart


def show(runs: list[Run]) -> None:
    for hint, words in HINTS.items():
        if any(run["hint"] == hint for run in runs):
            print(f"{words}:\n\n{tuning_table(runs, hint)}\n\n{table(runs, hint)}\n")
    print(distances(runs))


assert not any(set(one) & set(two) for one, two in combinations(GRID.values(), 2)), "a setting tells its method"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    show(read(parser.parse_args().files))
