"""The output head of a language model: everything that turns a hidden state into logits, and nothing else.

    z = softcap( scale · (W h + b) )          softcap(x) = cap · tanh(x / cap)

`Head.of(model)` reads W, b, scale and cap from a Hugging Face causal LM, plain or PEFT-wrapped, and refuses by name
what it cannot reproduce exactly: a wrong head gives plausible, wrong divergences, and nothing downstream would notice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gear_rl.errors import GearError

# How each config field acts on the logits, by the family that defines it (read from transformers 5.22). One name can
# mean opposite things: `logits_scaling` divides in Granite and multiplies in HyperCLOVA X. So a field counts only for
# the families listed, and the same field anywhere else is refused rather than guessed.
_SCALE_FIELDS: dict[tuple[str, str], Callable[[float], float]] = {
    ("granite", "logits_scaling"): lambda value: 1.0 / value,
    ("hyperclovax", "logits_scaling"): lambda value: value,
    ("cohere", "logit_scale"): lambda value: value,
    ("command", "logit_scale"): lambda value: value,
    ("falcon_h1", "lm_head_multiplier"): lambda value: value,
}
_SOFTCAP_FIELDS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
_INERT_FIELDS = {("mpt", "logit_scale")}  # in the config, never applied by the model
_SUSPECT_FIELD = re.compile(r"(?!.*(attn|attention|router|init))(.*logits?_.*(scal|cap|mult)|.*lm_head_.*(scal|mult))")
# Families whose output embedding does not read the body's last hidden state: a transform stands in between, or there
# are several heads. The body's hidden states would give wrong logits.
# fmt: off
_TRANSFORMED = {
    "albert", "bert", "big_bird", "camembert", "clvp", "csm", "data2vec-text", "electra", "ernie", "git",
    "megatron-bert", "modernbert-decoder", "musicgen", "musicgen_melody", "prophetnet", "rembert", "roberta",
    "roberta-prelayernorm",
    "roc_bert", "roformer", "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xmod",
}
# fmt: on


RULED_OUT = -1e4
"""Smallest bias: exp of it is 0 in every float type, and it is finite in every one."""


@dataclass(frozen=True)
class Head:
    """An output head. `lm_head` arguments also take its weight (V, D) or an `nn.Linear`; see `Head.coerce`."""

    weight: Tensor
    """(V, D)"""
    bias: Tensor | None = None
    """(V,)"""
    scale: float = 1.0
    """factor on W h + b, before the cap: 1 / logits_scaling (Granite), logit_scale (Cohere)"""
    softcap: float | None = None
    """logits are squashed into (−cap, cap) (Gemma 2)"""
    vocab_size: int | None = None
    """rows that are real tokens; rows from here on are padding and get probability 0. None: all rows, which is what
    the model itself and the engines' losses do (Qwen3 has 151,936 rows over 151,669 tokens)"""

    def __post_init__(self) -> None:
        if self.weight.ndim != 2:
            raise GearError(f"head weight must be (V, D), not {tuple(self.weight.shape)}.")
        if not self.weight.is_floating_point():
            raise GearError(f"head weight is {self.weight.dtype}: a quantised head is not supported, dequantise it.")
        rows = self.weight.shape[0]
        if self.bias is not None and self.bias.shape != (rows,):
            raise GearError(f"head bias must be ({rows},) to match the weight, not {tuple(self.bias.shape)}.")
        if self.bias is not None and self.bias.device != self.weight.device:
            raise GearError(f"head bias is on {self.bias.device}, its weight on {self.weight.device}: move one.")
        if self.bias is not None:  # −∞ rules a token out; as a number that large its products with 0 stay 0
            object.__setattr__(self, "bias", self.bias.clamp(min=RULED_OUT))
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise GearError(f"head scale must be positive and finite, not {self.scale}.")
        if self.softcap is not None and not (math.isfinite(self.softcap) and self.softcap > 0):
            raise GearError(f"head softcap must be positive and finite, or None, not {self.softcap}.")
        if self.vocab_size is not None and not 0 <= self.vocab_size <= rows:
            raise GearError(f"head vocab_size {self.vocab_size} does not fit the weight's {rows} rows.")

    @property
    def size(self) -> int:
        """Number of tokens that can be sampled: rows without padding."""
        return self.weight.shape[0] if self.vocab_size is None else self.vocab_size

    @property
    def width(self) -> int:
        return self.weight.shape[1]

    def logits(self, hidden: Tensor) -> Tensor:
        """All logits, (N, D) → (N, size), in float32. For tests and small vocabularies."""
        z = hidden.float() @ self.weight[: self.size].float().T
        if self.bias is not None:
            z = z + self.bias[: self.size].float()
        z = z * self.scale
        return z if self.softcap is None else self.softcap * torch.tanh(z / self.softcap)

    @classmethod
    def coerce(cls, head: Head | Tensor | nn.Module, argument: str = "lm_head") -> Head:
        """A `Head` from a weight, an `nn.Linear` or a `Head`. Anything else is refused."""
        if isinstance(head, Head):
            return head
        if isinstance(head, Tensor):
            return cls(head)
        if isinstance(head, nn.Module):
            return _from_module(head, argument)
        raise GearError(f"{argument} must be a weight (V, D), an nn.Linear or a Head, not {type(head).__name__}.")

    @classmethod
    def of(cls, model: Any, vocab_size: int | None = None, gather: Callable[[Tensor], Tensor] | None = None) -> Head:
        """The head of a Hugging Face causal LM, plain or PEFT-wrapped, as it stands now.

        `vocab_size`: number of real tokens, `len(tokenizer)`, to give padded rows probability 0; default all rows.
        `gather`: makes a parameter that is sharded whole (`gear_rl.scoring.weights`).
        """
        if not hasattr(model, "get_output_embeddings"):
            raise GearError(f"{type(model).__name__} has no get_output_embeddings(): give Head(weight, ...) yourself.")
        module = model.get_output_embeddings()
        name = type(getattr(model, "base_model", model)).__name__
        if module is None:
            raise GearError(f"{name} has no output embedding (lm_head): it is not a causal language model.")
        config: Any = getattr(model, "config", None)
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
        family = str(getattr(config, "model_type", ""))
        if family in _TRANSFORMED or getattr(config, "is_encoder_decoder", False):
            raise GearError(f"model family {family!r} transforms hidden states before its head: not supported.")
        bare = _from_module(module, f"lm_head of {name}", gather)
        scale, softcap = _logit_options(config, family)
        if vocab_size is None:
            vocab_size = getattr(config, "unpadded_vocab_size", None)
        return cls(bare.weight, bare.bias, scale, softcap, vocab_size)

    @torch.no_grad()
    def verify(self, model: Any, input_ids: Tensor) -> float:
        """Proof on the model itself: its logits for `input_ids` (B, T) against this head on its body's hidden states.

        Returns the largest difference as a share of the largest logit. Raises where it exceeds the model's rounding.
        """
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        seen: list[Tensor] = []
        hook = base.get_decoder().register_forward_hook(lambda _, __, output: seen.append(output[0]))
        try:
            theirs = model(input_ids=input_ids, use_cache=False).logits.float()
        finally:
            hook.remove()
        hidden = seen[0].reshape(-1, self.width)
        ours = self.logits(hidden)
        theirs = theirs.reshape(hidden.shape[0], -1)[:, : self.size]
        share = float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-6))
        # The model rounds its logits to the weight's dtype, up to three times (product, scaling, cap).
        limit = max(1e-5, 4 * torch.finfo(self.weight.dtype).eps)
        if not share <= limit:
            raise GearError(
                f"this head gives other logits than the model ({share:.1e} of the largest apart, limit {limit:.1e}): "
                "the model does something to its logits that gear_rl does not know. Pass a Head with the right scale, "
                "bias and softcap."
            )
        return share


