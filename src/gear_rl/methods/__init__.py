"""All credit methods by name. To add one of your own without touching this file, register its class as an entry point:

[project.entry-points."gear_rl.methods"]
my_method = "my_package:MyMethod"
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from gear_rl import plugins
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.errors import GearError, unknown_name
from gear_rl.methods.ablations import (
    FixedSegments,
    RandomSegments,
    SegmentOnly,
    Shuffled,
    ShuffledOutcomes,
    Token,
    TurnSegments,
    WrongHint,
)
from gear_rl.methods.base import Cost, Method, Schedule
from gear_rl.methods.cepo import CEPO
from gear_rl.methods.checked_hints import CheckedHints
from gear_rl.methods.controls import controlled
from gear_rl.methods.crest import CREST
from gear_rl.methods.crpo import CRPO
from gear_rl.methods.distillation import Distillation
from gear_rl.methods.gear import Gear
from gear_rl.methods.gigpo import GiGPO
from gear_rl.methods.grail import GRAIL
from gear_rl.methods.grpo import GRPO, DrGRPO
from gear_rl.methods.grpo_lambda import GRPOLambda
from gear_rl.methods.hcapo import HCAPO
from gear_rl.methods.high_entropy import HighEntropy
from gear_rl.methods.igpo import IGPO
from gear_rl.methods.low_probability import LowProbability
from gear_rl.methods.mt_grpo import MTGRPO
from gear_rl.methods.oar import OARG, OARP
from gear_rl.methods.opd import OPD
from gear_rl.methods.oracle import Oracle
from gear_rl.methods.prompted_judge import PromptedJudge
from gear_rl.methods.rlcsd import RLCSD
from gear_rl.methods.rlsd import RLSD, SERL
from gear_rl.methods.sc_grpo import SCGRPO
from gear_rl.methods.sdar import SDAR
from gear_rl.methods.self_distillation import OPSD, SDPG, SDPO
from gear_rl.methods.shear import SHEAR
from gear_rl.methods.spo import SPO
from gear_rl.methods.trace import TRACE
from gear_rl.methods.turn_ppo import TurnPPO
from gear_rl.methods.vine_ppo import VinePPO

METHODS: dict[str, type[Method]] = {
    "grpo": GRPO,
    "dr_grpo": DrGRPO,
    "gear": Gear,
    "checked_hints": CheckedHints,
    # GEAR with one part taken away or replaced
    "token": Token,
    "segment_only": SegmentOnly,
    "random_segments": RandomSegments,
    "fixed_segments": FixedSegments,
    "turn_segments": TurnSegments,
    "shuffled": Shuffled,
    # what a gain could be due to instead of credit
    "low_probability": LowProbability,
    "wrong_hint": WrongHint,
    "shuffled_outcomes": ShuffledOutcomes,
    "opd": OPD,
    # how much there is to gain
    "oracle": Oracle,
    # what simple prompting gives
    "prompted_judge": PromptedJudge,
    # peers: the hinted self as a weight
    "rlsd": RLSD,
    "serl": SERL,
    "crest": CREST,
    "cepo": CEPO,
    "rlcsd": RLCSD,
    "sc_grpo": SCGRPO,
    "sdar": SDAR,
    # the hinted self as a loss
    "opsd": OPSD,
    "sdpo": SDPO,
    "sdpg": SDPG,
    # what the answer depends on, and what the model is unsure of
    "oar_p": OARP,
    "oar_g": OARG,
    "grail": GRAIL,
    "shear": SHEAR,
    "high_entropy": HighEntropy,
    # turns, states of the world, and the parts of a reward
    "mt_grpo": MTGRPO,
    "gigpo": GiGPO,
    "igpo": IGPO,
    "trace": TRACE,
    "hcapo": HCAPO,
    "turn_ppo": TurnPPO,
    "vine_ppo": VinePPO,
    "spo": SPO,
    "grpo_lambda": GRPOLambda,
    "crpo": CRPO,
}

__all__ = ["METHODS", "Cost", "Distillation", "Method", "Schedule", "all_methods", "credit", "find_method", "method"]


def credit(name: str, rollouts: Rollouts, /, **options: Any) -> Credit:
    """Assign credit to `rollouts` with the method `name`.

    A pure function of tensors: no model is run, nothing is remembered between calls, and the result is the same bit for
    bit each time. For options see `METHODS[name].Options`.
    """
    return method(name, **options).assign(rollouts)


def method(name: str, /, **options: Any) -> Method:
    """Build the method `name`. Unknown names and options are errors that name the nearest known ones."""
    return find_method(name)(**options)


def find_method(name: str) -> type[Method]:
    """The class of the method `name`; third-party ones are looked for only when it is not one of ours.

    `name+control` is that method under a control: see `gear_rl.methods.controls`."""
    if "+" in name:
        base, control = name.split("+", 1)
        return controlled(find_method(base), control)
    if name in METHODS:
        return METHODS[name]
    third_party = plugins.found("method", METHODS)
    if name not in third_party:
        raise unknown_name("method", name, [*METHODS, *third_party])
    return _load(third_party[name])


def all_methods() -> dict[str, type[Method]]:
    """Ours and every third-party method that is installed."""
    return METHODS | {name: _load(entry) for name, entry in plugins.found("method", METHODS).items()}


def _load(entry: EntryPoint) -> type[Method]:
    loaded = plugins.load("method", entry)
    if not (isinstance(loaded, type) and issubclass(loaded, Method)):
        raise GearError(f"method {entry.name!r}: {entry.value!r} is no subclass of gear_rl.methods.Method.")
    return loaded
