"""A batch of rollouts as an engine sampled it, before any credit. B rollouts, T token positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from gear_rl.chat.messages import Prompt
from gear_rl.tasks.base import Row, Verdict

Ids = list[list[int]]


@dataclass(frozen=True)
class Sampled:
    """What this process sampled. Whole groups, or parts of them where a group spans processes."""

    rows: Sequence[Row]
    """The data's own columns, one row per rollout."""
    prompts: Sequence[Prompt]
    """What the policy read, before tokenisation."""
    prompt_ids: Ids
    completion_ids: Ids
    """Everything after the prompt, the environment's tokens included."""
    token_ids: Tensor
    """(B, T) the completions, padded on the right."""
    action_mask: Tensor
    """(B, T) bool. True where the policy sampled the token."""
    rewards: Tensor
    """(B,)"""
    group_ids: Tensor
    """(B,)"""
    advantages: Tensor | None = None
    """(B,) group advantages, where the engine has computed them."""
    channels: Mapping[str, Tensor] = field(default_factory=dict)
    """The parts of the reward by name, each (B,), where the engine knows them."""
    verdicts: Sequence[Verdict] | None = None
    """What the task's judge said, where a task of ours was played."""
    known: Mapping[str, Tensor] = field(default_factory=dict)
    """Signals that the engine's own step has computed, each (B, T)."""

    trained: Tensor | None = None
    """(B,) bool. False: the engine's loss leaves the rollout out. None: it has all."""

    @property
    def trained_mask(self) -> Tensor:
        """(B, T) bool. The action tokens that the engine's loss has."""
        return self.action_mask if self.trained is None else self.action_mask & self.trained[:, None]

    def __len__(self) -> int:
        return len(self.rows)
