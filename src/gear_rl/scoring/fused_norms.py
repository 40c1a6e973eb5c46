"""RMS norms in one kernel each while scoring runs the body.

Transformers writes an RMS norm as eight operations. Of a small model's layer that is a third of all launches, and scoring
a few rollouts is bound by launching. `torch.nn.functional.rms_norm` is one, and rounds to 16 bits once instead of twice.
It is put in place only for the length of a pass, and only for norms that are proven to be this one:

    y = w x / sqrt(mean(x²) + eps)

Weights that FSDP2 has sharded are gathered by the layer around a norm, so such norms are replaced as well. TRL scores under
autocast; there too, 16 bits in are 16 bits out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm


def provable_norms(body: nn.Module) -> list[nn.Module]:
    """The norms that `fused` may replace: plain RMS norms, in 16 bits, that nobody else has laid hands on."""
    proven: dict[tuple[type, torch.dtype], bool] = {}
    found = []
    for module in body.modules():
        weight = getattr(module, "weight", None)
        if not (type(module).__name__.endswith("RMSNorm") and isinstance(weight, Tensor) and _eps(module) is not None):
            continue
        if weight.dtype.itemsize > 2 or "forward" in vars(module) or module._forward_hooks or module._forward_pre_hooks:
            continue
        kind = type(module), weight.dtype
        if kind not in proven:
            proven[kind] = _is_plain(module)
        if proven[kind]:
            found.append(module)
    return found


@contextmanager
def fused(norms: Sequence[nn.Module]) -> Iterator[None]:
    """Inside, `norms` run as one kernel each."""
    for norm in norms:
        norm.forward = partial(_forward, norm)
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def _forward(norm: nn.Module, hidden: Tensor) -> Tensor:
    weight = norm.weight
    assert isinstance(weight, Tensor)
    if hidden.dtype != weight.dtype:
        return type(norm).forward(norm, hidden)
    if not torch.is_autocast_enabled(hidden.device.type):
        return rms_norm(hidden, weight.shape, weight, _eps(norm))
    with torch.autocast(hidden.device.type, enabled=False):  # which may have its own idea of this operation's dtype
        return rms_norm(hidden, weight.shape, weight, _eps(norm))


def _eps(norm: nn.Module) -> float | None:
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    return eps if isinstance(eps, float) else None


@torch.no_grad()
def _is_plain(norm: nn.Module) -> bool:
    """A copy with random weights against the formula in float32, over sizes at which eps matters and does not."""
    held, eps = norm.weight, _eps(norm)
    assert isinstance(held, Tensor) and eps is not None
    draw = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(held.shape, generator=draw).to(held.device, held.dtype))
    probe = copy.copy(norm)  # the weight is a new one and whole, where the norm's own is a shard
    vars(probe)["_parameters"] = {"weight": weight}
    size = torch.logspace(-4, 2, 16)[:, None]
    hidden = (size * torch.randn(16, weight.numel(), generator=draw)).to(weight.device, weight.dtype)
    try:
        theirs = probe(hidden).float()
    except (RuntimeError, TypeError, ValueError):
        return False
    plain = rms_norm(hidden.float(), weight.shape, weight.float(), eps)
    same = theirs.shape == plain.shape and torch.allclose(theirs, plain, rtol=2e-2, atol=1e-6)
    return same and weight.dim() == 1
