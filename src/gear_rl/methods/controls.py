"""Controls for any method, by name: `rlsd+shuffled_outcomes`, `opsd+wrong_hint`.

A method with a teacher can learn without its outcome (it distils the hint) and without its hint (some of a hint's effect is
style). `shuffled_outcomes` and `wrong_hint` take one of the two away and leave everything else as it is. Alone they are
GEAR's.

`shuffled_outcomes` hands everything that speaks of a rollout's outcome to another rollout of its group, by one permutation:
rewards, given advantages, channels, and the signals made from verdicts or outcomes, row by row. Where two rollouts differ
in length, a turn's reward goes to the turn at the same relative place (first to first, last to last), and so do a token's
decision and span distance. Unscorable rollouts keep what they have.

`sibling_hint` shows the teacher a rollout of the same group that won, in place of the ground truth, and nothing where none
did: what the method is worth where there is no ground truth to show.

`scaled_grpo` keeps the method's step size and takes its credit away: A_t = s A_i, with s = Σ |A_t of the method| / Σ n_i |A_i|
over the batch. A method that does not keep mass changes the size of the step as well as its direction; this says how much
of its effect the size alone has. It reads the same signals, so it costs the same.

`without_lucky_wins` weighs down the rollouts that won although their value collapsed on the way. It reads "values" as
`vine_ppo` does, and needs no labels. With values V_0 … V_{K−1} before the turns of a rollout and the batch's rewards,

    fall_i = max over j < k of (V_j − V_k) / (max r − min r)        A_t → (1 − fall_i) A_t  where A_i > 0

A win whose value never fell keeps its credit, however hard its problem; one whose value fell from certain to nothing gets none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from gear_rl.assignment.baselines import givers_within_groups, group_advantages, wide
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_token
from gear_rl.assignment.turns import Turns
from gear_rl.errors import GearError, unknown_name
from gear_rl.methods.base import SIBLINGS, Method, to_credit
from gear_rl.methods.randomness import hashed, rollout_keys

OUTCOMES_OF_TURNS = ("turn_reward",)
OUTCOMES_OF_TOKENS = ("decision", "span_distance")
"""Signals that are made from verdicts or outcomes, and so tell them."""
OUTCOMES_ELSEWHERE = ("values", "prefix_value", "judged_turn", "wrong_teacher_logprob", "hindsight_logprob")
"""Signals that tell of outcomes in a way that cannot be dealt out: measured, read from how a rollout ended, or from rollouts
that lost."""
_SEED = 0  # a control has no options of its own; rollouts differ from step to step, and so do their hashes


def controlled(method: type[Method], control: str) -> type[Method]:
    """The class of `method` under `control`."""
    if control not in CONTROLS:
        raise unknown_name("control", control, CONTROLS)
    refusal, summary, changed = CONTROLS[control](method)
    name = f"{method.name}+{control}"
    if refusal:
        raise GearError(f"{name}: {refusal}")
    return type("Controlled", (method,), dict(name=name, summary=summary, paper=None, standing="ours", **changed))


_Control = tuple[str | None, str, dict[str, Any]]
"""Why it does not apply to the method, or None; the summary; and the attributes that it replaces."""


def _wrong_hint(method: type[Method]) -> _Control:
    refusal = None if method.hint == "own" else f"{method.name} has no teacher that reads its own ground truth."
    return refusal, f"{method.name} whose teacher is shown another problem's hint.", {"hint": "other"}


def _sibling_hint(method: type[Method]) -> _Control:
    refusal = None if method.hint == "own" else f"{method.name} has no teacher that reads its own ground truth."
    if "shuffled_outcomes" in method.name:
        refusal = "siblings are chosen by their true outcomes, which would not be shuffled."
    return refusal, f"{method.name} whose teacher is shown a rollout that won.", {"hint": "sibling"}


def _shuffled_outcomes(method: type[Method]) -> _Control:
    def view(self: Method, rollouts: Rollouts) -> Rollouts:
        return with_shuffled_outcomes(rollouts, _SEED)

    def assign(self: Method, rollouts: Rollouts) -> Credit:
        return method.assign(self, view(self, rollouts))

    refusal = None
    if not method.reads_outcomes:
        refusal = f"{method.name}'s advantages do not depend on outcomes."
    elif method.hint in (*SIBLINGS, "feedback") or set(method.needs) & set(OUTCOMES_ELSEWHERE):
        refusal = f"{method.name} also knows outcomes from siblings, feedback or measured values, which would stay in place."
    return refusal, f"{method.name} with the outcomes of each group in random order.", {"view": view, "assign": assign}


def _scaled_grpo(method: type[Method]) -> _Control:
    def assign(self: Method, rollouts: Rollouts) -> Credit:
        actions, outcome = rollouts.actions, group_advantages(rollouts)  # (B,)
        plain = (outcome.abs() * actions.counts * rollouts.credited).sum(dtype=wide(outcome))
        scale = method.assign(self, rollouts).advantages.abs().sum(dtype=wide(outcome)) / plain.clamp(min=1e-12)
        weights = actions.valid * scale.to(rollouts.dtype)
        return to_credit(rollouts, outcome[:, None] * weights, weights, every_token(actions))

    changes_size = method.reads_outcomes and not method.preserves_mass
    refusal = None if changes_size else f"{method.name} does not change the size of GRPO's step."
    return refusal, f"GRPO with a step of the size that {method.name} takes.", {"assign": assign}


def _without_lucky_wins(method: type[Method]) -> _Control:
    def initialise(self: Method, /, **options: Any) -> None:
        method.__init__(self, **options)
        self.needs = tuple(dict.fromkeys((*self.needs, "values")))  # options may have changed the method's own

    def assign(self: Method, rollouts: Rollouts) -> Credit:
        credit = method.assign(self, rollouts)
        kept = 1 - falls(self.signal(rollouts, "values"), rollouts)  # (B,)
        kept = kept.where(group_advantages(rollouts) > 0, 1.0)[:, None]
        return replace(credit, advantages=credit.advantages * kept, weights=credit.weights * kept)

    changed = {
        "__init__": initialise,
        "assign": assign,
        "needs": tuple(dict.fromkeys((*method.needs, "values"))),
        "mass": "less in wins whose value fell",
    }
    refusal = None if method.reads_outcomes else f"{method.name}'s advantages do not depend on outcomes."
    if "shuffled_outcomes" in method.name:
        refusal = "values tell the true outcomes, which would not be shuffled."
    return refusal, f"{method.name} with less credit for wins whose measured value had collapsed.", changed


CONTROLS: dict[str, Callable[[type[Method]], _Control]] = {
    "shuffled_outcomes": _shuffled_outcomes,
    "wrong_hint": _wrong_hint,
    "sibling_hint": _sibling_hint,
    "scaled_grpo": _scaled_grpo,
    "without_lucky_wins": _without_lucky_wins,
}


def falls(values: Tensor, rollouts: Rollouts) -> Tensor:
    """The most that each rollout's value, packed (B, L), ever lost on the way → (B,), in shares of the batch's range of
    rewards."""
    turns, rewards = Turns(rollouts.actions), rollouts.rewards[rollouts.scorable]
    table = turns.at_first_tokens(values)  # (B, K)
    lost = (table.cummax(1).values - table).masked_fill(~turns.taken, 0).amax(1)
    spread = (rewards.max() - rewards.min()).clamp(min=1e-12) if len(rewards) else lost.new_ones(())
    return (lost / spread).clamp(max=1)


def with_shuffled_outcomes(rollouts: Rollouts, seed: int) -> Rollouts:
    """The same rollouts with all that is known of their outcomes dealt out at random inside each group."""
    key = rollout_keys(rollouts, seed)
    givers = givers_within_groups(rollouts, (key, hashed(key)))  # (B,)
    signals = dict(rollouts.signals)
    for name in OUTCOMES_OF_TURNS:
        if name in signals:
            signals[name] = _turns_from(signals[name], givers, rollouts)
    for name in OUTCOMES_OF_TOKENS:
        if name in signals:
            signals[name] = _tokens_from(signals[name], givers, rollouts)
    given = rollouts.advantages
    return replace(
        rollouts,
        rewards=rollouts.rewards[givers],
        advantages=None if given is None else given[givers],
        channels={name: rewards[givers] for name, rewards in rollouts.channels.items()},
        signals=signals,
    )


def _turns_from(signal: Tensor, givers: Tensor, rollouts: Rollouts) -> Tensor:
    """A signal that is read at the turns' last tokens (B, T) → (B, T), on the last tokens alone."""
    actions = rollouts.actions
    turns = Turns(actions)
    of_turn = turns.at_last_tokens(actions.pack(signal))[givers]  # (B, K)
    table = of_turn.gather(1, _matching(turns.counts, turns.counts[givers], of_turn.shape[1]))
    is_last = actions.turn_starts.roll(-1, 1) | ~actions.valid.roll(-1, 1)
    is_last[:, -1] = True
    return actions.unpack(turns.spread(table) * is_last)


def _tokens_from(signal: Tensor, givers: Tensor, rollouts: Rollouts) -> Tensor:
    """A signal of every action token (B, T) → (B, T)."""
    actions = rollouts.actions
    packed = actions.pack(signal)[givers]  # (B, L)
    return actions.unpack(packed.gather(1, _matching(actions.counts, actions.counts[givers], packed.shape[1])))


def _matching(own: Tensor, giver: Tensor, width: int) -> Tensor:
    """For each of a rollout's `own` (B,) places the giver's (B,) place, spread evenly from first to last → (B, width)."""
    own_last, giver_last = (own - 1).clamp(min=0)[:, None], (giver - 1).clamp(min=0)[:, None]
    places = own.new_ones(width).cumsum(0)[None] - 1  # (1, width) 0, 1, …
    even = (2 * places * giver_last + own_last) // (2 * own_last).clamp(min=1)
    return even.where(own_last > 0, giver_last).minimum(giver_last)
