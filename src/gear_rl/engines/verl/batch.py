"""verl's batch, which lies in its transfer queue, as the engine-neutral step takes it; and signals and credit back.

A batch is named by keys, `{uid}_{session}_{trajectory}`. Rows that verl added to fill up a batch (`is_padding`) have no
hint and no credit: they are left out here, and get 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.workers.utils.padding import response_from_nested, response_to_nested

from gear_rl.chat.messages import Prompt
from gear_rl.engines.verl.engine import HINTED, PREFIX
from gear_rl.signals.sampled import Ids, Sampled
from gear_rl.tasks.base import Row, Verdict

VERDICT = "gear_verdict"
"""In an agent loop's extra fields: what the task's judge said."""


class Batch:
    """One training batch of B rows, R of them real rollouts."""

    def __init__(
        self,
        meta: KVBatchMeta,
        columns: Sequence[str],
        read_row: Callable[[dict[str, Any]], tuple[Row, Prompt]],
        judged: bool,
    ) -> None:
        """columns: of the data, to read along. `read_row`: these → the row and its prompt. judged: there are verdicts."""
        self.keys, self.partition = list(meta.keys), meta.partition_id
        self.real = [i for i, tag in enumerate(meta.tags) if not tag.get("is_padding", False)]
        """(R,) their places among the rows."""
        fields = ["uid", "prompts", "responses", "response_mask", "rm_scores", *columns] + ["extra_fields"] * judged
        data = self._get(fields)
        mine = self._mine
        self.prompt_ids: Ids = [ids.tolist() for ids in data["prompts"].unbind()]
        completions = mine([ids.tolist() for ids in data["responses"].unbind()])
        self._mask = data["response_mask"]  # nested (B, T_i)
        listed = {name: _listed(data[name]) for name in columns}
        pairs = [read_row({name: values[i] for name, values in listed.items()}) for i in self.real]
        uids = mine(_listed(data["uid"]))
        number = {uid: n for n, uid in enumerate(dict.fromkeys(uids))}
        verdicts = None
        if judged:
            verdicts = [Verdict(**fields[VERDICT]) for fields in mine(_listed(data["extra_fields"]))]
        width = max(1, *map(len, completions))
        self.sampled = Sampled(
            rows=[row for row, _ in pairs],
            prompts=[prompt for _, prompt in pairs],
            prompt_ids=mine(self.prompt_ids),
            completion_ids=completions,
            token_ids=torch.tensor([ids + [0] * (width - len(ids)) for ids in completions]),
            action_mask=self._padded(self._mask).bool(),
            rewards=self._padded(data["rm_scores"]).float().sum(1),
            group_ids=torch.tensor([number[uid] for uid in uids]),
            verdicts=verdicts,
        )

    @property
    def has_long_sessions(self) -> bool:
        """Whether a session of an agent loop gave several trajectories."""
        sessions = [self.keys[i].rsplit("_", 1)[0] for i in self.real]
        return len(set(sessions)) < len(sessions)

    def put_hinted(self, hinted: Ids) -> None:
        """The teacher's prompts of the real rollouts, for the workers. Others read their own."""
        prompts = list(self.prompt_ids)
        for i, ids in zip(self.real, hinted, strict=True):
            prompts[i] = ids
        nested = torch.nested.as_nested_tensor([torch.tensor(ids) for ids in prompts], layout=torch.jagged)
        self._put({HINTED: nested})

    def scored(self, read: Sequence[str]) -> Sampled:
        """The rollouts with verl's group advantages, and the signals `read` by the workers. None: those of verl's own pass."""
        data = self._get(["advantages", *([PREFIX + name for name in read] or ["old_log_probs", "entropy"])])
        advantages = self._padded(data["advantages"]).float()  # (R, T), the same at every sampled token
        mask = self.sampled.action_mask
        of_group = advantages[torch.arange(len(mask)), mask.int().argmax(1)]
        if read:
            known = {n: self._padded(response_from_nested(data[PREFIX + n], self._mask)).float() for n in read}
        else:
            known = {
                "student_logprob": self._padded(data["old_log_probs"]).float(),
                "entropy": self._padded(data["entropy"]).float(),
            }
        return replace(self.sampled, advantages=of_group, known=known)

    def put_advantages(self, advantages: Tensor) -> None:
        """(R, T)"""
        everyone = advantages.new_zeros(len(self.keys), advantages.shape[1])
        everyone[self.real] = advantages
        lengths = self._mask.offsets().diff()
        if int(lengths.max()) > everyone.shape[1]:
            everyone = torch.nn.functional.pad(everyone, (0, int(lengths.max()) - everyone.shape[1]))
        nested = response_to_nested(everyone, self._mask)
        self._put({"advantages": nested, "returns": nested})

    def _get(self, fields: list[str]) -> TensorDict:
        return tq.kv_batch_get(keys=self.keys, partition_id=self.partition, select_fields=fields)

    def _put(self, fields: dict[str, Tensor]) -> None:
        tensors = TensorDict(fields, batch_size=len(self.keys))
        tq.kv_batch_put(keys=self.keys, partition_id=self.partition, fields=tensors)

    def _mine(self, values: Sequence[Any]) -> list[Any]:
        return [values[i] for i in self.real]

    def _padded(self, nested: Tensor) -> Tensor:
        """Nested (B, T_i) → (R, T) of the real rollouts."""
        rows = self._mine(nested.unbind())
        width = max(1, *map(len, rows))
        return torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])


def _listed(field: Any) -> list[Any]:
    """A field without tensors, as the queue's backends give it."""
    return field.tolist() if hasattr(field, "tolist") else list(field)
