"""Credit as data for Tinker, and for servers that speak its interface (SkyRL): `forward_backward(data, "importance_sampling")`.

    method = method_for_tinker("rlsd")                   what log-probabilities cannot give is an error here
    credit = assign(method, rollouts, sampling_client)   the client reads the sampled tokens behind hinted prompts
    data = to_data(rollouts, credit)                     tinker.Datum, one per rollout

Tinker gives the log-probability of a given token, of the policy and of the policy with a hint: methods that read these of the
sampled tokens work (rlsd, opd, crpo, …). It gives no logits, so a divergence over the vocabulary (gear), an entropy, gradients
and hidden states cannot be had, and no second term goes into its losses. Tested with tinker 0.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.errors import GearError
from gear_rl.methods import METHODS, Method, method
from gear_rl.scoring.padding import padded

if TYPE_CHECKING:
    from tinker import Datum, SamplingClient

GIVEN = ("student_logprob", "teacher_logprob")
"""Signals that log-probabilities of the sampled tokens are."""


@dataclass(frozen=True)
class TinkerRollout:
    """One rollout as a client of Tinker has it: what was sent, and what came back. Lists are per token of the completion."""

    prompt_ids: list[int]
    completion_ids: list[int]
    """Everything after the prompt, the environment's tokens included."""
    action_mask: list[int]
    """1 where the policy sampled the token."""
    logprobs: list[float]
    """Of the sampler, for sampled tokens; anything elsewhere."""
    reward: float
    group: int
    """Rollouts of one prompt share it."""
    hinted_prompt_ids: list[int] | None = None
    """The prompt with the hint in it, where the method has a teacher."""
    channels: dict[str, float] = field(default_factory=dict)
    """The parts of the reward by name, where the method reads them (crpo)."""

    def __post_init__(self) -> None:
        if not self.prompt_ids or 1 not in self.action_mask:
            raise GearError("a rollout needs a prompt, and a token that the policy sampled.")
        if not len(self.completion_ids) == len(self.action_mask) == len(self.logprobs):
            raise GearError("completion_ids, action_mask and logprobs of a rollout must be equally long.")


def method_for_tinker(name: str, **options: Any) -> Method:
    """The method, if log-probabilities of sampled tokens are all that it reads of a model."""
    chosen = method(name, **options)
    if why := _impossible(chosen):
        able = ", ".join(other for other in METHODS if not _impossible(METHODS[other]()))
        raise GearError(f"{name} cannot work through Tinker's interface: {why}. What can: {able}.")
    return chosen


def _impossible(chosen: Method) -> str | None:
    if missing := [need for need in chosen.needs if need not in GIVEN]:
        return f"it reads {missing[0]}, and there are log-probabilities of sampled tokens only"
    if chosen.distillation is not None:
        return "it adds a divergence to the loss, which needs logits"
    return None


def assign(chosen: Method, rollouts: Sequence[TinkerRollout], client: SamplingClient | None = None) -> Credit:
    """Credit of whole groups. `client` samples from the weights that the rollouts are from: a teacher's log-probabilities are
    theirs, behind the hinted prompts."""
    signals = {}
    if "student_logprob" in chosen.needs:
        signals["student_logprob"] = padded([r.logprobs for r in rollouts], torch.float32)
    if "teacher_logprob" in chosen.needs:
        signals["teacher_logprob"] = _teacher_logprob(chosen, rollouts, client)
    mask = padded([r.action_mask for r in rollouts], torch.bool)
    return chosen.assign(
        Rollouts(
            action_mask=mask,
            rewards=torch.tensor([r.reward for r in rollouts], dtype=torch.float32),
            group_ids=torch.tensor([r.group for r in rollouts]),
            token_ids=padded([r.completion_ids for r in rollouts]),
            channels={name: torch.tensor([r.channels[name] for r in rollouts]) for name in rollouts[0].channels},
            signals={name: signal.masked_fill(~mask, 0) for name, signal in signals.items()},
        )
    )


def _teacher_logprob(chosen: Method, rollouts: Sequence[TinkerRollout], client: SamplingClient | None) -> Tensor:
    """(B, T) log-probability of each token of the completion behind the hinted prompt."""
    from tinker import ModelInput

    if client is None:
        raise GearError(f"{chosen.name} has a teacher: give the sampling client that reads for it.")
    asked = []
    for i, rollout in enumerate(rollouts):
        if rollout.hinted_prompt_ids is None:
            raise GearError(f"rollout {i} has no hinted_prompt_ids, which the teacher of {chosen.name} reads.")
        tokens = ModelInput.from_ints([*rollout.hinted_prompt_ids, *rollout.completion_ids])
        asked.append(client.compute_logprobs(tokens, len(rollout.completion_ids)))  # all are under way before the first is read
    rows = []
    for i, (rollout, future) in enumerate(zip(rollouts, asked, strict=True)):
        row = future.result()[-len(rollout.completion_ids) :]
        if any(value is None and sampled for value, sampled in zip(row, rollout.action_mask, strict=True)):
            raise GearError(f"rollout {i}: the server gave no log-probability for a sampled token.")
        rows.append([0.0 if value is None else value for value in row])
    return padded(rows, torch.float32)


def to_data(rollouts: Sequence[TinkerRollout], credit: Credit) -> list[Datum]:
    """A `Datum` per rollout, for the losses importance_sampling, ppo and cispo.

    Position t holds what predicts token t + 1. Where the policy sampled nothing, advantage and log-probability are 0, and so
    is the loss. Tinker adds up over tokens: whoever wants a mean divides the learning rate, or `credit.advantages`.
    """
    from tinker import Datum, ModelInput

    data = []
    for rollout, row in zip(rollouts, credit.advantages.tolist(), strict=True):
        tokens = [*rollout.prompt_ids, *rollout.completion_ids]
        before = [0.0] * (len(rollout.prompt_ids) - 1)
        sampled = [bool(x) for x in rollout.action_mask]
        inputs = {
            "target_tokens": tokens[1:],
            "logprobs": before + [x if s else 0.0 for x, s in zip(rollout.logprobs, sampled, strict=True)],
            "advantages": before + [x if s else 0.0 for x, s in zip(row[: len(sampled)], sampled, strict=True)],
        }
        data.append(Datum(model_input=ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs))
    return data
