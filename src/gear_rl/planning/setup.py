"""What is to be planned: a model, GPUs, the rollouts of a step, and how they are trained on."""

from __future__ import annotations

from dataclasses import dataclass, fields

from gear_rl.errors import GearError, unknown_name
from gear_rl.planning.hardware import NETWORK, NODE, Gpu
from gear_rl.planning.model_shapes import ModelShape
from gear_rl.scoring.teacher import KINDS

SHARDING = ("none", "fsdp")
PRECISION = {"bf16": 2, "mixed": 4}
"""Bytes of a weight, of its gradient and of each of AdamW's two averages. mixed: float32, computed with in bf16."""
LEAST = {"turns": 1, "reply": 0, "hint": 0, "answer": 1, "micro_batch": 1, "lora": 0, "prompt": 1, "completion": 1}
MOST = 10**9


@dataclass(frozen=True)
class Setup:
    shape: ModelShape
    gpu: Gpu
    gpus: int = 1
    rollouts: int = 64
    """Of one optimizer step, on all GPUs."""
    group: int = 8
    prompt: int = 1024
    completion: int = 1024
    """Tokens that the policy samples in a rollout, all turns together."""
    turns: int = 1
    reply: int = 256
    """Tokens of the environment after each turn but the last."""
    hint: int = 64
    answer: int = 16
    """Tokens of a reference answer, for methods that read it."""
    micro_batch: int = 0
    """Rollouts of one backward pass on one GPU; 0: as many as fit."""
    sharding: str = "none"
    precision: str = "bf16"
    lora: int = 0
    """Rank of the adapters; 0: all weights are trained."""
    checkpointing: bool = True
    teacher: str | None = None
    """None: the kind that each method's source uses, else live."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool):
                least = 0 if field.name == "micro_batch" else LEAST.get(field.name, 1)
                if not least <= value <= MOST:
                    flag = "--" + field.name.replace("_", "-")
                    raise GearError(f"{flag} {value}: must be a whole number from {least} to {MOST:,}.")
        if self.sharding not in SHARDING:
            raise unknown_name("sharding", self.sharding, SHARDING)
        if self.precision not in PRECISION:
            raise unknown_name("precision", self.precision, PRECISION)
        if self.teacher is not None and self.teacher not in KINDS:
            raise unknown_name("teacher", self.teacher, KINDS)
        if self.group < 2:
            raise GearError("--group 1: a group advantage needs at least two rollouts of a prompt.")
        if self.rollouts % self.group:
            raise GearError(f"--rollouts {self.rollouts}: must be a multiple of --group {self.group}.")
        if self.rollouts % self.gpus:
            raise GearError(
                f"--rollouts {self.rollouts} on {self.gpus} GPUs: every GPU takes as many, so give a multiple of "
                f"{self.gpus}."
            )
        if self.micro_batch and self.here % self.micro_batch:
            raise GearError(f"--micro-batch {self.micro_batch}: must divide the {self.here} rollouts of a GPU.")
        if self.turns > self.completion:
            raise GearError(f"--turns {self.turns}: more than --completion {self.completion} has tokens.")
        if self.sharding == "fsdp" and self.gpus == 1:
            raise GearError("--shard fsdp needs at least two GPUs.")

    @property
    def here(self) -> int:
        """Rollouts of one GPU."""
        return self.rollouts // self.gpus

    @property
    def prompts_here(self) -> int:
        """Different prompts on one GPU. Groups may span GPUs."""
        return max(1, self.here // self.group)

    @property
    def response(self) -> int:
        """Tokens behind the prompt, the environment's included."""
        return self.completion + (self.turns - 1) * self.reply

    @property
    def length(self) -> int:
        return self.prompt + self.response

    @property
    def shards(self) -> int:
        return self.gpus if self.sharding == "fsdp" else 1

    @property
    def link(self) -> float:
        """Bytes/s into a GPU when all of them exchange weights or gradients."""
        return 1e9 * (self.gpu.node_link if self.gpus <= NODE else NETWORK)

    @property
    def trained(self) -> int:
        """Parameters that are trained."""
        if not self.lora:
            return self.shape.parameters
        s = self.shape
        inputs = 5 * s.hidden + s.heads * s.head_dim + s.intermediate  # of a layer's 7 matrices
        outputs = (s.heads + 2 * s.kv_heads) * s.head_dim + 2 * s.hidden + 2 * s.intermediate
        return s.layers * self.lora * (inputs + outputs)
