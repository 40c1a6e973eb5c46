"""Sampling on a GPU with a static KV cache, so that the forward of a token is recorded once as a CUDA graph and then only
replayed. A small model's forward is a thousand kernel launches, and the GPU waits for nothing else."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from gear_rl.errors import GearError
from gear_rl.models import is_out_of_memory
from gear_rl.sampling.decoding import MOST_TOKENS, Decoder
from gear_rl.sampling.fused_forward import FusedForward
from gear_rl.scoring.sharded_weights import looks_sharded

SPARE = 512
"""Free columns of a new static cache."""
ALIGNED = 64
log = logging.getLogger("gear_rl")


def decoder_for(model: Any) -> Decoder:
    """`GraphDecoder` where the model is on a GPU and its attention is plain, else `Decoder`."""
    return GraphDecoder(model) if model.device.type == "cuda" and _is_plain(model) else Decoder(model)


def _is_plain(model: Any) -> bool:
    """Attention by torch's own kernel, over everything before, so that one mask holds for all layers."""
    config = model.config
    kinds = getattr(config, "layer_types", None) or [getattr(config, "sliding_window", None) or "full_attention"]
    plain = set(kinds) == {"full_attention"} and config._attn_implementation == "sdpa"
    return plain and not hasattr(model, "hf_device_map") and not looks_sharded(model)


@cache
def _say_once(message: str) -> None:
    """Not once per batch."""
    log.warning(message)


class GraphDecoder(Decoder):
    """Keys and values in buffers (B, heads, capacity, width of a head), written at the columns of the token being read.

    Forwards of one token and of up to `MOST_TOKENS` are recorded and replayed; others (all rows in step) run eagerly.
    When the buffers are full, padding columns are removed, and only if that is not enough they grow. The first token is
    read by the growing cache too: if the two disagree, the next token is read without fused kernels, and if they still
    disagree, the growing cache is used from then on. A warning says so.
    `graphs` off: the same buffers without recording, which runs anywhere.
    """

    def __init__(self, model: Any, graphs: bool = True, spare: int = SPARE) -> None:
        super().__init__(model)
        self.graphs, self.spare = graphs, spare
        self.place: _Buffers | None = None
        self.plain: bool | None = None
        """Whether to use the growing cache; None before the first token."""
        self._recorded: dict[int, tuple[Any, ...]] = {}
        self.fused_forward = FusedForward(model, kernels=True)

    def read(self, ids: list[list[int]]) -> Tensor:
        if self.plain is False:
            return self._read(ids)
        if self.plain or self.mask is None:  # the prompt
            return super().read(ids)
        return self._read_both_ways(ids)

    def _read_both_ways(self, ids: list[list[int]]) -> Tensor:
        """The first token: use the buffers only if they work with this model's cache and attention, and agree with it."""
        why = None
        try:
            assert self.mask is not None
            self.place = _Buffers(self.cache, self.mask, self.spare)
            ours = self._read(ids)
        except Exception as error:
            if isinstance(error, RuntimeError) and is_out_of_memory(error):  # the caller takes fewer rollouts at once
                raise
            why = (str(error).splitlines() or [type(error).__name__])[0]
        theirs = super().read(ids)
        if why is None:
            apart = float((ours.softmax(-1) - theirs.softmax(-1)).abs().sum(-1).max() / 2)
            if not apart < 0.1:  # 16 bits differ by less; a wrong mask or place by far more
                why = f"a forward with a static cache differs from a plain one by {apart:.2f}"
        if why is None:
            self.plain, self.cache, self.mask = False, None, None
            return ours
        self.place = None
        self._recorded.clear()
        if self.fused_forward.kernels:
            _say_once(f"sampling without fused kernels: {why}")
            self.fused_forward = FusedForward(self.model, kernels=False)
        else:
            _say_once(f"sampling without CUDA graphs: {why}")
            self.plain = True
        return theirs

    def _read(self, ids: list[list[int]]) -> Tensor:
        place = self.place
        assert place is not None
        width = max(map(len, ids))
        width = MOST_TOKENS if 1 < width < MOST_TOKENS else width
        if place.end + width > place.capacity and place.squeeze(width, self.spare):
            self._recorded.clear()
        tokens, alive = self._inputs(ids, width)
        positions = (place.lengths[:, None] + alive.cumsum(1) - 1).clamp(min=0)
        place.take(alive)
        if not self.graphs or width > MOST_TOKENS:
            return self._forward(tokens, positions)
        if width not in self._recorded:
            try:
                self._recorded[width] = self._record(tokens, positions)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:  # an operation that cannot be recorded
                _say_once(f"sampling without CUDA graphs: {str(error).splitlines()[0]}")
                self.graphs = False
                return self._forward(tokens, positions)
        graph, tokens_in, positions_in, out = self._recorded[width]
        tokens_in.copy_(tokens)
        positions_in.copy_(positions)
        with torch.cuda.device(self.model.device):
            graph.replay()
        return out

    def _forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        place = self.place
        assert place is not None
        place.columns = place.start + torch.arange(tokens.size(1), device=tokens.device)
        seen = place.valid[:, None, None, :] & (place.index <= place.columns[:, None])  # (B, 1, tokens, capacity)
        with self.fused_forward():
            out = self.model(
                input_ids=tokens, attention_mask=seen, position_ids=positions, past_key_values=place, use_cache=True,
                logits_to_keep=1,
            )  # fmt: skip
        return out.logits[:, -1].float()

    def _record(self, tokens: Tensor, positions: Tensor) -> tuple[Any, ...]:
        """The same tokens are written twice to the same columns; the second time changes nothing."""
        with torch.cuda.device(self.model.device):  # a graph records the streams of one device only
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._forward(tokens, positions)  # one-time set-up must not be recorded
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                out = self._forward(tokens, positions)
        return graph, tokens, positions, out

    def keep(self, rows: list[int]) -> None:
        if self.place is None:
            return super().keep(rows)
        self.place.keep(rows)
        self._recorded.clear()


