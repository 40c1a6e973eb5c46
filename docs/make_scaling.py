"""Write docs/scaling.md: `gear plan` for three models, next to what was measured: `python docs/make_scaling.py`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from generated import write_or_check

from gear_rl.planning.hardware import GPUS
from gear_rl.planning.memory import GIB
from gear_rl.planning.model_shapes import KNOWN
from gear_rl.planning.plan import MethodPlan, plan
from gear_rl.planning.setup import Setup
from gear_rl.planning.table import in_words, seconds

PAGE = Path(__file__).parent / "scaling.md"
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
STEPS = json.loads((RESULTS / "step_cost_h200.json").read_text())
SHARDED = json.loads((RESULTS / "sharded_scoring_h200.json").read_text())
METHODS = ["gear", "rlsd", "opsd", "gigpo"]
BASE = Setup(KNOWN["Qwen3-4B"], GPUS["H200"], gpus=8, rollouts=512, prompt=1024, completion=4096)
PARTS = ("student and teacher forward", "head and divergence", "loss forward", "backward", "optimizer")
GROWING = replace(BASE, rollouts=128)
HEAD = """\
<!-- Written by docs/make_scaling.py from gear_rl.planning and benchmarks/results. Do not edit by hand. -->
# Memory and time

`gear plan` says what a step takes before a GPU is rented: memory per GPU and time per step, for GRPO and for each
method, and what to change where it does not fit. It is arithmetic over measured rates; no model is loaded. How
several processes share the work is on [another page](scaling_processes.md).

```bash
gear plan --model Qwen3-4B --gpus 8 --rollouts 128 --completion 4096
```

```text title="Output"
{example}
```

A model is a known name, a folder with `config.json`, or dimensions. `--credit all` shows every method, `--json`
prints JSON. Exit code 0: all fit; 1: something does not, and the output says what would; 2: impossible input.

"""


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *[[str(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def measured_setup(size: str) -> Setup:
    row = STEPS["sizes"][size]
    return Setup(
        KNOWN[f"Qwen3-{size.upper()}"], GPUS["H200"], rollouts=row["rollouts"], group=STEPS["group"], hint=STEPS["hint"],
        prompt=row["prompt"], completion=row["completion"], micro_batch=row["rollouts"],
    )  # fmt: skip


def measured() -> str:
    rows, parts = [], []
    for size, row in STEPS["sizes"].items():
        planned = plan(measured_setup(size), METHODS)
        base = planned[0]
        for p in planned:
            given, sampled = row["given"][p.name], row["sampled"].get(p.name)
            low, high = given["ratios"][0], given["ratios"][-1]
            peak = f"{given['peak_bytes'] / GIB:.1f}" if given["peak_bytes"] else "–"
            spread = f"{given['ratio']:.3f} ({low:.3f}–{high:.3f})" if p is not base else "1"
            with_sampling = [f"{sampled['ms'] / 1e3:.2f} s, {sampled['ratio']:.3f}",
                             f"{p.time.total + p.sampling:.2f} s"] if sampled else ["", ""]  # fmt: skip
            rows.append([
                size.upper() if p is base else "", p.name, f"{given['ms']:,.0f} ms", f"{1e3 * p.time.total:,.0f} ms", spread,
                f"{p.time.total / base.time.total:.3f}", *with_sampling, peak,
                f"{allocated(p) / GIB:.1f}",
            ])  # fmt: skip
        gear, grpo = row["detail"]["gear"], row["detail"]["grpo"]
        for name, detail in (("grpo", grpo), ("gear", gear)):
            ms = detail["parts_ms"]
            parts.append([
                size.upper() if name == "grpo" else "", name, *[f"{ms.get(part, 0):.0f}" for part in PARTS],
                f"{detail['rest_ms'] + sum(v for k, v in ms.items() if k not in PARTS):.0f}",
            ])  # fmt: skip
    head = ["model", "method", "step", "planned", "× GRPO (range)", "planned", "with sampling, × GRPO", "planned",
            "peak GiB", "planned"]  # fmt: skip
    lengths = ", ".join(
        f"{size.upper()} {row['prompt']} + {row['completion']} tokens, {row['rollouts']} rollouts"
        for size, row in STEPS["sizes"].items()
    )
    floors = ", ".join(floor(size) for size in STEPS["sizes"])
    versions = ", ".join(f"{name} {number}" for name, number in STEPS["versions"].items())
    notes = " ".join(STEPS.get("notes", []))
    return f"""\
