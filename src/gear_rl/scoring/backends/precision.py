"""Full float32 products, whatever the caller has switched on for the rest of the program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """No gradients, no autocast, no TF32 or bf16 shortcuts in float32 products; restored on leaving."""
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        switches = [b.matmul for b in (torch.backends.cuda, torch.backends.mkldnn) if hasattr(b, "matmul")]
        if not all(hasattr(s, "fp32_precision") for s in switches):  # torch < 2.9 has one switch for all
            legacy = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("highest")
            try:
                yield
            finally:
                torch.set_float32_matmul_precision(legacy)
            return
        before = [s.fp32_precision for s in switches]
        for switch in switches:
            switch.fp32_precision = "ieee"
        try:
            yield
        finally:
            for switch, value in zip(switches, before, strict=True):
                switch.fp32_precision = value