class _Buffers:
    """Takes the place of a transformers cache in a forward: attention calls only `update`."""

    is_compileable = False

    def __init__(self, cache: Any, mask: Tensor, spare: int) -> None:
        if any(layer.is_sliding or layer.keys.size(2) != mask.size(1) for layer in cache.layers):
            raise GearError("the model's cache drops what it has read (a sliding window)")
        self.keys = [layer.keys for layer in cache.layers]
        self.values = [layer.values for layer in cache.layers]
        self.valid, self.end = mask.bool(), mask.size(1)
        """(B, capacity), and how many columns are in use."""
        self.lengths = self.valid.sum(1)
        """(B,): tokens each row has read."""
        self.start = torch.zeros((), dtype=torch.long, device=mask.device)
        self.columns = self.start[None]
        """Columns of the tokens being read."""
        self._grow(self.end + spare)

    @property
    def capacity(self) -> int:
        return self.valid.size(1)

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.keys[layer].index_copy_(2, self.columns, keys)
        self.values[layer].index_copy_(2, self.columns, values)
        return self.keys[layer], self.values[layer]

    def get_seq_length(self, layer: int = 0) -> int:
        return self.end

    def take(self, alive: Tensor) -> None:
        """Use the next columns for these tokens."""
        width = alive.size(1)
        self.start.fill_(self.end)
        self.valid[:, self.end : self.end + width] = alive.bool()
        self.lengths += alive.sum(1)
        self.end += width

    def squeeze(self, width: int, spare: int) -> bool:
        """Free `width` columns; whether the buffers had to move."""
        order = self.valid.int().argsort(dim=1, descending=True, stable=True)  # read tokens first, in their order
        self.end = int(self.lengths.max())
        for buffers in (self.keys, self.values):
            for buffer in buffers:
                buffer.copy_(buffer.gather(2, order[:, None, :, None].expand_as(buffer)))
        self.valid.copy_(self.index < self.lengths[:, None])
        if self.end + max(width, spare // 4) <= self.capacity:
            return False
        self._grow(self.end + width + spare)
        return True

    def keep(self, rows: list[int]) -> None:
        index = torch.tensor(rows, device=self.valid.device)
        self.keys, self.values = ([b[index] for b in buffers] for buffers in (self.keys, self.values))
        self.valid, self.lengths = self.valid[index], self.lengths[index]

    def _grow(self, capacity: int) -> None:
        """To a multiple of what attention kernels prefer. Filled with 0: a NaN in an unused column would spread."""
        more = -(-capacity // ALIGNED) * ALIGNED - self.valid.size(1)
        for buffers in (self.keys, self.values):
            for i, buffer in enumerate(buffers):
                buffers[i] = pad(buffer, (0, 0, 0, more))
        self.valid = pad(self.valid, (0, more))
        self.index = torch.arange(self.valid.size(1), device=self.valid.device)
