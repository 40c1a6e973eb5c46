"""Files that are written whole or not at all, files that grow by whole lines, and JSON from outside."""

from __future__ import annotations

import glob
import itertools
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

from gear_rl.errors import GearError

SECONDS_TO_END = 5.0


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A scratch path to write to. It becomes `path` when the block ends, and is removed if the block raises. What killed
    processes left of theirs is removed first."""
    remove_abandoned(path.parent, path.name)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield scratch
        with open(scratch, "rb") as file:
            os.fsync(file.fileno())  # or a power cut could leave the new name without the content
        os.replace(scratch, path)
    except OSError as error:
        if error.filename is None or str(error.filename) == str(scratch):  # Python leaves it out of a failed write
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # or it would hide why nothing could be written
            scratch.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """The same for a folder: `path` must not exist, or be empty. What killed processes left of it is removed first."""
    if path.exists():
        path.rmdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent, path.name)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.partial")
    scratch.mkdir()
    try:
        yield scratch
        os.replace(scratch, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove_abandoned(folder: Path, name: str | None = None) -> None:
    """Remove the scratch files and folders in `folder` (where it exists), of all names or of `name`, whose process is gone."""
    for path in folder.glob(f".{glob.escape(name) if name else '*'}.*.partial"):
        if not _is_gone(path.name.split(".")[-2]):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _is_gone(process: str) -> bool:
    if process == str(os.getpid()):
        return True  # the same number before a restart, as in containers: we have nothing under way
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except (ValueError, PermissionError):  # not our scratch, or another user's process
        return False
    return False


def write_bytes(path: Path, content: bytes) -> None:
    """All of it or nothing: a reader never sees half a file."""
    with replacing(path) as scratch:
        scratch.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1))


LARGEST_JSON = 64 * 2**20
"""Bytes of a JSON file of a run."""
MOST_DIGITS = 300
"""Of a whole number: more do not fit a float."""


def read_json(path: Path, kind: type | tuple[type, ...] = dict, *, strict: bool = True) -> Any:
    """The value in a JSON file of a run, which is to be of `kind`. `strict`: see `parse_json`."""
    if not path.is_file():
        raise GearError(f"there is no file {path}.")
    if path.stat().st_size > LARGEST_JSON:
        raise GearError(f"{path} has {path.stat().st_size >> 20} MiB; at most {LARGEST_JSON >> 20} are read.")
    value = parse_json(path.read_bytes(), f"{path} is damaged", strict=strict)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise GearError(f"{path} is damaged: it holds {kind_of(value)}.")
    return value


def kind_of(value: Any) -> str:
    """What a JSON value is, for messages."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number") if not (isinstance(value, list) and not value) else "an empty list"


def parse_json(data: bytes | str, where: str, *, strict: bool = False) -> Any:
    """JSON of unknown origin; every failure is a GearError that says `where`. `strict`: as the standard has it, so NaN and
    infinities are none, and no key stands twice."""
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        return json.loads(text.rstrip(), parse_int=_whole, **_STRICT if strict else {})
    except json.JSONDecodeError as error:
        place = f", line {error.lineno}" if error.lineno > 1 else ""
        raise GearError(f"{where}{place}: not JSON: {error.msg} (column {error.colno}).") from None
    except RecursionError:
        raise GearError(f"{where}: not JSON: nested too deeply.") from None
    except UnicodeDecodeError:
        raise GearError(f"{where}: not JSON: not UTF-8 text.") from None
    except ValueError as error:  # a number with too many digits, or what `strict` excludes
        raise GearError(f"{where}: not JSON: {error}.") from None


def _constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def _fraction(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is given twice")
    return content


_STRICT: dict[str, Any] = {"parse_constant": _constant, "parse_float": _fraction, "object_pairs_hook": _object}


def json_lines(file: BinaryIO, path: Path, longest: int, *, strict: bool = False) -> Iterator[tuple[str, Any]]:
    """(file and line, value) of JSON Lines; blank lines are skipped, and one of more than `longest` bytes is an error."""
    for number in itertools.count(1):
        line, where = file.readline(longest + 1), f"{path}, line {number}"
        if not line:
            return
        if len(line) > longest:
            raise GearError(f"{where}: longer than {longest >> 20} MiB.")
        if line.strip():
            yield where, parse_json(line, where, strict=strict)


class Closing:
    """Something that a `with` block closes at its end."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Inside, no other process works in `folder`: one that tries is told so after a few seconds, in which the processes of one
    that was killed end. The lock ends with this process, however it ends. A file system without locks has none."""
    try:
        import fcntl
    except ImportError:  # not on every platform
        yield
        return
    handle, until = os.open(folder, os.O_RDONLY), time.monotonic() + SECONDS_TO_END
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise GearError(f"another process works in {folder}. Wait for it to end, or end it first.") from None
                time.sleep(0.1)
                continue
            except OSError:
                pass
            break
        yield
    finally:
        os.close(handle)


class LineFile(Closing):
    """A file that grows by whole lines. A killed process leaves at most its last line torn: `drop_torn_line` removes it.

    Unbuffered: what `append` has returned from survives a kill, and nothing is left to fail again on `close`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = open(path, "ab", buffering=0)  # noqa: SIM115  closed by close()

    def append(self, data: bytes) -> None:
        """All of `data` or nothing, even on a full disk or Ctrl-C."""
        before = self.size
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) :]
        except BaseException as error:
            self._file.truncate(before)
            if isinstance(error, OSError):
                error.filename = str(self.path)  # Python leaves it out of a failed write
            raise

    @property
    def size(self) -> int:
        return self._file.seek(0, os.SEEK_END)

    def is_lost(self) -> bool:
        """Whether `path` was deleted or replaced since it was opened: what is appended reaches no one."""
        try:
            return not os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return True

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def drop_torn_line(self) -> None:
        """Cut off what follows the last line end."""
        end = start = self.size
        with open(self.path, "rb") as file:
            while start > 0:
                start = max(0, start - 2**20)
                file.seek(start)
                newline = file.read(min(2**20, end - start)).rfind(b"\n")
                if newline >= 0:
                    start += newline + 1
                    break
        self._file.truncate(start)

    def lock(self) -> bool:
        """Keep other processes out until `close`. False: another one holds the lock."""
        import fcntl  # not on every platform

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._file.close()
