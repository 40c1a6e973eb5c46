"""The official checker's process, kept alive from call to call and killed when it hangs or grows too large."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError

WORKER = Path(__file__).with_name("official.py")
MEMORY = 2 * 2**30
START_SECONDS = 60.0
LARGEST_REPLY = 2**26
HOW_TO_INSTALL = (
    "BFCL is judged by its official checker: pip install --no-deps bfcl-eval==2025.8.6 mpmath==1.3.0 "
    "(its other requirements are for running vendors' models, and newer versions no longer judge v3)."
)


class Trouble(Exception):
    """The checker did not answer in time, or died; it has been ended and will be started anew."""


class OfficialChecker:
    """Requests to `official.py`, one at a time; safe to call from several threads."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self.restarts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._lock = threading.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._owner = 0
        atexit.register(self.close)

    def ask(self, **request: Any) -> dict[str, Any]:
        with self._lock:
            process = self._running()
            try:
                return self._exchange(process, json.dumps(request).encode() + b"\n", time.monotonic() + self.seconds)
            except Trouble:
                self._end()
                self.restarts += 1
                raise

    def close(self) -> None:
        """End the process; the next question starts a new one."""
        with self._lock:
            if self._owner == os.getpid():
                self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():  # a fork: the process belongs to the parent, and answers it
            self._process, self._folder, self._buffer, self._owner = None, None, b"", os.getpid()
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        self._folder = tempfile.TemporaryDirectory(prefix="gear-bfcl-")
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(WORKER), str(MEMORY), *filter(None, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder.name,
            env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)  # a process that does not read must not hang us
        try:
            hello = self._exchange(self._process, b"", time.monotonic() + START_SECONDS)
        except Trouble as error:
            self._end()
            raise GearError(f"the BFCL checker's process did not start: {error}. {HOW_TO_INSTALL}") from None
        if "unavailable" in hello:
            self._end()
            raise GearError(f"{HOW_TO_INSTALL} ({hello['unavailable']})")
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], request: bytes, deadline: float) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        out = process.stdout.fileno()
        sent = 0
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Trouble(f"no answer within {self.seconds:g} s")
            writing = [process.stdin] if sent < len(request) else []
            readable, writable, _ = select.select([out], writing, [], left)
            try:
                if writable:
                    sent += os.write(process.stdin.fileno(), request[sent : sent + 65536])
                chunk = os.read(out, 1 << 20) if readable else None
            except OSError as error:
                raise Trouble(f"the process ended ({error})") from None
            if chunk == b"":
                raise Trouble("the process ended (out of memory?)")
            self._buffer += chunk or b""
            if len(self._buffer) > LARGEST_REPLY:
                raise Trouble("its answer is too large")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def _end(self) -> None:
        self._buffer = b""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
