"""Runs `gear` in a forked child, so that a fault costs a second and not the ten of importing torch and TRL."""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

Before = Callable[[], None]
"""Called in the child before the command: where a fault is set up."""
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER: what a dead child leaves behind becomes ours, and so can be counted
KEPT_TEXT = 2**20


@dataclass
class Ended:
    """How one command ended."""

    code: int | None
    """Exit code; negative: the signal that killed it; None: it did not end in time and was killed by us."""
    text: str
    """What it printed, both streams."""
    seconds: float
    orphans: list[str]
    """Processes it left behind that did not end by themselves."""

    @property
    def problem(self) -> str | None:
        """What no fault excuses."""
        if self.code is None:
            return "hang"
        if "Traceback (most recent call last)" in self.text:
            return "traceback"
        return "orphan" if self.orphans else None

    @property
    def refused(self) -> bool:
        """Exit code 2 and one line that says why."""
        return self.code == 2 and self.text.count("gear: error: ") == 1

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""


class Running:
    """A command under way in a child of its own."""

    active: ClassVar[set[int]] = set()

    def __init__(self, words: Sequence[str], home: Path, before: Before | None = None) -> None:
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
        self._out, write = os.pipe()
        self.began, self._parts, self._size = time.monotonic(), list[bytes](), 0
        sys.stdout.flush()
        sys.stderr.flush()
        # What lands before the child is `gear` waits: it must not take the child for this process.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._out)
            _be_gear(words, home, before, write)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        os.close(write)
        self.active.add(self.pid)

    def signal(self, number: int) -> None:
        """The child is not waited for before `wait`, so the number is still its own."""
        os.kill(self.pid, number)

    def wait(self, limit: float, at: float | None = None, number: int = 0) -> Ended:
        """Until it ends, at most `limit` seconds. `at`: seconds after which it gets signal `number`."""
        code = None
        while (left := self.began + limit - time.monotonic()) > 0:
            if at is not None and time.monotonic() - self.began >= at:
                self.signal(number)
                at = None
            self._drain(min(0.02, left))
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                break
        else:
            self.signal(signal.SIGKILL)
            os.waitpid(self.pid, 0)
        seconds = time.monotonic() - self.began
        self.active.discard(self.pid)
        orphans = _end_orphans()
        self._drain(0.0)
        os.close(self._out)
        return Ended(code, b"".join(self._parts).decode(errors="replace"), seconds, orphans)

    def _drain(self, seconds: float) -> None:
        """Take what was printed; a full pipe would block the child."""
        while select.select([self._out], [], [], seconds)[0]:
            data = os.read(self._out, 65536)
            if not data:
                time.sleep(seconds)
                return
            if self._size < KEPT_TEXT:
                self._parts.append(data)
                self._size += len(data)
            seconds = 0.0


def gear(words: Sequence[str], home: Path, limit: float, before: Before | None = None) -> Ended:
    return Running(words, home, before).wait(limit)


def _be_gear(words: Sequence[str], home: Path, before: Before | None, write: int) -> None:
    """The rest of the child's life: as the installed script `gear` would live it."""
    code, entered = 1, False
    try:
        for number in (signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.chdir(home)
        sys.stdout, sys.stderr = (open(fd, "w", closefd=False, buffering=1) for fd in (1, 2))  # noqa: SIM115
        _fork_workers()
        from gear_rl.__main__ import gear

        if before is not None:
            before()
        sys.argv = ["gear", *words]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        entered = True
        gear()
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    except KeyboardInterrupt:
        code = 130
        if entered:  # before, the installed script would still be in Python's own start, which no command can answer for
            traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            threading._shutdown()  # then what the interpreter does at its end, but for what outlives a fork
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _fork_workers() -> None:
    """Worker processes are forked here: a fork server would import everything once more for each fault."""
    get_context = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: get_context("fork" if method else None)


def _end_orphans(patience: float = 5.0) -> list[str]:
    """Wait for what ended children left behind, then end it and say what it was. They are this process's children by now."""
    deadline = time.monotonic() + patience
    while (left := [pid for pid in _children() if not _reaped(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    found = []
    for pid in left:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        found.append(command[:120])
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return found


def _reaped(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG)[0] == pid


def _children() -> list[int]:
    """This process's children but those that still run as `Running`."""
    lists = [(task / "children").read_text().split() for task in Path("/proc/self/task").iterdir()]
    return [int(pid) for pids in lists for pid in pids if int(pid) not in Running.active]
