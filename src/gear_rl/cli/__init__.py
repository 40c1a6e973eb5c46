"""The subcommands of `gear`, a module each: `add_arguments(parser)`, importing nothing heavy; `run(args) -> int`."""

from __future__ import annotations

EXTRA_OF = {
    "torch": None,
    "numpy": None,
    "trl": "trl",
    "transformers": "trl",
    "accelerate": "trl",
    "peft": "trl",
    "datasets": "trl",
    "safetensors": "trl",
    "rich": "trl",
    "math-verify": "math",
    "reasoning-gym": "math",
    "tensorboard": "report",
    "scipy": "report",
    "verl": "verl",
    "verifiers": "verifiers",
    "tinker": "tinker",
}
"""Distribution → the extra of gear-rl that brings it; None: the core itself."""
