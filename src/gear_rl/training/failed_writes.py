"""A full disk, said plainly: what could not be written, and where the run resumes."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from gear_rl.errors import GearError
from gear_rl.training.run_folder import RunFolder, is_complete, step_of

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_WORDS = ("I/O error", "inline_container", "iostream error")
"""What the writers of a checkpoint say that raise no OSError: safetensors, and torch.save in two ways."""


def is_failed_write(error: Exception) -> bool:
    """Whether `error` says that a file could not be written, whichever library says so."""
    return error.errno in _FULL if isinstance(error, OSError) else any(words in str(error) for words in _WORDS)


@contextmanager
def naming_failed_writes(folder: RunFolder) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_failed_write(error):
            raise
        reason = (isinstance(error, OSError) and error.strerror) or f"{str(error).splitlines()[0]} (is the disk full?)"
        found = folder.newest_first()
        unfinished = [path for path in (*found, folder.unfinished_model) if path.exists() and not is_complete(path)]
        what = getattr(error, "filename", None) or next(iter(unfinished), folder.path)
        last = next((step_of(path) for path in found if is_complete(path)), None)
        whole = "starts again, as there was no checkpoint yet" if last is None else f"resumes from checkpoint {last}"
        raise GearError(
            f"{what} could not be written: {reason}. Free some space, then `gear train --resume {folder.path}`: it {whole}."
        ) from error
