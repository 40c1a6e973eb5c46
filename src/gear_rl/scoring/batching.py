"""Which rollouts go through the model together: as many as memory allows, with little padding and few prompts read twice.

A *token budget* bounds the tokens of one forward pass, and with it the memory of scoring: more rollouts mean more
passes, never larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from gear_rl.scoring.body import Ids
from gear_rl.scoring.packed_attention import MOST_COPIED

CPU_TOKENS = 8192  # enough to keep the cores busy
MOST_TOKENS = 65_536  # enough to keep a large GPU busy
FEWEST_TOKENS = 512
SHARE_OF_FREE_MEMORY = 0.4
PADDING = 0.1  # padded rows: padding over real tokens, at most …
UNSPLIT_TOKENS = 512  # … unless a batch is so small that one pass more costs more than its padding


def token_budget(config: Any, device: torch.device, dtype: torch.dtype) -> int:
    """Tokens of one forward pass that fit the memory free now."""
    if device.type != "cuda":
        return CPU_TOKENS
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's own, unused
    fits = int(SHARE_OF_FREE_MEMORY * free / bytes_per_token(config, dtype))
    return max(FEWEST_TOKENS, min(MOST_TOKENS, fits))


def bytes_per_token(config: Any, dtype: torch.dtype) -> int:
    """Upper bound of what one token holds during a forward pass without gradients: the tensors of one layer.

    Residual and norms (some in float32), queries, keys, values and attention outputs, the copies of keys and values that
    packed attention makes, and the feed-forward's inner states, as if all were alive at once; of a mixture of experts those
    that a token goes to.
    """
    width = config.hidden_size
    heads = getattr(config, "num_attention_heads", None) or 0
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    head_width = getattr(config, "head_dim", None) or width // max(1, heads)
    inner = getattr(config, "intermediate_size", None) or 4 * width
    experts = getattr(config, "num_experts_per_tok", None) or 0
    inner = max(inner, experts * (getattr(config, "moe_intermediate_size", None) or inner))
    copied = 2 * MOST_COPIED * key_heads * head_width
    return dtype.itemsize * (6 * width + 4 * (heads + key_heads) * head_width + copied + 4 * inner) + 12 * width


@dataclass(frozen=True)
class Batch:
    rows: list[int]
    first: bool = True
    """its prompts are not read yet"""
    more: bool = False
    """its group goes on in the next batch, which needs the prompts again"""


# In all of these: `passes` holds, for each forward pass, the prompts of the sides that go through it together (equal
# prompts are one object); `counts` the completion tokens to read of each rollout, −1 where none is asked for.


def tokens_to_read(passes: list[list[Ids]], counts: list[int]) -> tuple[int, int]:
    """(with every rollout's own prompt, with every prompt once)."""
    rows = [row for row, count in enumerate(counts) if count >= 0]
    alone = sum(len(side[row]) + counts[row] for sides in passes for side in sides for row in rows)
    answers = sum(len(sides) * counts[row] for sides in passes for row in rows)
    return alone, answers + sum(_prompt_tokens(sides, rows) for sides in passes)


def packed_batches(passes: list[list[Ids]], counts: list[int], budget: int) -> Iterator[Batch]:
    """Whole groups together under the budget. A group is split only if it alone exceeds it."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, count in enumerate(counts):
        if count >= 0:
            groups.setdefault(tuple(id(side[row]) for sides in passes for side in sides), []).append(row)
    cost = [max(map(len, passes)) * count for count in counts]
    waiting: list[int] = []
    used = 0
    for rows in groups.values():
        prompts = max(_prompt_tokens(sides, rows) for sides in passes)
        whole = prompts + sum(cost[row] for row in rows)
        if waiting and used + whole > budget:
            yield Batch(waiting)
            waiting, used = [], 0
        if whole <= budget:
            waiting, used = [*waiting, *rows], used + whole
        else:
            yield from _parts(rows, cost, prompts, budget)
    if waiting:
        yield Batch(waiting)


def _parts(rows: list[int], cost: list[int], prompts: int, budget: int) -> Iterator[Batch]:
    """A group that exceeds the budget. The first part reads the prompts, those after it have them already."""
    parts: list[list[int]] = [[]]
    used = prompts
    for row in rows:
        if parts[-1] and used + cost[row] > budget:
            parts.append([])
            used = 0
        parts[-1].append(row)
        used += cost[row]
    for i, part in enumerate(parts):
        yield Batch(part, first=i == 0, more=i + 1 < len(parts))


def padded_batches(passes: list[list[Ids]], counts: list[int], budget: int) -> Iterator[Batch]:
    """Rollouts of like length together, with their prompts, under the budget and with little padding."""
    lengths = {
        row: max(len(side[row]) for sides in passes for side in sides) + count
        for row, count in enumerate(counts)
        if count >= 0
    }
    batch: list[int] = []
    real = 0
    for row in sorted(lengths, key=lengths.__getitem__, reverse=True):
        if batch:
            tokens = lengths[batch[0]] * (len(batch) + 1)
            wasteful = tokens > (1 + PADDING) * (real + lengths[row]) and real >= UNSPLIT_TOKENS
            if tokens > budget or wasteful:
                yield Batch(batch)
                batch, real = [], 0
        batch.append(row)
        real += lengths[row]
    if batch:
        yield Batch(batch)


def _prompt_tokens(sides: list[Ids], rows: list[int]) -> int:
    """Tokens of the distinct prompts of these rollouts."""
    return sum(len(prompt) for prompt in {id(side[row]): side[row] for side in sides for row in rows}.values())
