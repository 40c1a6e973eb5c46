"""Answers judged in processes of their own, with a time limit each: no expression can hang or kill a training run.

The processes live as long as the task. One that overruns, dies or answers nonsense is ended and replaced; the answer that
did it is judged wrong, and counted.
"""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError

SECONDS = 5.0
"""Per answer. math-verify takes about 3 ms on an ordinary one."""
START_SECONDS = 120.0
WORKER = Path(__file__).with_name("judging_worker.py")
NEEDS = {"math": ("math_verify", "'gear-rl[math]'"), "reasoning_gym": ("reasoning_gym", "reasoning-gym==0.1.25")}
"""Kind → the module that judges, and what to install for it."""


@dataclass
class Tally:
    """What the judge has done so far."""

    judged: int = 0
    overran: int = 0
    """Answers cut off at the time limit."""
    died: int = 0
    """Answers that took their process with them: memory, a crash."""
    seconds: float = 0.0
    """Time spent judging, summed over the processes."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __str__(self) -> str:
        rate = self.judged / self.seconds if self.seconds else 0.0
        trouble = [f"{n} {what}" for n, what in ((self.overran, "overran"), (self.died, "died")) if n]
        return f"{self.judged} answers judged, {rate:.0f} a second and process" + "".join(f", {t}" for t in trouble)


class Judge:
    """`processes` workers of one kind ("math", "reasoning_gym"). Safe to ask from several threads."""

    def __init__(self, kind: str, processes: int = 1, seconds: float = SECONDS) -> None:
        module, install = NEEDS[kind]
        if find_spec(module) is None:  # said now, and not when the first answer has been sampled
            raise GearError(f"{module.replace('_', '-')} is not installed: pip install {install}.")
        self.kind, self.seconds, self.tally = kind, seconds, Tally()
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(processes):
            self._idle.put(None)  # started when first needed
        self._all: list[_Worker] = []
        weakref.finalize(self, _end_all, self._all)

    def score(self, **request: Any) -> float:
        """What the worker says of an answer, 0 to 1; 0 for one that could not be judged."""
        began = time.monotonic()
        try:
            reply, trouble = self.ask(self.seconds, request), None
        except (TimeoutError, EOFError, ValueError) as error:
            reply, trouble = {}, error
        with self.tally.lock:
            self.tally.judged += 1
            self.tally.seconds += time.monotonic() - began
            self.tally.overran += isinstance(trouble, TimeoutError)
            self.tally.died += trouble is not None and not isinstance(trouble, TimeoutError)
        score = reply.get("score")
        return float(score) if isinstance(score, (int, float)) and 0 <= score <= 1 else 0.0

    def ask(self, seconds: float, request: dict[str, Any]) -> dict[str, Any]:
        """The reply of the next idle worker. One that is late (TimeoutError), ends (EOFError) or talks nonsense
        (ValueError) is replaced."""
        worker = self._idle.get()
        try:
            if worker is None:
                worker = _Worker(self.kind)
                self._all.append(worker)
            try:
                return worker.ask(request, seconds)
            except BaseException:  # also Ctrl-C: half a reply in the pipe would be taken for the next answer's
                self._all.remove(worker)
                worker.end()
                worker = None
                raise
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End the processes; a later question starts new ones. Not while another thread is asking."""
        count = self._idle.qsize()
        for _ in range(count):
            self._idle.get()
        _end_all(self._all)
        for _ in range(count):
            self._idle.put(None)


def _end_all(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().end()


class _Worker:
    """One process and its pipes."""

    def __init__(self, kind: str) -> None:
        # -P: the folder of the script holds modules named like the packages they adapt; it must not be searched first.
        # The worker knows no secrets of ours: of the environment it gets where its modules and libraries are.
        environment = {
            name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT") if name in os.environ
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # A fixed hash seed: some generators of reasoning-gym iterate over sets, and must give the same problem again.
            env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        )
        self._unread = b""
        try:
            hello = self._read(time.monotonic() + START_SECONDS)
        except (TimeoutError, EOFError, ValueError) as error:
            self.end()
            raise GearError(f"the process that judges answers ({kind}) did not start: {error}.") from None
        if "missing" in hello:
            self.end()
            raise ModuleNotFoundError(f"No module named {hello['missing']!r}", name=hello["missing"])

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({**request, "within": seconds}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise EOFError("the process is gone") from None
        return self._read(time.monotonic() + seconds)

    def _read(self, deadline: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        file = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([file], [], [], left)[0]:
                raise TimeoutError("it took too long")
            chunk = os.read(file, 65536)
            if not chunk:
                raise EOFError("the process ended")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unsent bytes for a process that is gone
                    pipe.close()
