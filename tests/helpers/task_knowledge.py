"""What a user's task knows, given as functions."""

from __future__ import annotations

from gear_rl.signals.sources import TaskKnowledge


class GivenKnowledge(TaskKnowledge):
    """Functions of the rollouts' completions (ids). `names`: the signals that `token_signals` gives."""

    def __init__(self, *names, token_signals=None, channels=None, feedback=None):
        self.signals = frozenset(names)
        self.has_channels, self.has_feedback = channels is not None, feedback is not None
        self._signals, self._channels, self._feedback = token_signals, channels, feedback

    def token_signals(self, sampled):
        if self._signals is not None:
            return self._signals(sampled.completion_ids)
        return {name: [[0.0] * len(ids) for ids in sampled.completion_ids] for name in self.signals}

    def channels(self, sampled):
        return self._channels(sampled.completion_ids) if self._channels else {}

    def feedback(self, sampled):
        return self._feedback(sampled.completion_ids) if self._feedback else super().feedback(sampled)