## Measured on one H200
A step in TRL of GRPO and of other methods, in turns in one trainer: random weights of Qwen3's shapes, all in bf16
(AdamW too), gradient checkpointing, {STEPS["group"]} rollouts a prompt, a hint of {STEPS["hint"]} tokens
({lengths}; {versions}; [`step_cost_h200.json`](../benchmarks/results/step_cost_h200.json)). "With sampling": our
own sampler, every rollout to its full length. "Planned" is what `gear plan` computes for the same step; peak memory
is what torch had allocated, sampling left out.

{table(head, rows)}
{notes}

GEAR adds one pass in which student and teacher read the responses, and the comparison of the two. A prompt is read
once for its group there, and with every rollout in the loss: so the ratio is lower the more of a rollout is prompt
([below](#how-cost-grows)). Milliseconds of a step, the device waited for after every part:

{table(["model", "method", *PARTS, "rest"], parts)}
The teacher's pass alone is {floors} of a GRPO step: the least that a method with a teacher can add. OPSD's
distillation loss is computed over the full vocabulary in float32, with gradient: that is what it takes.

{sharded()}
```bash title="Not run in the tests: needs a GPU"
PYTHONPATH=src python benchmarks/step_cost.py --size 0.6b 1.7b 4b --sampled 2 --out step_cost.json      # 6 minutes
PYTHONPATH=src python benchmarks/step_cost.py --sharded --size 0.6b 1.7b 4b --out sharded_scoring.json   # 1 minute
```

"""


def floor(size: str) -> str:
    row = STEPS["sizes"][size]
    return f"{100 * row['detail']['gear']['teacher_alone_ms'] / row['given']['grpo']['ms']:.0f} % ({size.upper()})"


def allocated(p: MethodPlan) -> float:
    """As torch counts it in a step without sampling."""
    m = p.memory
    return m.weights + m.optimizer + m.teacher + max(m.training, m.scoring)


def sharded() -> str:
    rows = []
    for size, result in SHARDED["sharded"].items():
        for i, (link, row) in enumerate(result["links"].items()):
            spread = f"{row['ratio']:.3f} ({row['ratios'][0]:.3f}–{row['ratios'][-1]:.3f})"
            rows.append(
                [
                    "" if i else size.upper(),
                    link,
                    f"{row['ms']['whole']:.0f} ms",
                    f"{row['ms']['sharded']:.0f} ms",
                    spread,
                ]
            )
    shards = next(iter(SHARDED["sharded"].values()))["shards"]
    return f"""\
### Scoring of sharded weights
**Simulated**: one process on one H200 is the first of {shards} ranks. FSDP2 shards the weights and gathers them
layer by layer with its own hooks and streams; only the transfer is a copy on the card and a wait as long as the
link would take ([`sharded_scoring_h200.json`](../benchmarks/results/sharded_scoring_h200.json)). Two NCCL ranks
cannot share a GPU.

{table(["model", "link", "whole", "sharded", "ratio (range)"], rows)}"""


def models() -> str:
    rows, full = [], []
    for model in ("Qwen3-4B", "Qwen3-8B", "Qwen3-32B"):
        for gpus in (1, 8, 64):
            planned = plan(replace(BASE, shape=KNOWN[model], gpus=gpus), METHODS, choose_sharding=True)
            base, gear = planned[:2]
            how = "FSDP2" if base.setup.sharding == "fsdp" else "whole"
            cells = [model if gpus == 1 else "", gpus, how, f"{gear.memory.peak / GIB:.0f}"]
            if not gear.fits:
                cells += ["does not fit", "", "", ""]
            else:
                both = (gear.time.total + gear.sampling) / (base.time.total + base.sampling)
                cells += [seconds(base.time.total), f"{gear.time.total / base.time.total:.2f}",
                          seconds(base.time.total + base.sampling), f"{both:.2f}"]  # fmt: skip
            rows.append(cells)
            full.append(f'??? note "{model} on {gpus} GPU{"s" * (gpus > 1)}"\n\n' + _indented(in_words(planned)))
    head = ["model", "GPUs", "weights", "GiB per GPU", "GRPO step", "GEAR × GRPO", "GRPO with sampling", "GEAR × GRPO"]
    return f"""\
## Qwen3 4B, 8B and 32B on 1, 8 and 64 GPUs
H200s, {BASE.rollouts} rollouts a step in groups of {BASE.group}, prompt {BASE.prompt:,}, completion
{BASE.completion:,} tokens. **Planned, not measured.** More GPUs share the same rollouts; sampling is bound by
reading weights and cache, so it gains less from them.

{table(head, rows)}
What `gear plan` prints for each:

{chr(10).join(full)}
"""


def _indented(text: str) -> str:
    block = ["```text", *text.splitlines(), "```"]
    return "\n".join(f"    {line}".rstrip() for line in block) + "\n"


def growth() -> str:
    groups = [(n, replace(GROWING, group=n)) for n in (2, 4, 8, 16, 32, 64)]
    lengths = [(n, replace(GROWING, completion=n)) for n in (1024, 4096, 16_384, 32_768, 65_536, 130_048)]
    turns = [(n, replace(GROWING, turns=n, completion=512 * n, reply=512)) for n in (1, 4, 16, 64, 127)]
    return f"""\
## How cost grows
Qwen3-4B on 8 H200s, {GROWING.rollouts} rollouts, prompt {GROWING.prompt:,}, completion {GROWING.completion:,},
unless said otherwise. Planned: beyond 1,536 tokens nothing was measured, and attention is taken at 350 TFLOP/s.
Contexts beyond a model's own need its scaling of positions.

**Group size.** Scoring reads a prompt once for its group, so larger groups make signals cheaper; the loss reads
every rollout with its prompt.

{_growth("group", groups)}
**Context.** Attention grows with the square of the length, in the loss and in the readings alike. Responses are
read once a side whatever their length, so where the prompt is a small part GEAR adds two forwards to the four that
a GRPO step is worth, and stays below 1.5.

{_growth("completion", lengths, ("gear", "rlsd", "opsd"))}
**Turns.** Each turn samples 512 tokens and reads a reply of 512. The loss and the readings take replies like any
tokens; the head sees action tokens only. Methods that read an answer after every turn (`igpo`) read each rollout
once, and the answers.

{_growth("turns", turns, ("gear", "igpo", "gigpo"))}
"""


def _growth(what: str, setups: Iterable[tuple[int, Setup]], names: tuple[str, ...] = ("gear", "rlsd", "opsd")) -> str:
    rows = []
    for value, setup in setups:
        base, *others = plan(setup, names, choose_sharding=True)
        whole = base.time.total + base.sampling
        rows.append([
            f"{value:,}", f"{setup.length:,}", seconds(base.time.total),
            *[f"{p.time.total / base.time.total:.2f}" if p.fits else "does not fit" for p in others], seconds(whole),
            f"{(others[0].time.total + others[0].sampling) / whole:.2f}", f"{others[0].memory.peak / GIB:.0f}",
        ])  # fmt: skip
    head = [what, "tokens", "GRPO step", *[f"{name} × GRPO" for name in names], "GRPO with sampling", "gear × GRPO",
            "GiB (gear)"]  # fmt: skip
    return table(head, rows)


FOOT = """\
## What it rests on
- **Rates**: matrix products 690 TFLOP/s, copies 4.3 TB/s, elementwise work, the optimizer, the trainer's own time
  and our sampler, each fitted to the steps above (`gear_rl.planning.times`, `sampling`). Other GPUs are scaled by
  their data sheets and were not measured.
- **Memory**: weights, gradients and AdamW's two averages in bf16 (`--precision mixed`: float32); one residual per
  layer and token with gradient checkpointing, and one layer recomputed; a copy of the weights for the sampler, with
  its cache. 1.5 GiB for CUDA, 8 % left free.
- **Communication**: 360 GB/s between the GPUs of a node, 45 GB/s beyond, hidden behind computing where there is
  enough of it. Assumed.
- **Sampling**: our own sampler. An inference server samples faster, and then a method's own share of the step is
  larger: the columns without sampling are the other end.
- Rollouts of full length, one optimizer step per batch, environments that answer at once. Mixtures of experts are
  unsupported.
"""


def page() -> str:
    example = in_words(plan(GROWING, METHODS, choose_sharding=True))
    return HEAD.format(example=example) + measured() + models() + growth() + FOOT


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))
