"""`gear report`: where the credit went, as one self-contained HTML page; or as PNG, SVG or JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gear_rl.cli.arguments import COUNT, check_out
from gear_rl.errors import GearError, printable, unknown_name
from gear_rl.files import write_bytes
from gear_rl.options import argument

if TYPE_CHECKING:
    from gear_rl.report import Collection

FORMATS = ("html", "png", "svg", "json")
PICTURES = ("png", "svg")
PORT = argument(int, at_least=0, at_most=65535)
COLOURS = ("advantage", "weight", "reverse_kl", "entropy", "gap", "decision")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", type=Path, nargs="+", help="a run's folder, or a record; several of one task are aligned"
    )
    parser.add_argument(
        "-o", "--out", metavar="OUT", type=Path, help="the file (report.html in the first RUN); - prints JSON"
    )
    parser.add_argument("--format", metavar="FORMAT", default="html", help="html, png, svg or json")
    parser.add_argument(
        "--group", metavar="STEP/GROUP", help="open with this group; a picture shows it (the most telling one)"
    )
    parser.add_argument("--colour", metavar="NAME", default="advantage", help=f"colour tokens by {', '.join(COLOURS)}")
    parser.add_argument(
        "--rollouts",
        metavar="N",
        type=COUNT,
        default=1000,
        help="hold at most N rollouts of each run, in whole groups (1000)",
    )
    parser.add_argument(
        "--watch", action="store_true", help="follow a running training on a page of this machine, until Ctrl-C"
    )
    parser.add_argument("--port", metavar="PORT", type=PORT, default=0, help="the port of --watch (a free one)")
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")


def run(args: argparse.Namespace) -> int:
    if args.format not in FORMATS:
        raise unknown_name("format", args.format, FORMATS)
    wanted = _group(args.group)
    if args.watch:
        return _watch(args, wanted)
    if args.port:
        raise GearError("--port is the port of --watch; give that too.")
    out = _out(args)
    if args.format in PICTURES:
        from gear_rl.report.figure import find_browser

        find_browser()  # before the long work, not after it

    from gear_rl.report import collect, html_page, open_source, summary
    from gear_rl.report.notes import Notes, notes_path

    sources, notes = [open_source(path) for path in args.runs], Notes(notes_path(args.runs[0])).read()
    collection = collect(sources, args.rollouts)
    _check_wishes(collection, wanted, args.colour)
    if args.format == "json":
        text = json.dumps(summary(collection), indent=1) + "\n"
        if out is None:
            sys.stdout.write(text)
            return 0
        content = text.encode()
    else:
        # A lone surrogate has no UTF-8; in the page all model output is escaped ASCII, so only a title can hold one.
        content = html_page(collection, group=wanted, colour=args.colour, notes=notes).encode("utf-8", "replace")
    assert out is not None
    if args.format in PICTURES:
        from gear_rl.report.figure import draw

        content = draw(content, args.format)
    write_bytes(out, content)
    print(_described(collection, out, len(content)))
    return 0


def _watch(args: argparse.Namespace, wanted: tuple[int, int] | None) -> int:
    if args.out is not None or args.format != "html":
        raise GearError("--watch writes no file and shows HTML; leave out --out and --format.")
    from gear_rl.report import collect, html_page, open_source
    from gear_rl.report.watch import watch

    def build(version: int) -> bytes:
        collection = collect([open_source(path, growing=True) for path in args.runs], args.rollouts)
        _check_wishes(collection, wanted, args.colour)
        return html_page(collection, group=wanted, colour=args.colour, live=version).encode("utf-8", "replace")

    watch(args.runs, build, say=lambda line: print(f"gear report: {printable(line)}", flush=True), port=args.port)
    return 0


def _group(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    step, slash, group = text.partition("/")
    if not (slash and step.isdecimal() and group.isdecimal()):
        raise GearError(f"--group {text!r}: must be STEP/GROUP, such as 10/0.")
    return int(step), int(group)


def _out(args: argparse.Namespace) -> Path | None:
    """Where to write; None: standard output."""
    if args.out == Path("-"):
        if args.format != "json":
            raise GearError(f"only JSON is printed; give the {args.format} a file with --out.")
        return None
    first = args.runs[0]
    if args.out is not None:
        out = args.out
    elif first.is_dir():
        out = first / f"report.{args.format}"
    else:
        out = first.with_suffix(f".{args.format}")
    if any(out.exists() and path.exists() and out.samefile(path) for path in args.runs):
        raise GearError(f"{out} is a record being read; write the report elsewhere.")
    if first.exists():  # if not, that is what is said
        check_out(out, args.force)
    return out


def _check_wishes(collection: Collection, group: tuple[int, int] | None, colour: str) -> None:
    known = {*COLOURS, *(name.removeprefix("signal ") for name in collection.scales if name.startswith("signal "))}
    if colour not in known:
        raise unknown_name("colour", colour, known)
    if group is not None and group not in collection.keys:
        steps = sorted({step for step, _ in collection.keys})
        listed = ", ".join(map(str, steps[:8])) + (", …" if len(steps) > 8 else "")
        raise GearError(f"--group {group[0]}/{group[1]} is not among the groups shown. Their steps: {listed}.")


def _described(collection: Collection, out: Path, size: int) -> str:
    lines = []
    for run in collection.runs:
        shown = sum(map(len, run.groups.values()))
        some = "" if shown == run.rollouts else f", {shown} of them shown"
        lines.append(f"{printable(run.source.name)}: {run.rollouts} rollouts of {len(run.steps)} steps{some}")
    return "\n".join([*lines, f"written to {out} ({size / 1e6:.1f} MB)"])
