"""The distillation term: a divergence between student and teacher, added to the engine's own loss.

    loss = engine's  +  coefficient · mean ι D(student, teacher)  +  reference coefficient · mean R(student, starting policy)

What D and R are, and the importance weight ι of a token, is the method's (`gear_rl.methods.distillation`). ι is 1 where the
engine's batch holds no log-probabilities from sampling: then the policy is the one that sampled.

Means are over the action tokens of one optimizer step, in all processes; the first leaves out rollouts whose teacher has
nothing to read. The student's states are taken from the engine's own forward pass, so its body does not run twice.
The teacher's are read without gradient: once per generation batch, for whole groups together, and kept at the action
tokens (they stay in the engine's batch) where they fit `KEPT_BYTES`. Where they do not, and where the weights have moved
since (several optimizer steps per generation batch), each step reads its own part again with the teacher as it is then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.methods import Distillation
from gear_rl.scoring.distillation import distillation_divergence, importance_weight, trainable_head
from gear_rl.scoring.distillation_formulas import Compared
from gear_rl.scoring.divergence import token_divergence
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.states import states_before
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.hinted import Hinted
from gear_rl.signals.sampled import Ids, Sampled

KEPT_BYTES = 2 << 30
"""Of teacher's states in a generation batch, per process; ours."""


class DistillationTerm:
    def __init__(self, distillation: Distillation, scorer: Scorer, teacher: Teacher) -> None:
        self.distillation, self.scorer, self.teacher = distillation, scorer, teacher
        d = distillation
        self.compared = {
            "teacher": Compared(d.kind, d.beta, d.top_k, d.tail, d.entry_clip, d.token_cap, d.temper_teacher),
            "reference": Compared(d.reference),
        }
        self.reference: Teacher | None = None
        if d.reference_coefficient:
            self.reference = teacher if teacher.kind == "base" else Teacher(scorer.weights, "base")

    # ------------------------------------------------------------------------------------------ per generation batch
    def prepare(
        self,
        sampled: Sampled,
        hinted: Hinted,
        step: int,
        total: Callable[[Tensor], Tensor],
        weights: Tensor | None = None,
    ) -> dict[str, Any]:
        """What the engine's batch carries along to the loss. `total`: the sum of a number over all processes. `weights`: of
        each token's loss, (B, T), as `Credit.distillation`."""
        actions, unread = sampled.trained_mask, set(hinted.unread)
        distilled = actions.clone()
        distilled[hinted.unread] = False
        carried: dict[str, Any] = {
            "gear_step": torch.tensor(step),
            "gear_hinted": [[] if i in unread else prompt for i, prompt in enumerate(hinted.prompt_ids)],
            "gear_prompts": sampled.prompt_ids,
            "gear_distilled": total(distilled.sum()),
            "gear_actions": total(actions.sum()),
        }
        if weights is not None:
            carried["gear_distillation_weights"] = weights
        weight = next(self.scorer.model.parameters())
        width = self.scorer.model.get_input_embeddings().embedding_dim
        if 2 * self.scorer.weights.most(int(actions.sum())) * width * weight.element_size() <= KEPT_BYTES:
            readers = self._readers(carried["gear_prompts"], carried["gear_hinted"])
            for name, (reader, prompts, _) in readers.items():
                mask = distilled if name == "teacher" else actions
                states = self._read(reader, prompts, sampled.token_ids, mask)
                carried[f"gear_{name}_states"] = list(states.split(mask.sum(1).tolist()))
        return carried

    # ------------------------------------------------------------------------------------------ per loss
    def loss(
        self, forwards: list[Tensor], inputs: dict[str, Any], step: int, share: float
    ) -> tuple[Tensor, dict[str, tuple[float, float]]]:
        """The term, and the mean divergences to log with the number of their tokens.

        share: how much of the generation batch's tokens, over all processes, one optimizer step of this process has: TRL
        adds up over micro-batches and averages over processes.
        """
        if len(forwards) != 1:
            raise GearError(
                f"the engine ran the policy's body {len(forwards)} times for one loss; distillation expects once."
            )
        actions = inputs["completion_mask"].bool()
        if "tool_mask" in inputs:
            actions = actions & inputs["tool_mask"].bool()
        first = inputs["prompt_ids"].shape[1] - 1  # the state before the first token of the completion
        states = forwards[0][:, first : first + actions.shape[1]]  # (B, T, D)
        term, metrics = states.new_zeros((), dtype=torch.float32), dict[str, tuple[float, float]]()
        readers = self._readers(inputs["gear_prompts"], inputs["gear_hinted"])
        for name, (reader, prompts, coefficient) in readers.items():
            mask, tokens = actions, inputs["gear_actions"]
            if name == "teacher":
                mask = actions & torch.tensor([bool(prompt) for prompt in prompts], device=actions.device)[:, None]
                tokens = inputs["gear_distilled"]
            kept = inputs.get(f"gear_{name}_states") if int(inputs["gear_step"]) == step else None
            theirs = (
                self._read(reader, prompts, inputs["completion_ids"], mask) if kept is None else torch.cat(list(kept))
            )
            with reader.in_place():
                head = self.scorer.weights.head()
            divergence = distillation_divergence(
                states[mask],
                trainable_head(self.scorer.weights),
                theirs,
                head,
                self.compared[name],
                self.scorer.temperature,
                token_ids=inputs["completion_ids"][mask],
            )
            weighted = divergence
            if name == "teacher":
                weighted = divergence * self._importance(states, inputs, mask)
                if "gear_distillation_weights" in inputs:
                    weighted = weighted * inputs["gear_distillation_weights"][mask]
            term = term + coefficient * weighted.sum() / (tokens * share).clamp(min=1.0)
            mean = float(divergence.detach().mean()) if len(divergence) else 0.0
            metrics[f"distillation/{name}"] = mean, float(len(divergence))
        return term, metrics

    def _importance(self, states: Tensor, inputs: dict[str, Any], mask: Tensor) -> Tensor | float:
        """ι of the tokens in `mask`, (N,), or 1."""
        clip, old = self.distillation.importance_clip, inputs.get("old_per_token_logps")
        if clip is None or old is None:
            return 1.0
        head = self.scorer.weights.head()  # by all processes, where it is sharded
        if not mask.any():
            return 1.0
        hidden = states[mask].detach().to(head.weight.dtype)
        now = token_divergence(
            hidden, hidden, head, inputs["completion_ids"][mask], temperature=self.scorer.temperature
        ).student_logprob
        return importance_weight(now, old[mask], clip)

    def _readers(self, prompts: Ids, hinted: Ids) -> dict[str, tuple[Teacher, Ids, float]]:
        """Who is compared with: name → (weights, prompts, coefficient)."""
        readers: dict[str, tuple[Teacher, Ids, float]] = {}
        if self.distillation.coefficient:
            readers["teacher"] = self.teacher, hinted, self.distillation.coefficient
        if self.reference is not None:
            readers["reference"] = self.reference, prompts, self.distillation.reference_coefficient
        return readers

    def _read(self, reader: Teacher, prompts: Ids, ids: Tensor, mask: Tensor) -> Tensor:
        return states_before(self.scorer, prompts, ids, mask, reader)
