"""Commands and scripts in a forked child of the test: processes of their own, which can be killed, without ten seconds of
imports. Some test of each command starts a fresh interpreter, as a user does; the others use this.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gear_rl.cli.main import main


class Forked:
    """`gear` with these words, under way. `before` is called in the child first: where a fault is set up."""

    def __init__(self, words: Sequence[str], before: Callable[[], None] | None = None) -> None:
        importlib.import_module("gear_rl.training.trainer")  # here, and so once for all children
        self._said = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115
        self.words, self._before = [str(word) for word in words], before
        self._process = multiprocessing.get_context("fork").Process(target=self._live)
        self._process.start()

    def _live(self) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(self._said, start=1):
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False, buffering=1) for number in (1, 2))  # noqa: SIM115
        if self._before is not None:
            self._before()
        self._run()

    def _run(self) -> None:
        sys.exit(main(self.words))

    def running(self) -> bool:
        return self._process.is_alive()

    def signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, seconds: float = 200) -> subprocess.CompletedProcess[str]:
        self._process.join(seconds)
        if self._process.is_alive():
            self.kill()
            raise subprocess.TimeoutExpired(self.words, seconds)
        texts = []
        for file in self._said:
            file.seek(0)
            texts.append(file.read())
            file.close()
        assert self._process.exitcode is not None
        return subprocess.CompletedProcess(self.words, self._process.exitcode, *texts)


class ForkedScript(Forked):
    """`python SCRIPT ARGUMENTS`."""

    def _run(self) -> None:
        sys.argv = self.words
        sys.path.insert(0, str(Path(self.words[0]).parent))
        runpy.run_path(self.words[0], run_name="__main__")


def killed_at_rename(name: str, time: int = 1) -> Callable[[], None]:
    """A fault: SIGKILL just before something is renamed to `name` for the n-th time."""

    def set_up() -> None:
        left, rename = time, os.replace

        def replace(source: Any, target: Any, **given: Any) -> None:
            nonlocal left
            if Path(target).name == name:
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
            rename(source, target, **given)

        os.replace = replace

    return set_up


def fork_workers() -> None:
    """Worker processes are forked too: a fork server would import everything once more."""
    get_context = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: get_context("fork" if method else None)
