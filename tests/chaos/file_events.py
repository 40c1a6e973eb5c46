"""What a command does to files, event by event, and a fault at the n-th: counted in the child by Python's audit hooks.

An event: open for writing, rename, unlink, mkdir, rmdir, truncate, fsync, and a file written by torch or safetensors, which
write in C++ and Rust where no hook sees them ("write" before it, "torn" once half of it is there).
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Event = tuple[str, str]
"""What happens, and the path."""
CHANGES = {"os.rename": "rename", "os.remove": "unlink", "os.mkdir": "mkdir", "os.rmdir": "rmdir", "os.truncate": "truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def watch(home: Path, seen: Callable[[str, str], None], in_workers: bool = False) -> None:
    """Call `seen(event, path)` just before each event under `home`: in this process, or only in processes that it forks."""
    owner, top, busy = os.getpid(), str(home), False

    def tell(event: str, path: Any) -> None:
        nonlocal busy
        if busy or (os.getpid() == owner) is in_workers or not isinstance(path, str | bytes | os.PathLike):
            return
        full = os.path.abspath(os.fsdecode(path))
        if full.startswith(top):
            busy = True
            try:
                seen(event, os.path.relpath(full, top))
            finally:
                busy = False

    def hook(event: str, args: tuple) -> None:
        if event == "open":
            path, mode, flags = args
            if (isinstance(mode, str) and set(mode) & set("wax+")) or (isinstance(flags, int) and flags & _WRITING):
                tell("open", path)
        elif event in CHANGES:
            tell(CHANGES[event], args[1] if event == "os.rename" else args[0])

    sys.addaudithook(hook)
    _watch_fsync(tell)
    _watch_native(tell)


def _watch_fsync(tell: Callable[[str, Any], None]) -> None:
    fsync = os.fsync

    def told(fd: int) -> None:
        tell("fsync", os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    os.fsync = told


def _watch_native(tell: Callable[[str, Any], None]) -> None:
    import safetensors.torch
    import torch

    def told(write: Callable[..., Any], place: int) -> Callable[..., Any]:
        def both(*args: Any, **kwargs: Any) -> Any:
            path = args[place]
            tell("write", path)
            result = write(*args, **kwargs)
            tell("torn", path)
            return result

        return both

    safetensors.torch.serialize_file = told(safetensors.torch.serialize_file, 1)
    torch.save = told(torch.save, 1)


# ---------------------------------------------------------------------------------------------------- what happens then
def write_down(home: Path, log: Path) -> Callable[[], None]:
    """No fault: every event becomes a line of `log`, which lies outside of `home`."""

    def before() -> None:
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        watch(home, lambda event, path: os.write(fd, f"{event}\t{path}\n".encode()) and None)

    return before


def at_event(
    home: Path, n: int, act: Callable[[str, str], None], in_workers: bool = False
) -> Callable[[], None]:
    """`act(event, path)` just before event number `n` (from 0), once."""

    def before() -> None:
        count = 0

        def seen(event: str, path: str) -> None:
            nonlocal count
            count += 1
            if count == n + 1:
                act(event, path)

        watch(home, seen, in_workers)

    return before


def send(home: Path, number: int) -> Callable[[str, str], None]:
    def act(event: str, path: str) -> None:
        if event == "torn" and number == signal.SIGKILL:
            os.truncate(home / path, (home / path).stat().st_size // 2)
        os.kill(os.getpid(), number)

    return act


def fail_from(home: Path, n: int, code: int = errno.ENOSPC) -> Callable[[], None]:
    """From event `n` on nothing new can be written: opening, renaming, making folders and flushing raise `code`."""

    def before() -> None:
        count = 0

        def seen(event: str, path: str) -> None:
            nonlocal count
            count += 1
            if count > n and event in ("open", "rename", "mkdir", "fsync"):
                raise OSError(code, os.strerror(code), str(home / path))

        watch(home, seen)

    return before
