"""What every credit method is: a pure function of rollouts, with declared options, needs and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Literal

from torch import Tensor

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments
from gear_rl.assignment.signals import how_to_get
from gear_rl.errors import GearError
from gear_rl.methods.distillation import Distillation
from gear_rl.options import check_options
from gear_rl.options import option as option  # methods declare their options with it

Hint = Literal["own", "other", "sibling", "sibling_or_feedback", "any_sibling", "feedback"] | None
SIBLINGS: tuple[Hint, ...] = ("sibling", "sibling_or_feedback", "any_sibling")
"""Hints that are made of other rollouts of the group."""


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
ANSWER_READINGS = Cost(
    "k", 0, "one reading of the reference answer before the first turn and after every turn but the last"
)
STUDENT_AND_TEACHER = Cost(
    2, 0, "one forward of the teacher, and one of the student; the student's is free where the step scores its samples"
)


@dataclass(frozen=True)
class Schedule:
    """How a source runs its method over training. An engine takes these where its user names nothing else."""

    mix_steps: int | None = None
    """λ (`mix`) falls linearly to 0 over so many optimizer steps. None: constant."""
    teacher: Literal["live", "sync", "ema", "base"] | None = None
    """The weights the teacher reads with (`gear_rl.scoring.teacher`). None: the source does not say; live."""
    teacher_every: int | None = None
    """Optimizer steps between two copies, for "sync"."""
    teacher_decay: float | None = None
    """The policy's share at each step, for "ema"."""


def grid(**values: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """All combinations: `grid(mix=(0.5, 1), clip=(0.2, 1))` is four settings."""
    return tuple(dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))


class Method:
    """Base of all credit methods. A method of your own: state the attributes, write `assign`, and register the class
    under the entry-point group "gear_rl.methods"."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line."""
    paper: ClassVar[str | None] = None
    """Where the method comes from; None for our own controls."""
    standing: ClassVar[str]
    """How sure it is that this code is what the source says: from its full text, from its official code, second-hand (a
    transcription or another's implementation), from the abstract alone, or ours."""
    needs: tuple[str, ...] = ()
    """Signals it reads with default options. What an instance says counts: options may leave some out, or add some."""
    fewest_channels: ClassVar[int] = 0
    """How many reward channels (`Rollouts.channels`, "anchor" not counted) it takes at least."""
    hint: Hint = None
    """What the teacher reads beside the prompt. "own": the rollout's ground truth. "other": another problem's. "feedback":
    what the environment said. "sibling": another, successful rollout of the group. "sibling_or_feedback": that, and feedback
    where there is none. "any_sibling": a successful rollout where the group has two or more and a failed one, any other where
    nobody succeeded, else nothing. None: no teacher."""
    success_at: float | None = None
    """The reward from which a rollout is shown as successful. None: above its group's mean. An option
    `success` sets it."""
    distillation: Distillation | None = None
    """A loss that the engine adds to the policy's; None for methods that only say advantages."""
    schedule: Schedule = Schedule()
    """How its source runs it over training."""
    strength: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Settings of its own options from weak to strong, which `gear compare` tunes beside the learning rate. A number that
    divides 12 (ours: four), so that every method can be given the same number of runs. Empty: nothing of the kind."""
    cost: ClassVar[Cost] = NOTHING
    reads_outcomes: ClassVar[bool] = True
    """Whether `assign` looks at rewards at all: some only imitate their teacher."""
    mass: ClassVar[str] = "kept"
    """How much of n_i A_i a rollout's token advantages add up to: "kept", or a sentence that begins with another word. A
    method that does not keep its mass also changes the size of the step."""
    preserves_mass: ClassVar[bool] = True
    """Whether each rollout's token advantages add up to n_i A_i: whether `mass` begins with "kept"."""

    @dataclass(frozen=True)
    class Options:
        """None. A method's own `class Options(Method.Options)` is made a frozen dataclass like this one."""

    options: Options

    def __init_subclass__(cls) -> None:
        kept = cls.mass.startswith("kept")
        if vars(cls).get("preserves_mass", kept) is not kept:
            raise GearError(
                f"{cls.__name__}: preserves_mass={not kept} contradicts mass={cls.mass!r}. State `mass` alone."
            )
        cls.preserves_mass = kept
        if "__dataclass_fields__" not in vars(cls.Options):
            dataclass(frozen=True)(cls.Options)

    def __init__(self, /, **options: Any) -> None:
        check_options(self.Options, options, self.name, "credit")
        self.options = self.Options(**options)
        self.success_at = getattr(self.options, "success", self.success_at)

    def view(self, rollouts: Rollouts) -> Rollouts:
        """The batch as the method sees it: a control may have changed it. What an engine remembers for a method over batches
        (`Rollouts.hint_trust`) is measured on this, so that it knows no more than the method."""
        return rollouts

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
    """Packed results, each (B, L), put back to where the tokens stand, each (B, T). Advantages are 0 where a rollout is
    unscorable, or not trained on."""
    unpack = rollouts.actions.unpack
    advantages = advantages.masked_fill(~rollouts.credited[:, None], 0)
    return Credit(unpack(advantages), unpack(weights), unpack(segments.index), unpack(segments.onsets))
