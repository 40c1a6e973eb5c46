"""GEAR with one part taken away or replaced. Each class says only what differs; see `gear_rl.methods.gear`.

If GEAR does not beat one of these, the part in question earns nothing there. All are ours: that the paper trained
ablations is known, their exact form is not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment import segments as cut
from gear_rl.assignment.baselines import givers_within_groups
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments
from gear_rl.methods.base import option
from gear_rl.methods.gear import DivergenceWeighting, Gear
from gear_rl.methods.randomness import hashed, rollout_keys, token_keys


class Token(DivergenceWeighting):
    """No segments: every token is credited with its own divergence, c_t = d_t."""

    name = "token"
    summary = "GEAR without segments: each token has its own divergence."
    standing = "ours"

    def segments(self, rollouts: Rollouts, d: Tensor) -> Segments:
        return cut.every_token(rollouts.actions)


class SegmentOnly(Gear):
    """No token resolution: GEAR's own segments (5), but *every* one of them, whether an onset, an uncertain token or a
    new turn opened it, is credited as a whole with the divergence of its first token."""

    name = "segment_only"
    summary = "GEAR without token resolution: every segment has the divergence of its first token."
    paper = None
    standing = "ours"

    def local_credit(self, d: Tensor, segments: Segments) -> Tensor:
        return cut.first_token_credit(d, segments)


class TurnSegments(DivergenceWeighting):
    """Turn-level credit: every turn is one segment, credited with the largest divergence in it. (A turn does not begin
    at a departure, so its first token would say nothing.)"""

    name = "turn_segments"
    summary = "Turn-level credit: each turn has the largest divergence in it."
    standing = "ours"

    def segments(self, rollouts: Rollouts, d: Tensor) -> Segments:
        return cut.every_turn(rollouts.actions)

    def local_credit(self, d: Tensor, segments: Segments) -> Tensor:
        return cut.largest_credit(d, segments)


class FixedSegments(DivergenceWeighting):
    """Segments of a fixed length, counted from the start of each turn, credited with the largest divergence in them."""

    name = "fixed_segments"
    summary = "Segments of fixed length, each with the largest divergence in it."
    standing = "ours"

    class Options(DivergenceWeighting.Options):
        length: int = option(8, at_least=1)
        """Tokens in a segment. Default: ours."""

    options: Options

    def segments(self, rollouts: Rollouts, d: Tensor) -> Segments:
        return cut.fixed_length(rollouts.actions, self.options.length)

    def local_credit(self, d: Tensor, segments: Segments) -> Tensor:
        return cut.largest_credit(d, segments)


class Seeded(Gear):
    """A control with chance in it. Its random numbers are a pure function of the seed and the rollout."""

    paper = None

    class Options(Gear.Options):
        seed: int = option(0, at_least=0)
        """Other seeds give other random numbers; the same seed the same ones. Default: ours."""

    options: Options


class RandomSegments(Seeded):
    """GEAR's segments in a random order: as many, as long, and as many of them adaptive, but they begin anywhere in the
    rollout. What is left of GEAR's gain does not come from *where* it cuts."""

    name = "random_segments"
    summary = "GEAR's segments, the same lengths, at random places."
    standing = "ours"

    def segments(self, rollouts: Rollouts, d: Tensor) -> Segments:
        keys = token_keys(rollouts, self.options.seed)
        return cut.shuffled_placement(super().segments(rollouts, d), keys, rollouts.actions)


class Shuffled(Seeded):
    """The divergences d of a rollout, after (3), in a random order over its action tokens; then (4)–(9) as ever. What
    is left of GEAR's gain does not come from *where* the divergence lies, only from uneven weights."""

    name = "shuffled"
    summary = "GEAR with the divergences of each rollout in random order."
    standing = "ours"

    def divergence(self, rollouts: Rollouts, advantage: Tensor) -> Tensor:
        keys = token_keys(rollouts, self.options.seed)
        keys.masked_fill_(~rollouts.actions.valid, torch.iinfo(keys.dtype).max)  # the filling stays last
        return super().divergence(rollouts, advantage).gather(1, keys.argsort(dim=1, stable=True))


class WrongHint(Gear):
    """GEAR whose teacher reads another problem's ground truth. What still learns is not due to what the hint says."""

    name = "wrong_hint"
    summary = "GEAR whose teacher is shown another problem's hint."
    paper = None
    standing = "ours"
    hint = "other"


class ShuffledOutcomes(Seeded):
    """GEAR with outcomes dealt out at random inside each group, among the rollouts that have one and have action tokens.
    What still learns is distilling the hint, not crediting the outcome."""

    name = "shuffled_outcomes"
    summary = "GEAR with the outcomes of each group in random order."
    standing = "ours"

    def outcome(self, rollouts: Rollouts) -> Tensor:
        key = rollout_keys(rollouts, self.options.seed)
        return super().outcome(rollouts)[givers_within_groups(rollouts, (key, hashed(key)))]
