"""The dimensions of a decoder model that its cost follows from: of known models, or read from a config.json."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError, unknown_name
from gear_rl.files import read_json

MOST = 10**7
"""No dimension of a model is larger."""


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder with gated feed-forward layers and grouped-query attention (Llama, Qwen, Mistral)."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    """Whether the output head is the embedding matrix."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("name", "tied"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
                raise GearError(f"model {self.name}: {field.name}={value!r} must be a whole number from 1 to {MOST:,}.")
        if self.heads % self.kv_heads:
            raise GearError(f"model {self.name}: heads={self.heads} is no multiple of kv_heads={self.kv_heads}.")

    @property
    def layer_parameters(self) -> int:
        """Of one layer's matrices. Norms and biases are less than a thousandth."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def body(self) -> int:
        """Parameters that every token is multiplied by before the head."""
        return self.layers * self.layer_parameters

    @property
    def head(self) -> int:
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        return self.body + self.head * (1 if self.tied else 2)

    def config(self) -> dict[str, Any]:
        """As the fields of a transformers configuration."""
        return dict(
            hidden_size=self.hidden, num_hidden_layers=self.layers, num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads, head_dim=self.head_dim, intermediate_size=self.intermediate,
            vocab_size=self.vocab, tie_word_embeddings=self.tied,
        )  # fmt: skip


def _qwen3(name: str, hidden: int, layers: int, heads: int, intermediate: int, tied: bool) -> ModelShape:
    return ModelShape(name, hidden, layers, heads, 8, 128, intermediate, 151_936, tied)


KNOWN = {
    shape.name: shape
    for shape in (
        _qwen3("Qwen3-0.6B", 1024, 28, 16, 3072, True),
        _qwen3("Qwen3-1.7B", 2048, 28, 16, 6144, True),
        _qwen3("Qwen3-4B", 2560, 36, 32, 9728, True),
        _qwen3("Qwen3-8B", 4096, 36, 32, 12_288, False),
        _qwen3("Qwen3-14B", 5120, 40, 40, 17_408, False),
        _qwen3("Qwen3-32B", 5120, 64, 64, 25_600, False),
        ModelShape("Qwen2.5-7B", 3584, 28, 28, 4, 128, 18_944, 152_064, False),
        ModelShape("Llama-3.2-1B", 2048, 16, 32, 8, 64, 8192, 128_256, True),
        ModelShape("Llama-3.1-8B", 4096, 32, 32, 8, 128, 14_336, 128_256, False),
        ModelShape("Llama-3.1-70B", 8192, 80, 64, 8, 128, 28_672, 128_256, False),
        ModelShape("SmolLM2-135M", 576, 30, 9, 3, 64, 1536, 49_152, True),
    )
}
"""From the models' published configurations."""


def find_shape(model: str) -> ModelShape:
    """A known model's name (with or without its owner), a folder with config.json, or dimensions: "hidden=…,layers=…"."""
    if "=" in model:
        return _from_dimensions(model)
    if not model.strip():
        raise GearError("the model's name is empty.")
    folder = Path(model)
    if (folder / "config.json").is_file():
        return _from_config(folder / "config.json")
    name = model.rsplit("/", 1)[-1].lower()
    for known, shape in KNOWN.items():
        if name.removesuffix("-instruct").removesuffix("-base") == known.lower():
            return shape
    if folder.is_dir():
        raise GearError(f"{model}: a folder without config.json.")
    error = unknown_name("model", model, KNOWN)
    raise GearError(f"{error} Or give a folder with config.json, or hidden=…,layers=…,heads=…,….")


def _from_dimensions(text: str) -> ModelShape:
    given: dict[str, Any] = {}
    numbers = [field.name for field in fields(ModelShape) if field.name not in ("name", "tied")]
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key not in (*numbers, "tied"):
            raise unknown_name("dimension", key, [*numbers, "tied"])
        if key == "tied":
            if value not in ("true", "false"):
                raise GearError(f"tied={value}: must be true or false.")
            given[key] = value == "true"
        elif not value.isascii() or not value.isdigit() or len(value) > 9:
            raise GearError(f"{key}={value}: must be a whole number.")
        else:
            given[key] = int(value)
    given = {"kv_heads": given.get("heads"), "vocab": 151_936, "tied": True, **given}
    if "head_dim" not in given and "hidden" in given and given.get("heads"):
        given["head_dim"] = given["hidden"] // given["heads"]
    if missing := [name for name in numbers if given.get(name) is None]:
        raise GearError(f"the model's dimensions lack {', '.join(missing)}.")
    return ModelShape(name=text, **given)


def _from_config(path: Path) -> ModelShape:
    return shape_of(read_json(path), path.parent.name, str(path))


def shape_of(config: dict[str, Any], name: str, where: str) -> ModelShape:
    """From a model's configuration. `where`: what an error calls it."""
    config = config.get("text_config") or config
    if any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts")):
        raise GearError(f"{where}: a mixture of experts; `gear plan` knows dense decoders only.")
    names = dict(
        hidden="hidden_size", layers="num_hidden_layers", heads="num_attention_heads", intermediate="intermediate_size",
        vocab="vocab_size",
    )  # fmt: skip
    if missing := [key for key in names.values() if key not in config]:
        raise GearError(f"{where}: lacks {', '.join(missing)}; `gear plan` knows Llama-like decoders only.")
    given = {field: config[key] for field, key in names.items()}
    given["kv_heads"] = config.get("num_key_value_heads") or given["heads"]
    head_dim: Any = config.get("head_dim")
    if head_dim is None and all(isinstance(given[k], int) and given[k] > 0 for k in ("hidden", "heads")):
        head_dim = given["hidden"] // given["heads"]
    return ModelShape(name, head_dim=head_dim, tied=bool(config.get("tie_word_embeddings")), **given)
