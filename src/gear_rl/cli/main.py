"""The command `gear`: finds the subcommand, runs it, and turns errors that a user can fix into one line and exit code 2."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
import traceback
from typing import NoReturn

from gear_rl import __version__
from gear_rl.cli import EXTRA_OF
from gear_rl.errors import GearError, unknown_name

COMMANDS = {
    "init": "write a folder to start from, for your own data or your own environment",
    "train": "train an agent; with no arguments, the embedded model on the embedded task",
    "warmstart": "teach a model a task's form by its reference answers, before training",
    "eval": "score a model on a task, sampled and greedy, with intervals",
    "credit": "assign credit to saved rollouts with any method",
    "compare": "methods × seeds on one task: paired intervals, controls, headroom",
    "audition": "before training: what task, model and hint offer to each method",
    "localize": "how well each signal and method finds the first wrong step",
    "report": "one self-contained HTML page: where the credit went",
    "tasks": "what tasks there are, their splits and options",
    "methods": "what methods there are, what each needs and costs",
    "plan": "memory and time of a step, for a model and GPUs of your choice",
    "completion": "let your shell complete commands, options, methods and tasks",
    "doctor": "versions, devices, self-checks: what to paste in a bug report",
}
SHOW_TRACEBACK = "show the traceback of errors"
BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 2, 128 + signal.SIGINT, 141


class Parser(argparse.ArgumentParser):
    """Usage errors are errors like all others: one line, and where to read more."""

    def error(self, message: str) -> NoReturn:
        raise GearError(f"{message}. See `{self.prog} --help`.")


def build_parser(argv: list[str]) -> Parser:
    """The parser; only commands that `argv` mentions are imported, so `gear --help` stays quick."""
    parser = Parser("gear", description="Credit assignment for RL of LLM agents.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"gear {__version__}")
    parser.add_argument("--debug", action="store_true", help=SHOW_TRACEBACK)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        description = summary[0].upper() + summary[1:] + "."
        sub = subparsers.add_parser(name, help=summary, description=description, allow_abbrev=False)
        if name in argv:
            module = importlib.import_module(f"gear_rl.cli.{name}")
            module.add_arguments(sub)
            # SUPPRESS: without it, the subcommand's default would overwrite a --debug that stands before its name.
            sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=SHOW_TRACEBACK)
            sub.set_defaults(run=module.run, parser=sub)
    return parser


def parse(argv: list[str]) -> argparse.Namespace:
    """`argv` understood, or a GearError with the nearest thing that would have been."""
    parser = build_parser(argv)
    for word in argv:
        if word in COMMANDS:
            break
        if not word.startswith("-"):
            raise unknown_name("command", word, COMMANDS)
        if word not in parser._option_string_actions:
            raise GearError(f"unknown option {word!r}. Options of a command follow its name: gear train --seed 1.")
    args, unknown = parser.parse_known_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        raise SystemExit(BAD_INPUT)
    if unknown:
        options = [word.split("=")[0] for word in unknown if word.startswith("-")]
        if not options:
            args.parser.error(f"too many arguments: {' '.join(unknown)}")
        raise unknown_name("option", options[0], [o for o in args.parser._option_string_actions if o.startswith("--")])
    return args


def main(argv: list[str] | None = None) -> int:
    """Run `gear`; the exit code. 0 done, 1 a check failed, 2 bad input, 130 interrupted."""
    argv = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without "τ" shows "?", instead of ending the run
    try:
        args = parse(argv)
        code = args.run(args)
        sys.stdout.flush()  # here, so that a closed pipe is met inside this try
        return code
    except KeyboardInterrupt:
        return _complain("interrupted.", argv, INTERRUPTED, prefix="gear: ")
    except BrokenPipeError:
        # The reader left (`gear methods | head`). Nothing is wrong; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except GearError as error:
        return _complain(str(error), argv, BAD_INPUT)
    except ModuleNotFoundError as error:
        message = _missing_module(error)
        if message is None:
            raise
        return _complain(message, argv, BAD_INPUT)
    except OSError as error:
        return _complain(_describe_os_error(error), argv, BAD_INPUT)


def _complain(message: str, argv: list[str], code: int, prefix: str = "gear: error: ") -> int:
    if "--debug" in argv:
        traceback.print_exc()
    print(f"{prefix}{message}", file=sys.stderr)
    return code


def _missing_module(error: ModuleNotFoundError) -> str | None:
    """Which extra to install; None if the module is none of ours to bring."""
    package = (error.name or "").split(".")[0].replace("_", "-")
    if package not in EXTRA_OF:
        return None
    extra = EXTRA_OF[package]
    return f"{package} is not installed: pip install 'gear-rl{f'[{extra}]' if extra else ''}'."


def _describe_os_error(error: OSError) -> str:
    if error.errno is None:  # libraries raise OSError for much else, with a message of their own
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = " Free some space; what was saved before is whole." if full else ""
    return f"{where}{(error.strerror or str(error)).lower()}.{advice}"


if __name__ == "__main__":
    from gear_rl.__main__ import gear

    gear()
