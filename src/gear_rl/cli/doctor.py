"""`gear doctor`: versions, devices and self-checks. Exit code 1 when one fails; its output is made for bug reports."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import textwrap
from collections.abc import Callable
from importlib import metadata
from typing import Any

from gear_rl import __version__
from gear_rl.cli import EXTRA_OF
from gear_rl.engines.versions import TESTED, fits

SHOWN = ("torch", "numpy", "trl", "transformers", "accelerate", "peft", "datasets", "verl", "triton", "math-verify")
Check = tuple[str, bool, str]
"""What was checked, whether it passed, and what was seen."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    report: dict[str, Any] = {
        "gear_rl": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: installed_version(name) for name in SHOWN},
    }
    try:
        import torch  # noqa: F401
    except Exception as error:  # a broken installation is just what this command is for
        report |= {"devices": [], "threads": None}
        results: list[Check] = [("import torch", False, f"{type(error).__name__}: {error}")]
    else:
        report |= {"devices": devices(), "threads": threads()}
        results = checks()
    report["checks"] = [dict(zip(("name", "passed", "seen"), check, strict=True)) for check in results]
    report["healthy"] = all(check["passed"] for check in report["checks"])
    print(json.dumps(report, indent=2) if args.json else in_words(report))
    return 0 if report["healthy"] else 1


def installed_version(name: str) -> str | None:
    """From the package's metadata, so that nothing is imported and a broken package still shows its version."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def devices() -> list[str]:
    import torch

    found = [f"cpu: {platform.processor() or platform.machine()}, {os.cpu_count()} logical cores"]
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        found.append(f"cuda:{i}: {properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    if torch.backends.mps.is_available():
        found.append("mps: Apple GPU")
    return found


def threads() -> dict[str, Any]:
    import torch

    return {"torch": torch.get_num_threads(), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")}


def checks() -> list[Check]:
    """Every self-check, each guarded: one that breaks is a finding, not the end of the report."""
    import torch

    kinds = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    todo: list[tuple[str, Callable[[], tuple[bool, str]]]] = [
        *((f"divergence on {kind}", lambda kind=kind: divergence_agrees(kind)) for kind in kinds),
        ("method invariants", methods_keep_invariants),
        ("TRL seam", trl_is_supported),
        ("current folder", folder_is_writable),
    ]
    results: list[Check] = []
    for name, check in todo:
        try:
            results.append((name, *check()))
        except Exception as error:
            results.append((name, False, f"{type(error).__name__}: {error}"))
    return results


def divergence_agrees(device: str) -> tuple[bool, str]:
    """The fast path that would run on `device`, against the plain implementation."""
    from gear_rl.scoring import self_check

    result = self_check(device)
    worst = max(result.max_errors.values())
    why = f" (not fused: {result.fallback})" if result.fallback else ""
    return (
        result.passed,
        f"backend {result.backend}{why}; off the plain version by {worst:.1e}, limit {result.limit:.0e}",
    )


def methods_keep_invariants() -> tuple[bool, str]:
    """On random rollouts: α = 0 and λ = 0 give every token the rollout's advantage, bit for bit; mass is preserved."""
    import torch

    from gear_rl import Rollouts, credit
    from gear_rl.methods import METHODS
    from gear_rl.methods.reweighting import Reweighting

    draw = torch.Generator().manual_seed(0)
    size = (16, 64)
    names = sorted({signal for method in METHODS.values() for signal in method.needs})
    rollouts = Rollouts(
        action_mask=torch.rand(size, generator=draw) < 0.7,
        rewards=torch.rand(size[0], generator=draw),
        group_ids=torch.arange(size[0]) // 4,
        token_ids=torch.randint(1000, size, generator=draw),
        signals={name: torch.rand(size, generator=draw) for name in names},
    )
    wrong = []
    if not torch.equal(credit("gear", rollouts, alpha=0).advantages, credit("grpo", rollouts).advantages):
        wrong.append("gear with alpha=0 is not grpo")
    for name, method in METHODS.items():
        if not issubclass(method, Reweighting):
            continue
        uniform = method().outcome(rollouts)[:, None] * rollouts.action_mask
        for switch in {"alpha", "mix"} & set(method.Options.__dataclass_fields__):
            if not torch.equal(credit(name, rollouts, **{switch: 0}).advantages, uniform):
                wrong.append(f"{name} with {switch}=0 is not uniform")
        if not torch.allclose(credit(name, rollouts).advantages.sum(1), uniform.sum(1), rtol=1e-4, atol=1e-4):
            wrong.append(f"{name} does not preserve the rollout's advantage")
    return not wrong, "; ".join(wrong) or "alpha=0 is grpo, bit for bit; every reweighting preserves the advantage"


def trl_is_supported() -> tuple[bool, str]:
    version = installed_version("trl")
    if version is None:
        return True, "not installed: `gear train` needs pip install 'gear-rl[trl]'"
    return fits("trl", version), f"trl {version}; the engine is tested with {TESTED['trl']}.*"


def folder_is_writable() -> tuple[bool, str]:
    try:
        with tempfile.NamedTemporaryFile(dir=".") as file:
            file.write(b"gear")
            file.flush()
    except OSError as error:
        return False, f"cannot write here: {(error.strerror or str(error)).lower()}"
    return True, "writable"


def in_words(report: dict[str, Any]) -> str:
    """The report for people, in 80 columns."""
    lines = [f"{'gear-rl':14}{report['gear_rl']}", f"{'python':14}{report['python']} on {report['platform']}"]
    for name, version in report["packages"].items():
        extra = EXTRA_OF.get(name)
        how = f"pip install 'gear-rl[{extra}]'" if extra else "comes with torch, for GPUs"
        lines.append(f"{name:14}{version or f'not installed ({how})'}")
    lines += ["", *(f"{'device':14}{device}" for device in report["devices"])]
    if report["threads"]:
        chosen = report["threads"]["OMP_NUM_THREADS"] or "not set"
        lines += [f"{'threads':14}{report['threads']['torch']} (OMP_NUM_THREADS {chosen})", ""]
    for check in report["checks"]:
        verdict = f"{'ok' if check['passed'] else 'FAILED':8}{check['name']}: {check['seen']}"
        lines.append(textwrap.fill(verdict, 80, subsequent_indent=" " * 8))
    lines += ["", "healthy" if report["healthy"] else "not healthy: see FAILED above"]
    return "\n".join(lines)
