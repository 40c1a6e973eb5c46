"""Seconds of a step on one GPU: work over measured rates.

products      2 FLOP per parameter and token; of a backward pass twice that, and once more with gradient checkpointing
attention     4 heads × head_dim FLOP per token and token attended to; backwards 2.5 times that
head          2 × vocabulary × hidden FLOP per action token and side
elementwise   norms, rotary embeddings, activations, residuals: bytes moved, per token and layer
exchange      sharded weights are gathered for every pass, gradients summed: what is not hidden behind the computing
"""

from __future__ import annotations

from dataclasses import dataclass

from gear_rl.methods import Method
from gear_rl.planning.hardware import Rates
from gear_rl.planning.readings import DISTILLED_PRODUCTS, Reading, readings
from gear_rl.planning.setup import PRECISION, Setup

SCORING, FORWARD, BACKWARD = 1.12, 1.45, 4.2
"""Fitted: elementwise bytes over those counted for one forward, in scoring (fused norms), in the loss's forward, and in its
backward with recomputation."""
LOSS_HEAD = 0.55
"""Rate of the head's products in TRL's loss, which is chunked, over that of plain products."""
DISTILLED_PRODUCT, DISTILLED_LOGIT = 110e12 / 690e12, 440
"""Fitted, of a distillation loss: rate of its float32 products over that of plain ones, and bytes moved per logit."""
OPTIMIZER = 18
"""Fitted: how often AdamW and clipping read or write a tensor of all weights."""
STEP, SIGNALS = 0.05, 0.015
"""Seconds on the host: the trainer's own work in every step, and a method's with its metrics."""


@dataclass(frozen=True)
class StepTime:
    """Seconds."""

    loss: float
    """Forward, backward and optimizer of GRPO's own step, and the trainer's rest."""
    signals: float
    """What the method adds."""
    exchange: float
    """Communication that computing does not hide."""

    @property
    def total(self) -> float:
        return self.loss + self.signals + self.exchange


def step_time(method: Method, setup: Setup) -> StepTime:
    rates, shape = Rates.of(setup.gpu), setup.shape
    tokens = setup.here * setup.length
    attended = setup.here * setup.length**2 / 2
    passes = 1 + (1 if setup.lora else 2) + setup.checkpointing
    attention = 4 * shape.layers * shape.heads * shape.head_dim * attended * (1 + 2.5 + setup.checkpointing)
    elementwise = FORWARD + BACKWARD - (0 if setup.checkpointing else FORWARD)
    loss = (
        STEP
        + 2 * shape.body * tokens * passes / rates.product
        + attention / rates.attention
        + _elementwise(setup, tokens) * elementwise / rates.memory
        + 2 * shape.head * setup.here * setup.response * 4 / (LOSS_HEAD * rates.product)
        + OPTIMIZER * PRECISION[setup.precision] * setup.trained / setup.shards / rates.memory
    )
    read = readings(method, setup)
    signals = sum((reading_time(reading, setup, rates) for reading in read), SIGNALS if read else 0.0)
    micro = setup.here // (setup.micro_batch or setup.here)
    return StepTime(loss, signals, _exchange(setup, loss, len(read), micro))


def reading_time(reading: Reading, setup: Setup, rates: Rates) -> float:
    shape = setup.shape
    attention = 4 * shape.layers * shape.heads * shape.head_dim * reading.attended
    body = 2 * shape.body * reading.tokens / rates.product + attention / rates.attention
    body += _elementwise(setup, reading.tokens) * SCORING / rates.memory
    head = 2 * shape.head * (reading.head + DISTILLED_PRODUCTS * reading.distilled / DISTILLED_PRODUCT) / rates.product
    head += DISTILLED_LOGIT * reading.distilled * shape.vocab / rates.memory
    swap = 4 * 6 * PRECISION[setup.precision] * setup.trained / setup.shards / rates.memory if reading.swapped else 0.0
    return body * (3 if reading.backward else 1) + head + swap


def _elementwise(setup: Setup, tokens: float) -> float:
    """Bytes of one forward: float32 norms of the residual and of queries and keys, rotary embeddings, the gate."""
    s = setup.shape
    wide = 84 * s.hidden + 60 * (s.heads + s.kv_heads) * s.head_dim + 10 * s.intermediate
    return tokens * s.layers * wide


def _exchange(setup: Setup, loss: float, read: int, micro: int) -> float:
    if setup.gpus == 1:
        return 0.0
    if setup.sharding == "none":  # gradients are summed during the backward pass, which is half of the step
        return max(0.0, 2 * 2 * setup.trained / setup.link - loss / 2)
    weights = 2 * setup.shape.parameters / setup.link
    return max(0.0, micro * 3 * weights - loss) + read * 0.1 * weights  # a reading hides all but its first layers
