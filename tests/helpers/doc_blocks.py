"""The fenced code blocks of a Markdown page, and how a test runs them.

```bash                                  commands, one a line (a backslash goes on); run in the page's own folder
```bash title="Not run in the tests: needs a GPU"  marked: not run, and the reader sees why
<!-- test: --set train.steps=2 -->       on the line before a fence: appended to each `gear` command, to keep it short
```python                                run in the page's one namespace
```python title="my_task.py"             also written to that file, as are json, jsonl and toml blocks with a file's name
```text title="Output"                   what the block before it prints, character for character
```json, ```toml                         must parse
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"(?:^<!-- test: (?P<extra>.*?) -->\n)?^(?P<indent> *)```(?P<lang>\w*)(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$",
    re.M | re.S,
)
_TITLE = re.compile(r'title="([^"]*)"')
NOT_RUN = "Not run in the tests: "
QUIET = ("", "text", "diff", "console")
"""Languages without a meaning for a test: drawings, listings, output. `diff` has a test of its own."""


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    extra: list[str]
    """Arguments that a test appends to each `gear` command."""
    body: str
    line: int

    @property
    def is_marked(self) -> bool:
        return self.title.startswith(NOT_RUN)


def blocks_of(text: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(text):
        title = _TITLE.search(match["info"])
        body = re.sub(f"^{match['indent']}", "", match["body"], flags=re.M)
        line = text[: match.start("lang")].count("\n") + 1
        found.append(Block(match["lang"], title[1] if title else "", shlex.split(match["extra"] or ""), body, line))
    return found


def commands(body: str) -> list[list[str]]:
    """The commands of a bash block, comments cut off."""
    lines = body.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


class PageRun:
    """Runs the blocks of one page in order: one namespace, one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.printed = folder, ""
        self.module = sys.modules["documentation_page"] = types.ModuleType(
            "documentation_page"
        )  # classes look for theirs
        (folder / "examples").symlink_to(ROOT / "examples")

    def run(self, block: Block) -> None:
        if block.language == "text" and block.title == "Output":
            assert block.body == self.printed, f"line {block.line}: the block before it prints\n{self.printed}"
        if block.is_marked or block.language in QUIET:
            return
        if re.fullmatch(r"[\w./-]+\.(py|jsonl?|toml)", block.title):
            (self.folder / block.title).write_text(block.body)
        getattr(self, f"_{block.language}")(block)

    def _python(self, block: Block) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.chdir(self.folder):
            exec(compile(block.body, f"line {block.line}", "exec"), vars(self.module))
        self.printed = out.getvalue()

    def _json(self, block: Block) -> None:
        with contextlib.suppress(json.JSONDecodeError):
            json.loads(block.body)
            return
        decoder, rest = json.JSONDecoder(), block.body.strip()
        while rest:  # several values, one after the other
            _, end = decoder.raw_decode(rest)
            rest = rest[end:].strip()

    def _toml(self, block: Block) -> None:
        tomllib.loads(block.body)

    def _bash(self, block: Block) -> None:
        self.printed = ""
        for words in commands(block.body):
            code, out = self._command(words, block.extra)
            self.printed += out
            assert code == 0, f"line {block.line}: {shlex.join(words)} ends with {code}:\n{out[-2000:]}"

    def _command(self, words: list[str], extra: list[str]) -> tuple[int, str]:
        if words[0] == "gear":
            return self._gear(words[1:] + extra)
        if words[0] == "make":  # what it would do: its targets' commands have tests of their own
            words = ["make", "-n", "-C", str(ROOT), *words[1:]]
        words = [sys.executable if words[0] == "python" else words[0], *words[1:]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def _gear(self, argv: list[str]) -> tuple[int, str]:
        """In this process: importing torch and TRL again for each command would take most of the time."""
        from gear_rl.cli.main import main

        path, modules, out = list(sys.path), set(sys.modules), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), contextlib.chdir(self.folder):
                code = main(argv)
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.path[:] = path
            for name in set(sys.modules) - modules:  # a task from the page's folder, not the libraries it brought in
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(self.folder)):
                    del sys.modules[name]
        return code, out.getvalue()
