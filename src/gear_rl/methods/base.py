"""What every credit method is: a pure function of rollouts, with declared options, needs and cost."""

from __future__ import annotations

import math
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Literal

from torch import Tensor

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments
from gear_rl.assignment.signals import how_to_get
from gear_rl.errors import GearError, unknown_name
from gear_rl.methods.distillation import Distillation

Hint = Literal["own", "other", "sibling", "feedback"] | None


@dataclass(frozen=True)
class Cost:
    """What a method adds to a GRPO step, in passes over the step's rollouts."""

    forwards: int | str
    """A number, or "n" or "k": one per action token, or per turn, of a rollout."""
    backwards: int
    why: str


NOTHING = Cost(0, 0, "nothing: works on what a GRPO step already has")
STUDENT = Cost(1, 0, "one forward of the student; free where the step scores its samples anyway")
HIDDEN_STATES = Cost(1, 0, "one forward of the student for its hidden states; free where the step scores its samples")
STUDENT_AND_TEACHER = Cost(
    2, 0, "one forward of the teacher, and one of the student; the student's is free where the step scores its samples"
)


class Method:
    """Base of all credit methods. A method of your own: state the attributes, write `assign`, and register the class
    under the entry-point group "gear_rl.methods"."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line."""
    paper: ClassVar[str | None] = None
    """Where the method comes from; None for our own controls."""
    standing: ClassVar[str]
    """How sure it is that this code is what the source says: known, second-hand, seen, abstract, recalled, or ours."""
    needs: tuple[str, ...] = ()
    """Signals it reads with default options. What an instance says counts: options may leave some out, or add some."""
    fewest_channels: ClassVar[int] = 0
    """How many reward channels (`Rollouts.channels`, "generic" not counted) it takes at least."""
    hint: Hint = None
    """What the teacher reads beside the prompt: the rollout's own ground truth, another problem's, a successful rollout
    of the same group ("sibling", with the environment's feedback appended), the environment's feedback alone, or None:
    no teacher."""
    distillation: Distillation | None = None
    """A loss that the engine adds to the policy's; None for methods that only say advantages."""
    cost: ClassVar[Cost] = NOTHING
    reads_outcomes: ClassVar[bool] = True
    """Whether `assign` looks at rewards at all: some only imitate their teacher."""
    preserves_mass: ClassVar[bool] = True
    """Whether each rollout's token advantages add up to n_i A_i: True for all that reweight, False for the rest."""

    @dataclass(frozen=True)
    class Options:
        """None."""

    options: Options

    def __init__(self, /, **options: Any) -> None:
        known = {f.name: f for f in fields(self.Options)}
        for name, value in options.items():
            if not known:
                raise GearError(f"{self.name} takes no options, got {name!r}.")
            if name not in known:
                raise unknown_name(f"{self.name} option", name, known)
            _check_option(self.name, known[name], value)
        self.options = self.Options(**options)

    def assign(self, rollouts: Rollouts) -> Credit:
        """Credit for each action token of `rollouts`."""
        raise NotImplementedError

    def signal(self, rollouts: Rollouts, name: str) -> Tensor:
        """The signal `name` at the action tokens → (B, L), packed."""
        if name not in rollouts.signals:
            given = ", ".join(sorted(rollouts.signals)) or "none"
            raise GearError(f"{self.name} needs the signal {name!r}{how_to_get(name)}. Signals given: {given}.")
        return rollouts.actions.pack(rollouts.signals[name].to(rollouts.dtype))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.options})"


def to_credit(rollouts: Rollouts, advantages: Tensor, weights: Tensor, segments: Segments) -> Credit:
    """Packed results, each (B, L), put back to where the tokens stand, each (B, T)."""
    unpack = rollouts.actions.unpack
    return Credit(unpack(advantages), unpack(weights), unpack(segments.index), unpack(segments.onsets))


def option(
    default: Any,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """A field of `Options` with its range: a value outside is refused by name."""
    return field(default=default, metadata=dict(at_least=at_least, above=above, at_most=at_most, choices=choices))


def describe_range(option_field: Field[Any]) -> str:
    """The range of an option in words, as the error message and the list of methods print it."""
    limits = option_field.metadata
    if limits.get("choices"):
        return "one of " + ", ".join(map(repr, limits["choices"]))
    kind = {bool: "True or False", int: "a whole number", float: "a number"}[type(option_field.default)]
    words = {"above": "above", "at_least": "at least", "at_most": "at most"}
    bounds = [f"{word} {limits[key]:g}" for key, word in words.items() if limits.get(key) is not None]
    return " ".join([kind, " and ".join(bounds)]).strip()


def _check_option(method: str, option_field: Field[Any], value: Any) -> None:
    """Refuse a value of the wrong kind or out of range."""
    limits, kind = option_field.metadata, type(option_field.default)
    if kind is str:
        fits = value in limits["choices"]
    elif kind is bool:
        fits = isinstance(value, bool)
    else:
        fits = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
        fits = fits and math.isfinite(value)
        fits = fits and (limits.get("at_least") is None or value >= limits["at_least"])
        fits = fits and (limits.get("above") is None or value > limits["above"])
        fits = fits and (limits.get("at_most") is None or value <= limits["at_most"])
    if not fits:
        raise GearError(f"{method} option {option_field.name}={value!r}: must be {describe_range(option_field)}.")
