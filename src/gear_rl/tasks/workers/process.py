"""One worker process (`sandbox.py`) and the pipes to it: a JSON line there, a JSON line back, each within its time."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

SANDBOX = Path(__file__).with_name("sandbox.py")
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


class Trouble(Exception):
    """There is no reply; the next request gets a clean process."""


class Overran(Trouble):
    """Cut off at the time limit."""


class Died(Trouble):
    """It took its process with it: memory, a crash."""


class Process:
    """One sandbox and its pipes."""

    def __init__(self, arguments: list[str]) -> None:
        self.owner, self.lost, self._unread = os.getpid(), False, bytearray()
        self.folder = tempfile.mkdtemp(prefix="gear-worker-")
        # It gets none of our environment's secrets, only where programs and libraries are.
        names = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-s", str(SANDBOX), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
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
        if self.owner != os.getpid():  # a copy of ours, after a fork
            return
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unsent bytes for a process that is gone
                    pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)
