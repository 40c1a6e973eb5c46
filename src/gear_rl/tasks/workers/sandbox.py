"""The process that third-party judges run in: `python -P sandbox.py SETTINGS SCRIPT [ARGUMENT …]`, a JSON line in, one out.

It loads SCRIPT, which has `start(*arguments)` → `handle(request, apart)`, once. `handle` runs here and reads only what we
wrote ourselves; whatever reads a model's text goes through `apart(function, …)`: a fork that runs it and ends, so nothing
it changes outlives it. The fork has limits on time, memory, files and processes, no network and no files but Python's own
(`syscalls`), no plain `eval`
(`expressions`, where the settings ask for it), and no way to the parent but one pipe for one reply. The parent's own pipe to
the client is closed in it, and every reply carries the token of its request.
"""

import contextlib
import gc
import importlib.util
import itertools
import json
import math
import os
import resource
import runpy
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_FILES = 64


class Overran(Exception):
    """The fork was ended at its time limit."""


class Died(Exception):
    """The fork ended without a reply, or with one that is no reply."""


def _sibling(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"_gear_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Apart:
    """Runs a function in a fork of this process. All calls for one request share its time."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.memory, self.largest = settings["memory"], settings["largest"]
        self.syscalls, self.expressions = _sibling("syscalls"), _sibling("expressions")
        self.guarded: bool = settings["guarded"]
        self.libc = self.syscalls.prepare()
        self.ruleset = self.syscalls.readable(self.libc, [str(Path(script).parent) for script in (__file__, sys.argv[2])])
        self.deadline = 0.0
        self.ended: list[int] = []
        """Forks that were killed, and may not be gone yet."""
        self.guarded_here = False

    def guard_here(self) -> None:
        """Limit `eval` in the long-lived process too, before it reads a benchmark's data."""
        if not self.guarded_here:
            self.expressions.install()
            self.guarded_here = True

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise Overran
        self.ended = [child for child in self.ended if os.waitpid(child, os.WNOHANG)[0] == 0]  # taking down takes ms
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            self._inside(write, seconds, function, arguments)
        os.close(write)
        with contextlib.suppress(OSError):
            os.setpgid(child, child)
        try:
            reply = self._receive(read)
        finally:
            os.close(read)
            with contextlib.suppress(OSError):
                os.killpg(child, signal.SIGKILL)  # also what replied: nothing goes on after its reply
            self.ended.append(child)
        if "raised" in reply:
            raise RuntimeError(reply["raised"])
        return reply["value"]

    def _receive(self, read: int) -> dict[str, Any]:
        received = bytearray()
        while not received.endswith(b"\n"):
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([read], [], [], left)[0]:
                raise Overran
            chunk = os.read(read, 1 << 16)
            received += chunk
            if not chunk or len(received) > self.largest:
                raise Died("it ended without a reply (out of memory?)" if not chunk else "its reply is too large")
        with contextlib.suppress(ValueError, RecursionError):
            reply = json.loads(received)
            if isinstance(reply, dict) and len(reply) == 1 and reply.keys() <= {"value", "raised"}:
                return reply
        raise Died("its reply makes no sense")

    def _inside(self, write: int, seconds: float, function: Callable[..., Any], arguments: Any) -> None:
        """Never returns."""
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            for before, kept in itertools.pairwise([2, *sorted({write, self.ruleset} - {-1}), 1024]):
                os.closerange(before + 1, kept)
            self.restrict(seconds)
            if self.guarded:
                self.expressions.install()
            try:
                reply = {"value": function(*arguments)}
            except MemoryError:
                os._exit(1)
            except Exception as error:  # whatever a text can provoke: it is not right
                reply = {"raised": f"{type(error).__name__}: {error}"[:500]}
            left = json.dumps(reply).encode() + b"\n"
            while left:
                left = left[os.write(write, left) :]
        finally:
            os._exit(0)

    def restrict(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds + 1)  # the end, should the parent be gone: nothing handles it
        cpu = math.ceil(seconds) + 1
        limits = {"AS": self.memory, "CPU": cpu, "FSIZE": 0, "CORE": 0, "NOFILE": MOST_FILES, "NPROC": 0}
        for name, most in limits.items():
            with contextlib.suppress(AttributeError, ValueError, OSError):  # a system without it, or with a lower one
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
        self.syscalls.restrict(self.libc, self.ruleset)

    def open_ways(self) -> list[str]:
        """What a fork can still do here although it should not: tried, not assumed."""
        self.deadline = time.monotonic() + 10
        return self(_try_out, os.getpid())


def _try_out(parent: int) -> list[str]:
    import socket

    ways = {
        "network": lambda: socket.socket().close(),
        "processes": lambda: os.fork() or os._exit(0),
        "writing files": lambda: os.open("written", os.O_WRONLY | os.O_CREAT),
        "reading files": lambda: os.open("/", os.O_RDONLY),
        "signals": lambda: os.kill(parent, 0),
    }
    found = []
    for name, attempt in ways.items():
        with contextlib.suppress(OSError):
            attempt()
            found.append(name)
    return found


def main() -> None:
    settings, script = json.loads(sys.argv[1]), sys.argv[2]
    sys.path += [folder for folder in settings["path"] if folder not in sys.path]
    requests, replies = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)  # a library that prints must not speak into the protocol

    def reply(**content: Any) -> None:
        left = json.dumps(content).encode() + b"\n"
        while left:
            left = left[os.write(replies, left) :]

    try:
        handle = runpy.run_path(script)["start"](*sys.argv[3:])
    except ImportError as error:
        return reply(missing=error.name or "", why=str(error))
    import socket  # noqa: F401  (so that a fork needs no more files to try it)

    for limit, most in (("AS", settings["memory"]), ("FSIZE", 0), ("CORE", 0)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (most, most))
    apart = Apart(settings)
    gc.collect()
    gc.freeze()  # so that forks share these pages
    reply(ready=True, open_ways=apart.open_ways())
    for line in os.fdopen(requests, "rb"):
        request = json.loads(line)
        token, apart.deadline = request.pop("token"), time.monotonic() + request.pop("within")
        try:
            reply(token=token, value=handle(request, apart))
        except Overran:
            reply(token=token, trouble="overran")
        except Died as death:
            reply(token=token, trouble="died", why=str(death))
        except MemoryError:
            raise
        except Exception as error:
            why = str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"
            reply(token=token, value={"raised": why[:500]})


if __name__ == "__main__":
    main()
