"""Time limits: in the main thread by an alarm, in others by whoever waits for them."""

import asyncio
import signal
import sys
import threading
import time

import pytest

from gear_rl.errors import GearError
from gear_rl.limits import in_executor, in_order, in_threads, memory_limit, time_limit


def test_the_main_thread_is_interrupted():
    began = time.monotonic()
    with pytest.raises(GearError, match="too slow"), time_limit(0.2, "too slow"):
        time.sleep(30)
    with pytest.raises(GearError, match="busy"), time_limit(0.2, "busy"):
        while True:
            pass
    assert time.monotonic() - began < 10


def test_code_that_catches_everything_is_interrupted_again():
    def stubborn():
        for _ in range(2):
            try:
                time.sleep(30)
            except Exception:
                continue
        return "done"

    with time_limit(0.2, "too slow"):
        assert stubborn() == "done"


def test_what_is_quick_leaves_nothing_behind():
    handler, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    with time_limit(30, "outer"), time_limit(0.001, "inner"):
        time.sleep(0.01)
    assert signal.getsignal(signal.SIGALRM) is handler
    left = signal.getitimer(signal.ITIMER_REAL)[0]
    assert left == timer[0] == 0 or timer[0] - 10 < left <= timer[0], "an alarm of somebody else's goes on"


def test_an_event_loop_does_not_wait_for_a_thread_that_hangs():
    held, ticks = threading.Event(), []

    def work(seconds):
        with time_limit(0.2, "the reply is too slow"):
            held.wait(seconds)
        return seconds

    async def tick():
        while len(ticks) < 1000:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.01)

    async def play():
        others = asyncio.create_task(tick())
        try:
            assert await in_executor(work, 0.01) == 0.01
            with pytest.raises(ZeroDivisionError):
                await in_executor(lambda: 1 / 0)
            with pytest.raises(GearError, match="the reply is too slow"):
                await in_executor(work, 30)
        finally:
            others.cancel()
            held.set()

    began = time.monotonic()
    asyncio.run(play())
    assert time.monotonic() - began < 10 and len(ticks) > 10, "other rollouts went on"


def test_a_thread_that_hangs_is_left_behind():
    held = threading.Event()

    def work(item):
        with time_limit(0.2, f"item {item} is too slow"):
            held.wait(30 if item == 2 else 0.01)
        return item

    began = time.monotonic()
    with pytest.raises(GearError, match="item 2 is too slow"):
        list(in_threads(work, range(4), 2))
    held.set()
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("most", [1, 3])
def test_results_are_in_order_and_errors_are_raised(most):
    assert in_order(lambda n: (time.sleep(0.01 * (5 - n)), n)[1], range(5), most) == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError):
        in_order(lambda n: 1 // n, [1, 0, 1], most)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's memory")
def test_memory_is_limited_inside_only():
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(GearError, match="too much"), memory_limit(2**28, "too much"):
        bytearray(2**29)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert len(bytearray(2**29)) == 2**29
