"""Is RLSD's lead over GEAR on the workshop in words a matter of α? `python benchmarks/words_alpha.py FILE`.

The file has runs of one warm start with right hints: GEAR with two strengths and two learning rates, and RLSD, the same seeds
for each. Every setting is shown and none is chosen, so no run is used twice.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

from differences import detectable, signed
from words_pooled import interval
from words_rates import success
from words_runs import late_reward
from words_settings import Run, Setting, setting

COMPARED: tuple[tuple[Setting, Setting], ...] = (
    (("rlsd", 6e-5), ("gear_alpha4", 3e-5)),
    (("rlsd", 6e-5), ("gear_alpha8", 3e-5)),
    (("rlsd", 6e-5), ("gear_alpha8", 6e-5)),
    (("gear_alpha8", 3e-5), ("gear_alpha4", 3e-5)),
    (("gear_alpha8", 6e-5), ("gear_alpha8", 3e-5)),
    (("gear_alpha8", 6e-5), ("gear_alpha4", 3e-5)),
)


def by_setting(runs: list[Run]) -> dict[Setting, dict[int, Run]]:
    found: dict[Setting, dict[int, Run]] = {}
    if len({(run["hint"], run["world"]) for run in runs}) != 1:
        raise SystemExit("the runs are of several hints or handbooks: they cannot be compared.")
    for run in sorted(runs, key=lambda run: (*setting(run), run["seed"])):
        found.setdefault(setting(run), {})[run["seed"]] = run
    return found


def named(one: Setting) -> str:
    return f"{one[0]}, {one[1]:g}"


def table(runs: list[Run]) -> str:
    found = by_setting(runs)
    heads = ["setting", "sampled, by seed", "mean", "greedy, mean", "training reward, second half"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for one, by_seed in found.items():
        sampled, greedy = ([100 * success(run, how) for run in by_seed.values()] for how in ("sampled", "greedy"))
        shown = ", ".join(f"{value:.1f}" for value in sampled)
        reward = mean(map(late_reward, by_seed.values()))
        lines.append(f"| {named(one)} | {shown} | {mean(sampled):.1f} | {mean(greedy):.1f} | {reward:.3f} |")
    lines += ["", "| | mean (95 % over seeds) | each pair | could be seen | greedy, mean |", "|---" * 5 + "|"]
    for one, other in (pair for pair in COMPARED if found.keys() >= set(pair)):
        seeds = sorted(found[one].keys() & found[other].keys())
        apart = {
            how: [100 * (success(found[one][seed], how) - success(found[other][seed], how)) for seed in seeds]
            for how in ("sampled", "greedy")
        }
        each = ", ".join(map(signed, apart["sampled"]))
        seen = f"{detectable(stdev(apart['sampled']), len(seeds)):.1f}" if len(seeds) > 2 else ""
        cells = [f"{named(one)} over {named(other)}", interval(apart["sampled"]), each, seen, signed(mean(apart["greedy"]))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    print(table(json.loads(parser.parse_args().file.read_text())["runs"]))
