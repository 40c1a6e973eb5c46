"""Registers our parts with verl, once per process."""

from __future__ import annotations

from gear_rl.engines.versions import check_version

VENDORS = ["nvidia", "amd"]


def register() -> None:
    """Trainer, engine and agent loop. A second call changes nothing."""
    check_version("verl")
    from verl.workers.engine import EngineRegistry

    import gear_rl.engines.verl.agent_loop
    import gear_rl.engines.verl.trainer  # noqa: F401  # both register themselves
    from gear_rl.engines.verl.engine import CreditFSDPEngine

    for backend in ("fsdp", "fsdp2"):
        known = EngineRegistry._engines.get("language_model", {}).get(backend, {})
        vendors = [
            vendor for vendor in VENDORS if ("cuda", vendor) not in known
        ]  # a vendor's entry goes before verl's own
        if vendors:
            EngineRegistry.register(model_type="language_model", backend=backend, device="cuda", vendor=vendors)(
                CreditFSDPEngine
            )
