"""The process `gear`, from its first line to its last: whenever Ctrl-C comes, it ends with one line and exit code 130.

Nothing is imported before the `try`, so that a Ctrl-C while modules load is answered too. `gear_rl.cli.main.main` is the
command without the process, for tests and notebooks: it leaves signals alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sys
    from types import FrameType


def gear() -> None:
    """Run `gear` with the words of the command line. Raises SystemExit."""
    try:
        import signal
        import sys

        heard = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # nohup has it ignored, and it stays so
        if heard:
            signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _unraisable
        try:
            from gear_rl.cli.main import main

            sys.exit(main())
        finally:
            # The command has ended and its files are written. Left are exit hooks of other libraries (torch's take a tenth
            # of a second), and an interrupt raised in them would print a traceback.
            if heard:
                signal.signal(signal.SIGINT, _end_at_once)
    except KeyboardInterrupt:  # while modules were loaded, or while `main` described an error
        _end_at_once()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """While a module loads, nothing is under way that an exception could save, and C++ that loads torch aborts on one."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _end_at_once()
        frame = frame.f_back
    raise KeyboardInterrupt


def _end_at_once(*_: object) -> None:
    import os

    os.write(2, b"gear: interrupted.\n")
    os._exit(130)


def _unraisable(what: sys.UnraisableHookArgs) -> None:
    """Where no one can catch it, as in a weakref's callback, Python would print the interrupt's traceback and go on."""
    import sys

    if issubclass(what.exc_type, KeyboardInterrupt):
        _end_at_once()
    sys.__unraisablehook__(what)


if __name__ == "__main__":
    gear()
