"""Models and tokenizers from a folder or the hub: loading, device and dtype, context length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gear_rl.errors import GearError

MOST_LAYERS = 4096
"""Layers of a model, and experts of a layer."""


def load_model(path: str, device: str, dtype: str = "float32") -> tuple[Any, Any]:
    """Model and tokenizer. The weights are read in `dtype` (a name of torch's), whatever the checkpoint has.

    Only the weights: rotary frequencies and other computed buffers stay as exact as transformers makes them.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # "Loading weights", "Writing model shards"
    try:
        check_dimensions(path)
        tokenizer = AutoTokenizer.from_pretrained(path)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
    except (OSError, ValueError) as error:
        gone = "" if Path(path).is_dir() else "there is no such folder, and from the hub: "
        raise GearError(f"no model could be loaded from {path!r}: {gone}{str(error).splitlines()[0]}") from None
    except Exception as error:  # on damaged files transformers, tokenizers and safetensors raise types of their own, and more
        if isinstance(error, ImportError | MemoryError | torch.OutOfMemoryError):
            raise
        if type(error).__module__.startswith("safetensors"):
            raise GearError(f"the weights in {path!r} are damaged: {error}") from None
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise GearError(f"no model could be loaded from {path!r}: {reason}") from error
    if tokenizer.chat_template is None:
        raise GearError(
            f"the tokenizer in {path!r} has no chat template, and tasks are written as messages. Use an instruct model."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.to(device)  # type: ignore[arg-type]  # transformers' own annotation of .to() is at fault
    return model, tokenizer


def check_dimensions(path: str) -> None:
    """Raises where config.json describes a model far larger than its weights: transformers would make all of it first."""
    from transformers import AutoConfig, PretrainedConfig

    if not (Path(path) / "config.json").is_file():  # of the hub, or an adapter
        return
    _check_counts(PretrainedConfig.get_config_dict(path)[0])  # before AutoConfig, which makes a list of the layers
    config: Any = AutoConfig.from_pretrained(path).get_text_config()
    hidden, layers, vocabulary, inner, heads, width = (
        value if isinstance(value := getattr(config, name, None), int) else 0
        for name in ("hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size", "num_attention_heads", "head_dim")
    )
    described = hidden * (vocabulary + layers * max(inner, heads * width))  # at the least
    held = 8 * sum(file.stat().st_size for file in Path(path).iterdir() if file.is_file())  # at the most: a bit each
    if described > held:
        raise GearError(f"config.json describes at least {described:.1e} parameters, more than its weight files can hold.")


def _check_counts(described: dict[str, Any]) -> None:
    for name, value in described.items():
        if isinstance(value, dict):
            _check_counts(value)
        elif ("layer" in name or "expert" in name) and isinstance(value, int) and value > MOST_LAYERS:
            raise GearError(f"config.json: {name} is {value}; at most {MOST_LAYERS} are accepted.")


def is_out_of_memory(error: RuntimeError) -> bool:
    """On a GPU and, as far as the system says so, on a CPU."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or any(
        text in str(error) for text in ("out of memory", "can't allocate memory", "not enough memory")
    )


def free_memory(error: RuntimeError) -> None:
    """Let go of what was under way when memory ran out."""
    import torch

    error.__traceback__ = None  # it holds the batch's tensors
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def choose_device(wanted: str) -> str:
    """ "auto": a GPU if there is one. Raises where torch has no such device."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=wanted)
    except (RuntimeError, AssertionError, TypeError) as error:  # torch without CUDA says so by an assertion
        raise GearError(f"device {wanted!r}: {str(error).splitlines()[0]}") from None
    return wanted


def find_model(path: str, default: str | None = None) -> str:
    """The folder to load. "embedded": the task's own model. A finished run's folder: the model in it."""
    if path == "embedded" and default is not None:
        return default
    if (Path(path) / "evaluation.json").is_file() and (Path(path) / "model").is_dir():
        return str(Path(path) / "model")
    return path


def model_for(task: str, given: str | None, default: str | None) -> str:
    """The model to load for `task`: the one that is given, else the task's own."""
    path = given or default
    if path is None:
        raise GearError(
            f"task {task!r} brings no model of its own: give one with --model, a folder or a chat model of the hub."
        )
    return find_model(path, default)


def load_tokenizer(path: str) -> Any:
    """The tokenizer without the model."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise GearError(f"no tokenizer could be loaded from {path!r}: {str(error).splitlines()[0]}") from None
    if tokenizer.chat_template is None:
        raise GearError(f"the tokenizer in {path!r} has no chat template. Use an instruct model.")
    return tokenizer


def context_of(model_config: Any) -> int:
    """The most tokens that the model can read at once; very large where it has no limit."""
    text = model_config.get_text_config() if hasattr(model_config, "get_text_config") else model_config  # of one with vision
    return getattr(text, "max_position_embeddings", None) or 2**62
