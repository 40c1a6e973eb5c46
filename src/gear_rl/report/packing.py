"""How token data travels inside the page: small, exact to the six digits a record keeps, decoded only when shown.

    blob    = base64(deflate(columns)), one after the other in one text; the index holds where each begins
    column  = its values' lowest bytes, then the next bytes, …: bytes of a kind side by side deflate best
    "float" float32 cut to 20 bits of mantissa, the 3 freed bits shifted out. The error is at most 2^-21 of the value, and
            half a unit of the sixth digit is never less than 5e-7 of it: so rounding to six digits gives back the record's
            number. What is below float32's normal range (1.2e-38) becomes 0.
    "whole" differences of neighbouring int32s
    "small" bytes
web/decode.js is the other half.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import zlib
from collections.abc import Sequence

import numpy as np

_WORTH_A_BLOCK = 512
"""Bytes. A block of its own costs a few dozen."""
_SPARE_BITS = 32  # of float64's 52 bits of mantissa, so that 20 stay
_FREED_BITS = 3  # of float32's 23
Column = list[bytes]
"""The parts that deflate should see apart from each other."""


def floats(values: Sequence[float]) -> Column:
    exact = np.asarray(values, dtype="<f8")
    # Rounded once, and from the exact number: rounding to float32 first would add its own error to ours.
    # A carry into the exponent is right.
    half, keep = np.uint64(1 << (_SPARE_BITS - 1)), np.uint64(2**64 - 2**_SPARE_BITS)
    rounded = ((exact.view("<u8") + half) & keep).view("<f8")
    normal = np.abs(exact) >= np.finfo("<f4").tiny
    return _planes(np.where(normal, rounded, 0.0).astype("<f4").view("<u4") >> _FREED_BITS)


def whole_numbers(values: Sequence[int]) -> Column:
    return _planes(np.diff(np.asarray(values, dtype="<i4"), prepend=np.int32(0)).astype("<i4").view("<u4"))


def small_numbers(values: Sequence[int]) -> Column:
    return [np.asarray(values, dtype="u1").tobytes()]


def texts(values: Sequence[str | None]) -> Column:
    # ASCII escapes: lone surrogates have no UTF-8.
    return [json.dumps(list(values), separators=(",", ":")).encode("ascii")]


def _planes(numbers: np.ndarray) -> Column:
    return [plane.tobytes() for plane in numbers.astype("<u4").view("u1").reshape(-1, 4).T]


def deflated(*columns: Column) -> bytes:
    """One blob, in the raw deflate that a browser's DecompressionStream reads."""
    squeeze = zlib.compressobj(6, zlib.DEFLATED, -15)
    done = []
    for part in itertools.chain.from_iterable(columns):
        done.append(squeeze.compress(part))
        if len(part) > _WORTH_A_BLOCK:
            done.append(squeeze.flush(zlib.Z_SYNC_FLUSH))  # ends the block: the next part gets a code of its own
    return b"".join([*done, squeeze.flush()])


class Blobs:
    """All blobs of a page; the same content is kept once, however many runs share it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._number: dict[bytes, int] = {}
        self.offsets: list[int] = [0]

    def add(self, blob: bytes) -> int:
        """The number under which the page finds `blob`."""
        digest = hashlib.blake2b(blob, digest_size=16).digest()
        if digest not in self._number:
            self._number[digest] = len(self._parts)
            self._parts.append(base64.b64encode(blob).decode("ascii"))
            self.offsets.append(self.offsets[-1] + len(self._parts[-1]))
        return self._number[digest]

    def text(self) -> str:
        return "".join(self._parts)
