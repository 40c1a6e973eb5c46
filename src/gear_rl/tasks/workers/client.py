"""Asks long-lived worker processes (`sandbox.py`), and replaces those that hang, die or talk nonsense.

An answer that overruns its time or takes its fork with it is counted in the tally, and the first of each is logged.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.tasks.workers.process import LARGEST_REPLY, Died, Overran, Process, Trouble

START_SECONDS = 120.0
_log = logging.getLogger(__name__)


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
        self._all: list[Process] = []
        self._own()
        weakref.finalize(self, _end_all, self._all)

    def _own(self) -> None:
        """Processes belong to the process that started them: after a fork, the copy starts its own."""
        self._owner = os.getpid()
        self._all.clear()
        self._idle: queue.LifoQueue[Process | None] = queue.LifoQueue()
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

    def _start(self) -> Process:
        worker = Process(
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


def _end_all(workers: list[Process]) -> None:
    while workers:
        workers.pop().end()
