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


@contextmanager
def naming_failed_writes(folder: RunFolder) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        failed = error.errno in _FULL if isinstance(error, OSError) else any(words in str(error) for words in _WORDS)
        if not failed:
            raise
        reason = (isinstance(error, OSError) and error.strerror) or str(error).splitlines()[0]
        found = folder.newest_first()
        unfinished = [path for path in found if not (path / "complete.json").exists()]
        what = getattr(error, "filename", None) or next(iter(unfinished), folder.path / "model")
        whole = next((f"from checkpoint {step_of(path)}" for path in found if is_complete(path)), "from its beginning")
        raise GearError(
            f"{what} could not be written: {reason}. Free some space, then `gear train --resume {folder.path}`: it resumes "
            f"{whole}, and nothing before that is lost."
        ) from error
