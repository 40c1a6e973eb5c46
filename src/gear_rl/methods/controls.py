"""Controls for any method, by name: `rlsd+shuffled_outcomes`, `opsd+wrong_hint`.

A method with a teacher can learn without its outcome (it distils the hint) and without its hint (some of a hint's effect is
style). Both controls take one of the two away and leave everything else as it is. `shuffled_outcomes` and `wrong_hint`
alone are GEAR's.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from gear_rl.assignment.baselines import shuffle_within_groups
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.errors import GearError, unknown_name
from gear_rl.methods.base import Method
from gear_rl.methods.randomness import hashed, rollout_keys

CONTROLS = ("shuffled_outcomes", "wrong_hint")
_SEED = 0  # a control has no options of its own; rollouts differ from step to step, and so do their hashes


def controlled(method: type[Method], control: str) -> type[Method]:
    """The class of `method` under `control`."""
    if control not in CONTROLS:
        raise unknown_name("control", control, CONTROLS)
    if control == "wrong_hint":
        return _with_wrong_hint(method)
    return _with_shuffled_outcomes(method)


def _with_wrong_hint(method: type[Method]) -> type[Method]:
    if method.hint != "own":
        raise GearError(f"{method.name}+wrong_hint: {method.name} has no teacher that reads its own ground truth.")

    class Controlled(method):  # type: ignore[valid-type, misc]
        name = f"{method.name}+wrong_hint"
        summary = f"{method.name} whose teacher is shown another problem's hint."
        standing = "ours"
        hint = "other"

    return Controlled


def _with_shuffled_outcomes(method: type[Method]) -> type[Method]:
    if not method.reads_outcomes:
        raise GearError(f"{method.name}+shuffled_outcomes: {method.name}'s advantages do not depend on outcomes.")

    class Controlled(method):  # type: ignore[valid-type, misc]
        name = f"{method.name}+shuffled_outcomes"
        summary = f"{method.name} with the outcomes of each group in random order."
        standing = "ours"

        def assign(self, rollouts: Rollouts) -> Credit:
            key = rollout_keys(rollouts, _SEED)
            keys = (key, hashed(key))

            def shuffled(outcomes: Tensor) -> Tensor:  # one permutation for all that was said about a rollout's outcome
                return shuffle_within_groups(outcomes, rollouts, keys)

            given = rollouts.advantages
            return super().assign(
                replace(
                    rollouts,
                    rewards=shuffled(rollouts.rewards),
                    advantages=None if given is None else shuffled(given),
                    channels={name: shuffled(rewards) for name, rewards in rollouts.channels.items()},
                )
            )

    return Controlled
