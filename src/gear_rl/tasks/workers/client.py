"""Asks long-lived worker processes (`sandbox.py`), and replaces those that hang, die or talk nonsense.

An answer that overruns its time or takes its fork with it is counted in the tally, and the first of each is logged.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError

SANDBOX = Path(__file__).with_name("sandbox.py")
START_SECONDS = 120.0
GRACE = 2.0
"""Seconds beyond an answer's limit, within which the worker itself reports that its fork overran."""
LARGEST_REPLY = 2**26
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # some generators of reasoning-gym iterate over sets, and must give the same problem again
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONMALLOC": "malloc",  # with the next one: large pages, which halve the time of a fork
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
_log = logging.getLogger(__name__)


class Trouble(Exception):
    """There is no reply; the next request gets a clean process."""


class Overran(Trouble):
    """Cut off at the time limit."""


class Died(Trouble):
    """It took its process with it: memory, a crash."""


@dataclass
class Tally:
    """What the workers have done so far."""

    judged: int = 0
    overran: int = 0
    """Requests cut off at the time limit."""
    died: int = 0
    """Requests that took their process with them."""
    restarts: int = 0
    """Worker processes that had to be replaced. Ending the fork of one answer is no restart."""
    seconds: float = 0.0
    """Time spent judging, summed over the processes."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __str__(self) -> str:
        rate = self.judged / self.seconds if self.seconds else 0.0
        trouble = [f"{n} {what}" for n, what in ((self.overran, "overran"), (self.died, "died")) if n]
        return f"{self.judged} answers judged, {rate:.0f} a second and process" + "".join(f", {t}" for t in trouble)


class Workers:
    """`processes` copies of one script under the sandbox. Safe to ask from several threads, and after a fork."""

    def __init__(
        self,
        script: Path,
        arguments: Sequence[str] = (),
        *,
        processes: int = 1,
        memory: int = 4 * 2**30,
        guarded: bool = True,
        what: str = "the process that judges answers",
        install: str = "",
    ) -> None:
        """`guarded`: `eval` in a fork is limited to plain expressions. `install`: what to do if a package is missing."""
        self.script, self.arguments, self.processes, self.what, self.install = (
            script,
            arguments,
            processes,
            what,
            install,
        )
        self.settings = {"memory": memory, "guarded": guarded, "largest": LARGEST_REPLY}
        self.tally = Tally()
        self.open_ways: list[str] | None = None
        """What this platform lets a fork do although it should not (network, files, …); None: none has been started."""
        self._all: list[_Process] = []
        self._own()
        weakref.finalize(self, _end_all, self._all)

    def _own(self) -> None:
        """Processes belong to the process that started them: after a fork, the copy starts its own."""
        self._owner = os.getpid()
        self._all.clear()
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(self.processes):
            self._idle.put(None)  # started when first needed

    def ask(self, seconds: float, request: dict[str, Any], judging: bool = True) -> dict[str, Any]:
        """The reply of the next idle worker, {"raised": why} where its code raised. `judging`: it counts as an answer."""
        if self._owner != os.getpid():
            self._own()
        worker = self._idle.get()
        began, trouble, restarted = time.monotonic(), None, False
        try:
            if worker is None:
                worker = self._start()
                began = time.monotonic()
            return worker.ask(request, seconds)
        except Trouble as error:
            trouble = error
            raise
        finally:
            if worker is not None and worker.lost:  # also by Ctrl-C: half a reply would be taken for the next one's
                self._all.remove(worker)
                worker.end()
                worker, restarted = None, True
            self._idle.put(worker)
            self._count(judging, time.monotonic() - began, trouble, restarted)

    def _start(self) -> _Process:
        worker = _Process(
            [json.dumps({**self.settings, "path": [*filter(None, sys.path)]}), str(self.script), *self.arguments]
        )
        try:
            hello = worker.read(time.monotonic() + START_SECONDS)
        except Trouble as error:
            worker.end()
            raise GearError(f"{self.what} did not start: {error}. {self.install}".rstrip()) from None
        if "missing" in hello:
            worker.end()
            raise GearError(f"{self.install} ({hello['why']})".strip())
        if self.open_ways is None and hello["open_ways"]:
            _log.warning("%s: on this platform it cannot be kept from: %s.", self.what, ", ".join(hello["open_ways"]))
        self.open_ways = hello["open_ways"]
        self._all.append(worker)
        return worker

    def _count(self, judging: bool, seconds: float, trouble: Trouble | None, restarted: bool) -> None:
        with self.tally.lock:
            self.tally.restarts += restarted
            self.tally.judged += judging
            self.tally.seconds += judging * seconds
            name = {Overran: "overran", Died: "died"}.get(type(trouble)) if trouble else None
            if name:
                setattr(self.tally, name, getattr(self.tally, name) + 1)
                if getattr(self.tally, name) == 1:
                    _log.warning("%s %s (%s); what it was asked about counts as wrong. Further ones are counted only.",
                                 self.what, name, trouble)  # fmt: skip

    def close(self) -> None:
        """End the processes; a later question starts new ones. Not while another thread is asking."""
        if self._owner == os.getpid():
            _end_all(self._all)
        self._own()


def _end_all(workers: list[_Process]) -> None:
    while workers:
        workers.pop().end()


class _Process:
    """One sandbox and its pipes."""

    def __init__(self, arguments: list[str]) -> None:
        self.owner, self.lost, self._unread = os.getpid(), False, bytearray()
        self.folder = tempfile.TemporaryDirectory(prefix="gear-worker-")
        # It gets none of our environment's secrets, only where programs and libraries are.
        names = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-s", str(SANDBOX), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.folder.name,
            env={**environment, **ENVIRONMENT},
            start_new_session=True,
        )
        assert self.process.stdin is not None
        os.set_blocking(self.process.stdin.fileno(), False)  # one that does not read must not hang us

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Its reply to this very request, known by its token."""
        token = secrets.token_hex(16)
        line = json.dumps({**request, "within": seconds, "token": token}).encode() + b"\n"
        self.lost = True  # until it has replied as it should
        reply = self.read(time.monotonic() + seconds + GRACE, line)
        if reply.get("token") != token or self._unread:
            raise Died("a reply that was not asked for")
        self.lost = False
        if "trouble" in reply:
            raise Overran(f"no answer within {seconds:g} s") if reply["trouble"] == "overran" else Died(reply["why"])
        return reply["value"]

    def read(self, deadline: float, sending: bytes = b"") -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        into, out = self.process.stdin.fileno(), self.process.stdout.fileno()
        whole, unsent = b"\n" in self._unread, memoryview(sending)
        while not whole:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Overran("no answer in time")
            readable, writable, _ = select.select([out], [into] if unsent else [], [], left)
            try:
                if writable:
                    unsent = unsent[os.write(into, unsent[:65536]) :]
                chunk = os.read(out, 1 << 20) if readable else None
            except OSError as error:
                raise Died(f"the process ended ({error})") from None
            if chunk == b"":
                raise Died("the process ended (out of memory?)")
            self._unread += chunk or b""
            whole = b"\n" in (chunk or b"")
            if len(self._unread) > LARGEST_REPLY:
                raise Died("its reply is too large")
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            raise Died("its reply makes no sense")
        return reply

    def end(self) -> None:
        if self.owner != os.getpid():
            return
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unsent bytes for a process that is gone
                    pipe.close()
        self.folder.cleanup()
