"""Limits of time and memory for code that is not ours (tasks, chat templates), and threads that nothing has to wait for.

In the main thread an alarm ends what takes too long: sleeping, waiting, and Python code that loops. In another thread nothing
can be ended, so who waits for it (`in_threads`, `in_executor`) looks at the clock, and leaves it behind. Windows has no alarm:
there the main thread's own calls have no limit.
"""

from __future__ import annotations

import asyncio
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gear_rl.errors import GearError

Item = TypeVar("Item")
Result = TypeVar("Result")
SECONDS_BETWEEN_LOOKS = 0.5
_one_memory_limit = threading.Lock()
_running: dict[int, tuple[float, str]] = {}
"""Thread → until when what it runs may take, and what to say then."""


@contextmanager
def time_limit(seconds: float, message: str) -> Iterator[None]:
    """Inside, a GearError with `message` after so many seconds. Within another limit the outer one holds."""
    thread = threading.get_ident()
    if thread in _running:
        yield
        return
    began = time.monotonic()
    _running[thread] = began + seconds, message
    alarm = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    if alarm:

        def ring(*_: Any) -> None:
            if thread in _running:
                raise GearError(message)

        handler = signal.signal(signal.SIGALRM, ring)
        left, _ = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again each second: code may catch what it raises
    try:
        yield
    finally:
        try:
            _running.pop(thread, None)  # first: an alarm that rings from here on says nothing
        finally:
            if alarm:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, handler)
                if left:  # somebody else's alarm
                    signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - began)))


@contextmanager
def memory_limit(most: int, message: str) -> Iterator[None]:
    """Inside, a GearError with `message` once this process takes `most` bytes more than now. Other systems than Linux have no
    such limit, and a process that uses a GPU gets none, because its driver reserves address space by the terabyte whenever it
    likes: there, memory that runs out is the same error."""
    limited = sys.platform == "linux" and not _uses_gpu()
    with _one_memory_limit:
        if limited:
            import resource

            taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            lower = taken + most if soft == resource.RLIM_INFINITY else min(taken + most, soft)
            resource.setrlimit(resource.RLIMIT_AS, (lower, hard))
        try:
            yield
        except MemoryError:
            raise GearError(message) from None
        finally:
            if limited:
                resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _uses_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], most: int
) -> Iterator[tuple[int, Result]]:
    """(place of the item, `function` of it) as they are ready, `most` at a time, each in a thread.

    What a thread raises is raised here, and so is a time limit that one has passed. Threads left behind, by an error or by
    Ctrl-C, are not waited for: they end with the process."""
    waiting, ready = iter(enumerate(items)), queue.SimpleQueue[tuple[int, Any, BaseException | None]]()
    threads: set[int | None] = set()

    def work(place: int, item: Item) -> None:
        try:
            done: tuple[int, Any, BaseException | None] = (place, function(item), None)
        except BaseException as error:
            done = (place, None, error)
        ready.put(done)

    running = 0
    while True:
        while running < most and (following := next(waiting, None)) is not None:
            thread = threading.Thread(target=work, args=following, daemon=True)
            thread.start()
            threads.add(thread.ident)
            running += 1
        if not running:
            return
        place, result, error = _next(ready, threads)
        running -= 1
        if error is not None:
            raise error
        yield place, result


def _next(ready: queue.SimpleQueue[Any], threads: set[int | None]) -> Any:
    while True:
        try:
            return ready.get(timeout=SECONDS_BETWEEN_LOOKS)
        except queue.Empty:
            _refuse_late(threads)


def _refuse_late(threads: Collection[int | None]) -> None:
    for thread, (deadline, message) in list(_running.items()):
        if thread in threads and time.monotonic() > deadline:
            raise GearError(message) from None


async def in_executor(function: Callable[..., Result], *args: Any) -> Result:
    """`function(*args)` in a thread of the event loop's own executor. A time limit that it passes is raised here."""
    threads: list[int] = []

    def call() -> Result:
        threads.append(threading.get_ident())  # only now: it may have waited for a thread
        return function(*args)

    future = asyncio.get_running_loop().run_in_executor(None, call)
    while not (await asyncio.wait({future}, timeout=SECONDS_BETWEEN_LOOKS))[0]:
        _refuse_late(threads)
    return await future


def in_order(function: Callable[[Item], Result], items: Sequence[Item], most: int) -> list[Result]:
    """`function` of each item, in their order; in threads where several may run at once."""
    if min(most, len(items)) <= 1:
        return [function(item) for item in items]
    return [result for _, result in sorted(in_threads(function, items, most), key=lambda done: done[0])]
