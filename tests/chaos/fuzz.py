"""`make fuzz`: bad inputs for every parser of outside text. Only GearError may come out, or what the parser documents.

    python tests/chaos/fuzz.py --short                                        seconds, as in CI
    python tests/chaos/fuzz.py --inputs 2000000 --workers 16 --out fuzz.json   minutes on 16 cores
    python tests/chaos/fuzz.py --only "tool calls" --inputs 10000             a part

Inputs are changes of small good examples; those that run new lines of gear_rl are changed further (Python 3.12). More than
a second of computing or 200 MB of memory for one input is a failure too. `--keep FILE` writes the smallest input of each
failure; `tests/chaos/corpus.jsonl` holds those of the past.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

for name, value in {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1",
                    "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "critical"}.items():  # fmt: skip
    os.environ.setdefault(name, value)
_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / "chaos"), str(_TESTS / "helpers"), str(_TESTS.parent / "src")]

from coverage_guide import NewLines
from file_parsers import file_targets
from mutation import mutated
from parsers import Target, text_targets
from tally import Tally

GOOD = ("read", "refused")
MOST_KILOBYTES = 200_000
SHORT_INPUTS, LARGEST_CORPUS, SHRINKING = 8_000, 400, 60


class TooLong(BaseException):
    """Not an Exception: nothing on the way may catch it."""


def _too_long(number: int, frame: Any) -> None:
    raise TooLong


def tried(target: Target, data: bytes) -> tuple[str, str]:
    """One input: what came of it, and the error's type and place where it was none that is allowed."""
    from gear_rl.errors import GearError

    memory, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    signal.setitimer(signal.ITIMER_PROF, target.seconds)  # of computing: a busy machine is not a slow parser
    try:
        target.read(data)
        result = "read", ""
    except TooLong:
        return "hang", "no end in its time"
    except target.allowed:
        result = "refused", ""
    except GearError as error:
        if target.model_output:
            return "ends the run", f"GearError at {_place(error)}"
        result = "refused", ""
    except Exception as error:
        return "traceback", f"{type(error).__name__} at {_place(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory > MOST_KILOBYTES:
        return "memory", "more than 200 MB"
    return ("hang", "more than its time") if time.process_time() - began > target.seconds else result


def _place(error: BaseException) -> str:
    """The last line of gear_rl on the way to the error."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "gear_rl" in f.filename]
    last = frames[-1] if frames else None
    return f"{Path(last.filename).name}:{last.name}" if last else "outside"


def targets() -> dict[str, Target]:
    return {**text_targets(), **file_targets()}


def fuzz(worker: int, inputs: float, seed: int, only: str, seconds: float) -> dict[str, Any]:
    """A worker's share of every target."""
    signal.signal(signal.SIGPROF, _too_long)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)  # libraries in Rust print a line for each odd key
    new, found, counts = NewLines(), {}, {}
    chosen = {name: target for name, target in targets().items() if only in name}
    shares, until = sum(target.share for target in chosen.values()), time.time() + seconds  # imports do not count
    for number, (name, target) in enumerate(chosen.items()):
        rng = random.Random(f"{seed}-{worker}-{name}")
        corpus, results = list(target.seeds), Counter[str]()
        end = min(until, time.time() + max(1.0, (until - time.time()) / (len(chosen) - number)))
        began = time.time()
        target.read(target.seeds[0])  # what is imported once does not count
        for seed_input in target.seeds:
            if (outcome := tried(target, seed_input))[0] != "read":
                raise RuntimeError(f"the good example of {name} is not read: {outcome}")
        for _ in range(max(1, round(inputs * target.share / shares))):
            before = new.count
            data = mutated(rng.choice(corpus), corpus, rng)
            result, where = tried(target, data)
            results[result] += 1
            if new.count > before and len(corpus) < LARGEST_CORPUS and len(data) < 4096:
                corpus.append(data)
            if result not in GOOD:
                _keep(found, target, name, result, where, data, rng)
            if time.time() > end:
                break
        counts[name] = {"results": dict(results), "seconds": time.time() - began, "corpus": len(corpus)}
    return {"counts": counts, "found": list(found.values()), "guided": new.guided}


def _keep(found: dict, target: Target, name: str, result: str, where: str, data: bytes, rng: random.Random) -> None:
    """The smallest input of each kind of failure."""
    key = (name, result, where)
    if key not in found and result == "traceback":
        for _ in range(SHRINKING):
            start = rng.randrange(len(data) + 1)
            smaller = data[:start] + data[start + max(1, len(data) // rng.choice((2, 4, 16, 1000))) :]
            if len(smaller) < len(data) and tried(target, smaller) == (result, where):
                data = smaller
    kept = found.setdefault(key, {"target": name, "result": result, "where": where, "count": 0, "input": data})
    kept["count"] += 1
    kept["input"] = min(kept["input"], data, key=len)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--short", action="store_true", help=f"{SHORT_INPUTS} inputs")
    add("--inputs", type=int, default=1_000_000, help="in all")
    add("--workers", type=int, default=min(2, os.cpu_count() or 1))
    add("--seconds", type=float, default=3600.0, help="stop then; each target gets an even part")
    add("--seed", type=int, default=0)
    add("--only", default="", help="targets whose name contains this")
    add("--keep", type=Path, help="write the inputs that failed, smallest first, as JSON lines")
    add("--out", type=Path, help="the report as JSON")
    args = parser.parse_args()
    inputs = SHORT_INPUTS if args.short else args.inputs
    tally, smallest, rates = Tally("fuzz", GOOD), dict[tuple, dict](), Counter[str]()
    with ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn")) as pool:
        share = inputs / args.workers
        jobs = [pool.submit(fuzz, i, share, args.seed, args.only, args.seconds) for i in range(args.workers)]
        parts = [job.result() for job in jobs]
    for part in parts:
        for name, count in part["counts"].items():
            rates[name] += round(sum(count["results"].values()) / max(count["seconds"], 1e-9))
            for result in GOOD:
                tally.add(name, result, count=count["results"].get(result, 0))
        for kept in part["found"]:
            key = (kept["target"], kept["result"], kept["where"])
            first = smallest.setdefault(key, {**kept, "count": 0})
            first["count"] += kept["count"]
            first["input"] = min(first["input"], kept["input"], key=len)
    for kept in smallest.values():
        shown = {"where": kept["where"], "count": kept["count"], "input": kept["input"].decode("latin-1")[:200]}
        tally.add(kept["target"], kept["result"], shown, count=kept["count"])
    if args.keep is not None:
        rows = [{**kept, "input": kept["input"].decode("latin-1")} for kept in smallest.values() if len(kept["input"]) < 20_000]
        args.keep.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tally.finish(args.out, seed=args.seed, guided=parts[0]["guided"], inputs_per_second=dict(sorted(rates.items())))


if __name__ == "__main__":
    sys.exit(main())
