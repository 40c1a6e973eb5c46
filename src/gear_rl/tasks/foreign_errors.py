"""What a user's task raises, said with the task's and the method's name; the user's own traceback stays chained to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from gear_rl.errors import GearError, one_line

METHODS = ("rows", "episode", "judge", "verdict", "reference", "empty", "demonstration")
_thread = threading.local()


@contextmanager
def named(task: Any, what: str) -> Iterator[None]:
    """Around a call of `task`: what it raises becomes a GearError. Within another call of it nothing changes, so that a
    task's methods can catch what its others raise."""
    if getattr(_thread, "inside", False):
        yield
        return
    _thread.inside = True
    try:
        yield
    except GearError:
        raise
    except (Exception, SystemExit) as error:  # sys.exit() in a task must not end the run without a word
        raise GearError(f"task {type(task).__name__}: {what} raised {one_line(error)}.") from error
    finally:
        _thread.inside = False


def naming(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a task, under `named`."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with named(self, f"`{method.__name__}`"):
            return method(self, *args, **kwargs)

    return call
