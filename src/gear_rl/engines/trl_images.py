"""Images in TRL's prompts and tool results: which methods can read them, and the policy's forward pass over them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

from gear_rl.assignment.signals import find_signal
from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.scoring import scorer
from gear_rl.scoring.body import has_virtual_tokens
from gear_rl.scoring.images import ImageScorer
from gear_rl.scoring.padding import padded
from gear_rl.signals.sampled import Ids

READABLE = (*scorer.SIGNALS, *scorer.ON_REQUEST, "hindsight_logprob")
"""Signals of the model that are read with images. The others cut rollouts up or add tokens, in passes of their own."""
TYPES = ("token_type_ids", "mm_token_type_ids")
"""(B, P + T) of TRL's batch: which tokens stand for images."""
PARTS = (
    "pixel_values", "image_grid_thw", "pixel_attention_mask", "spatial_shapes", "image_sizes", "image_position_ids",
    "num_images", "num_tiles",
)  # fmt: skip
"""What else TRL's batch holds of images."""
IMAGES = ("image", "images", *PARTS)
"""Columns of a data set, or fields of TRL's batch, that hold images."""
TEXT = ("str", "int", "float", "bool", "dict", "None")
"""Return types of tools that TRL writes as text; a list it takes as parts of a message, of which some may be images."""


def refuse_images(method: Method, names: Iterable[str]) -> None:
    found = [name for name in names if name in IMAGES]
    if found and (what := _unreadable(method)):
        raise GearError(f"method {method.name!r} {what} (found {found[0]!r}). gear and grpo work with images.")


def refuse_image_tools(method: Method, tools: Iterable[Callable[..., Any]]) -> None:
    """For a model with vision, before anything is sampled: TRL takes images from tools that return a list."""
    what = _unreadable(method)
    for tool in tools if what else ():
        returned = inspect.signature(tool).return_annotation
        if (returned if isinstance(returned, str) else getattr(returned, "__name__", str(returned))) not in TEXT:
            name = getattr(tool, "__name__", repr(tool))
            raise GearError(
                f"method {method.name!r} {what}, and the tool {name!r} may return some: this model has vision, and the tool's "
                "return type is not given as text. Annotate it (-> str), or use gear or grpo, which work with images."
            )


def refuse_virtual_tokens(method: Method) -> None:
    """For a model with an adapter of prompts, which is read by the same passes as one with images."""
    if _unreadable(method):
        raise GearError(
            f"method {method.name!r} cannot read adapters that put virtual tokens before the prompt (prompt or prefix tuning). "
            "Use LoRA, or gear or grpo, which work with virtual tokens."
        )


def _unreadable(method: Method) -> str | None:
    """Why images do not go with the method; None: they do."""
    unread = [n for n in method.needs if (s := find_signal(n)) and s.source == "model" and n not in READABLE]
    if not unread and not method.distillation:
        return None
    reads = f"reads {unread[0]!r}" if unread else "adds a distillation loss"
    return f"{reads}, which is not supported for prompts or tool results with images"


def seeing_images(trainer: Any, batch: dict[str, Any]) -> AbstractContextManager[None]:
    """Inside, the trainer's scorer reads `batch`, TRL's, with its images and the policy's virtual tokens."""
    reader = trainer.credit_step.reader
    seen = batch.get("pixel_values") is not None or has_virtual_tokens(trainer.policy)
    if not isinstance(reader.scorer, ImageScorer) or not seen:
        return nullcontext()
    return reader.scorer.seeing(ImageBatch(trainer, batch))


class ImageBatch:
    """TRL's batch with images; see `gear_rl.scoring.images.WithImages`. What each model takes is TRL's knowledge: its parts
    are split by rollout and put together, and the policy is run, by TRL's own functions."""

    def __init__(self, trainer: Any, batch: dict[str, Any]) -> None:
        self.trainer, self.completions = trainer, batch["completion_ids"]  # (B, T)
        self.parts = split_pixel_values_by_grid({name: batch[name] for name in PARTS if batch.get(name) is not None})
        width = self.completions.shape[1]
        lengths = torch.tensor([len(ids) for ids in trainer._completion_ids])[:, None]  # also of those TRL masks
        self.read = (torch.arange(width) < lengths).to(self.completions)  # (B, T)
        ids = torch.cat([batch["prompt_ids"], self.completions], 1)
        size = trainer.policy.get_input_embeddings().num_embeddings
        self.types = {n: (_types_by_id(ids, batch[n], size), batch[n][:, -width:]) for n in TYPES if n in batch}

    def logprobs(self, prompts: Ids, rows: list[int]) -> Tensor:
        device, pad = self.completions.device, self.trainer._tokenizer.pad_token_id
        pick = torch.tensor(rows, device=device)
        mask = padded([[1] * len(prompt) for prompt in prompts], device=device, left=True)
        ids = padded(prompts, device=device, left=True).masked_fill(mask == 0, pad)
        parts = {n: v[pick] if isinstance(v, Tensor) else [v[row] for row in rows] for n, v in self.parts.items()}
        types = {
            name: torch.cat([of_id[ids], of_completions[pick]], 1)
            for name, (of_id, of_completions) in self.types.items()
        }
        return self.trainer._get_per_token_logps_and_entropies(
            self.trainer.policy,
            torch.cat([ids, self.completions[pick]], 1),
            torch.cat([mask, self.read[pick]], 1),
            self.completions.shape[1],
            **unsplit_pixel_values_by_grid(parts),
            **types,
        )[0]


def _types_by_id(ids: Tensor, types: Tensor, size: int) -> Tensor:
    """Type of each token id, (size,): an image is made of the same tokens in a hinted prompt."""
    of_id = types.new_zeros(size)
    marked = types != 0
    of_id[ids[marked]] = types[marked]
    return of_id
