"""verl's FSDP engine, with one more forward per micro-batch: the teacher's, over the hinted prompt and the same completion.

verl's own pass for the old log-probabilities leaves the student's hidden states at the sampled tokens, (N, D). The teacher's
pass leaves its own, and both are compared at the head, over the full vocabulary, by `token_divergence`: where the head is
gathered anyway, with no (N, V) logits of ours. Four numbers per token go back. Each rank runs one teacher pass for each
student pass, and verl gives all ranks the same number of micro-batches, so that collectives agree.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id, get_device_name
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from gear_rl.engines.verl.positions import Positions
from gear_rl.engines.verl.shard_teacher import ShardTeacher
from gear_rl.errors import GearError
from gear_rl.scoring import Divergence, Head, token_divergence
from gear_rl.scoring.scorer import SIGNALS

REQUEST, HINTED = "gear_request", "gear_hinted"
"""In a batch: what to read, as JSON text, and the teacher's prompts."""
PREFIX = "gear_"
"""Of the signals that go back, each nested like input_ids."""


class CreditFSDPEngine(FSDPEngineWithLMHead):
    _teacher: ShardTeacher | None = None
    _resumed_from: Path | None = None
    _proven = False

    def forward_step(self, micro_batch: TensorDict, loss_function: Any, forward_only: bool) -> Any:
        request = tu.get_non_tensor_data(data=micro_batch, key=REQUEST, default=None)
        if not forward_only or request is None:
            return super().forward_step(micro_batch, loss_function, forward_only)
        asked = json.loads(request)
        teacher = self._teacher_of(asked)
        batch = micro_batch.to(get_device_id())
        read = _Read(batch)
        student: dict[str, Any] = {}

        def keep(hidden: Tensor) -> None:
            student["states"] = read.student.states(hidden, read.is_packed)
            head = Head.of(self.module)
            if teacher is not None:  # other weights take its place during the teacher's pass
                head = dataclasses.replace(
                    head,
                    weight=head.weight.clone(),
                    bias=None if head.bias is None else head.bias.clone(),
                )
            student["head"] = head

        with self._at_head(keep):
            loss, output = super().forward_step(micro_batch, loss_function, forward_only)
        signals, teachers = self._compare(read, student, teacher, float(asked["temperature"]), asked["extra"])
        if not self._proven:
            self._prove(signals, teachers, output["model_output"]["log_probs"].values(), read)
        offsets = batch["input_ids"].offsets()
        for name in (*SIGNALS, *asked["extra"]):
            spread = read.student.spread(getattr(signals, name), int(offsets[-1]))
            output["model_output"][PREFIX + name] = torch.nested.nested_tensor_from_jagged(spread, offsets)
        return loss, output

    # ------------------------------------------------------------------------------------------ the teacher's pass
    def _compare(
        self, read: _Read, student: dict[str, Any], teacher: ShardTeacher | None, temperature: float, extra: list[str]
    ) -> tuple[Divergence, Tensor | None]:
        """The signals of the N sampled tokens, and verl's own (total,) log-probabilities of the teacher's pass while these
        are still to be proven."""
        found: dict[str, Divergence] = {}

        def compare(hidden: Tensor) -> Tensor | None:
            theirs, mine, head = read.teacher.states(hidden, read.is_packed), student["states"], student["head"]
            heads = Head.of(self.module)
            found["signals"] = token_divergence(
                mine.to(head.weight.dtype), theirs.to(heads.weight.dtype), head, read.tokens, heads, temperature, extra=extra
            )  # fmt: skip
            return hidden[:, :1] if self._proven else None  # logits of one position, which nobody reads

        inputs, arguments = self.prepare_model_inputs(micro_batch=read.hinted)
        dtype = self._autocast_dtype
        cast = nullcontext() if dtype == torch.float32 else torch.autocast(device_type=get_device_name(), dtype=dtype)
        with teacher.in_place() if teacher else nullcontext(), cast, self._at_head(compare):
            raw = self.module(**inputs, use_cache=False)
            logps = None
            if not self._proven:
                plain = self.prepare_model_outputs(
                    output=raw, output_args=arguments, micro_batch=read.hinted, logits_processor_func=None
                )
                logps = plain["log_probs"].values()
        return found["signals"], logps

    @contextmanager
    def _at_head(self, see: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
        """Inside, `see` gets the hidden states that enter the head, while its weight is gathered. What it returns goes on
        instead of them."""

        def hook(_: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            instead = see(inputs[0])
            return None if instead is None else (instead,)

        handle = self.module.get_output_embeddings().register_forward_pre_hook(hook)
        try:
            yield
        finally:
            handle.remove()

    def _prove(self, signals: Divergence, teachers: Tensor | None, students: Tensor, read: _Read) -> None:
        """Before the first step: verl's own log-probabilities from full logits, for both passes, must be ours."""
        assert teachers is not None
        tolerance = 2e-3 if self._autocast_dtype == torch.float32 else 0.1
        for who, ours, plain, positions in (
            ("student", signals.student_logprob, students, read.student),
            ("hinted teacher", signals.teacher_logprob, teachers, read.teacher),
        ):
            gap = float((ours - plain[positions.packed].float()).abs().mean()) if len(ours) else 0.0
            if not gap <= tolerance:
                raise GearError(
                    f"start-up self-check failed: the {who}'s scores and a plain forward differ by {gap:.3g} nats a token on "
                    f"average (allowed {tolerance}). Training would learn from wrong signals, so it was stopped."
                )
        self._proven = True

    # ------------------------------------------------------------------------------------------ weights of its own
    def _teacher_of(self, asked: dict[str, Any]) -> ShardTeacher | None:
        if asked["teacher"] == "live":
            return None
        if self._teacher is None:
            self._teacher = ShardTeacher(self.module, asked["teacher"], asked["every"], asked["decay"])
            if self._resumed_from is not None:
                self._teacher.load(self._resumed_from)
        return self._teacher

    def optimizer_step(self) -> float:
        norm = super().optimizer_step()
        if self._teacher is not None:
            self._teacher.after_step()
        return norm

    def save_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        super().save_checkpoint(local_path, *args, **kwargs)
        if self._teacher is not None:
            self._teacher.save(self._teacher_file(local_path))

    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        super().load_checkpoint(local_path, *args, **kwargs)
        self._resumed_from = self._teacher_file(local_path)

    def _teacher_file(self, folder: str) -> Path:
        return Path(folder) / f"gear_teacher_{torch.distributed.get_world_size()}_{self.rank}.safetensors"


class _Read:
    """What student and teacher read of a micro-batch, and where its sampled tokens lie for each."""

    def __init__(self, batch: TensorDict) -> None:
        prompts, responses, hinted = (batch[name].unbind() for name in ("prompts", "responses", HINTED))
        masks = [mask.bool() for mask in batch["response_mask"].unbind()]
        self.is_packed = bool(tu.get_non_tensor_data(data=batch, key="use_remove_padding", default=True))
        self.student = Positions.of([len(p) for p in prompts], masks)
        self.teacher = Positions.of([len(h) for h in hinted], masks)
        self.tokens = torch.cat([ids[mask] for ids, mask in zip(responses, masks, strict=True)])
        """(N,)"""
        sequences = [torch.cat(pair) for pair in zip(hinted, responses, strict=True)]
        nested = torch.nested.as_nested_tensor(sequences, layout=torch.jagged)
        places = [torch.arange(len(sequence), device=sequence.device) for sequence in sequences]
        self.hinted = batch.copy()
        """The micro-batch with the teacher's sequences."""
        self.hinted["input_ids"] = nested
        self.hinted["position_ids"] = torch.nested.as_nested_tensor(places, layout=torch.jagged)
        tu.assign_non_tensor_data(self.hinted, "calculate_entropy", False)
        self.hinted.pop("multi_modal_inputs", None)