def _from_module(module: nn.Module, argument: str, gather: Callable[[Tensor], Tensor] | None = None) -> Head:
    """Weight and bias of a linear module; wrappers that add to its output are unsupported, and named in the error."""
    kind = type(module).__name__
    if kind == "ModulesToSaveWrapper":  # PEFT, lm_head trained in full: exactly one plain module is active
        adapters = [a for a in module.active_adapters if a in module.modules_to_save]  # type: ignore[union-attr, operator]
        use_original = module.disable_adapters or not adapters
        module = module.original_module if use_original else module.modules_to_save[adapters[0]]  # type: ignore[assignment, index]
        return _from_module(module, argument, gather)
    if hasattr(module, "base_layer") or kind == "TrainableTokensWrapper" or hasattr(module, "lora_A"):
        raise GearError(
            f"{argument} is adapted ({kind}): its logits are not W h alone. Leave lm_head out of target_modules, train "
            "it in full through modules_to_save, or merge the adapter (merge_and_unload)."
        )
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        raise GearError(f"{argument} is a {kind} without a weight: give its weight (V, D), an nn.Linear or a Head.")
    if gather is None and type(weight).__name__ == "DTensor":
        raise GearError(
            f"{argument} is sharded (DTensor): read it with gear_rl.scoring.weights.Weights(model).head(), or keep the "
            "shards and use gear_rl.scoring.vocab_parallel."
        )
    if gather is None and hasattr(weight, "ds_id") and weight.numel() == 0:
        raise GearError(
            f"{argument} is partitioned (DeepSpeed ZeRO-3): read it with gear_rl.scoring.weights.Weights(model).head()."
        )
    if weight.device.type == "meta":
        raise GearError(f"{argument} is on the meta device: it has no values yet. Load the model first.")
    if not isinstance(module, nn.Linear | nn.Embedding):
        raise GearError(f"{argument} is a {kind}, not an nn.Linear: give Head(weight, ...) if W h + b is all it does.")
    bias = getattr(module, "bias", None)
    if gather is None:
        return Head(weight.detach(), None if bias is None else bias.detach())
    return Head(gather(weight), None if bias is None else gather(bias))


def _logit_options(config: Any, family: str) -> tuple[float, float | None]:
    """(scale, softcap) from a config; a field that may act on logits in a family not known here is refused."""
    fields: dict[str, Any] = config.to_dict() if hasattr(config, "to_dict") else dict(vars(config)) if config else {}
    softcap = next((float(fields[f]) for f in _SOFTCAP_FIELDS if fields.get(f)), None)
    scale = 1.0
    for field, value in fields.items():
        if field in _SOFTCAP_FIELDS or not _SUSPECT_FIELD.match(field) or value in (None, False, 0, 1):
            continue
        rules = [rule for (name, known), rule in _SCALE_FIELDS.items() if known == field and family.startswith(name)]
        if rules:
            scale *= rules[0](float(value))
        elif (family, field) not in _INERT_FIELDS:
            raise GearError(
                f"model family {family!r} has {field}={value!r} in its config, and gear_rl does not know what it does to "
                "the logits. Build the head yourself, Head(weight, bias, scale=, softcap=), and prove it with "
                "head.verify(model, ids)."
            )
    return scale, softcap
