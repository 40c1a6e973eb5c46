"""`gear report --watch`: follows a training that is running. A small server on this machine alone shows the page, rebuilds
it when the run's files change, and keeps the reader's notes in a file beside the run.

It listens on 127.0.0.1, and every address has a secret in it: other users of this machine, and pages of other sites open in
the same browser, can neither read the report nor write a note. Nothing is read from or written to disk by a name that a
request gives.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.files import parse_json
from gear_rl.records.measured import measured_path
from gear_rl.report.notes import Notes, checked_note, notes_path
from gear_rl.report.page import waiting_page
from gear_rl.report.sources import NothingRecorded, open_source
from gear_rl.training.run_folder import RunFolder

EVERY = 1.0
"""Seconds between two looks at the files. After a build that took long, twice as long as it took."""
LONGEST_REQUEST = 64 * 1024
"""Bytes of a note with its place, as JSON."""
HOSTS = ("127.0.0.1", "localhost")
HTML, JSON = "text/html; charset=utf-8", "application/json"


class Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self, port: int, notes: Notes) -> None:
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            raise GearError(f"--port {port}: {(error.strerror or str(error)).lower()}. Give another, or none.") from None
        self.secret = secrets.token_urlsafe(16)
        self.notes = notes
        self.page: bytes | None = None
        self.version = 0
        self.message = "Reading the run."
        self.changed = time.time()
        """When a file of the run last changed: one that is killed says nothing more."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{self.secret}/"

    def show(self, page: bytes) -> None:
        self.page, self.version, self.message = page, self.version + 1, ""

    def state(self) -> dict[str, Any]:
        return {"version": self.version, "message": self.message, "quiet": max(0, int(time.time() - self.changed))}


class Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 20
    """Seconds that a silent connection is kept."""

    def do_GET(self) -> None:
        match self._asked():
            case "":
                self._answer(HTML, self.server.page or waiting_page(self.server.message).encode("utf-8", "replace"))
            case "state":
                self._answer(JSON, self.server.state())
            case "notes":
                self._with_notes(self.server.notes.read)
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        if self._asked() != "notes":
            return self.send_error(HTTPStatus.NOT_FOUND)
        origin, length = self.headers.get("Origin"), self.headers.get("Content-Length", "")
        if origin != f"http://{self.headers['Host']}" or self.headers.get_content_type() != JSON:
            return self.send_error(HTTPStatus.FORBIDDEN)
        if not length.isdecimal() or int(length) > LONGEST_REQUEST:
            return self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = self.rfile.read(int(length))
        self._with_notes(lambda: self.server.notes.put(checked_note(parse_json(body, "note", strict=True), "note")))

    def _asked(self) -> str | None:
        """What follows the secret; None where the secret is not right, or the name of the host is not ours: a page that
        made its own name point to this machine would have the browser on its side."""
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        _, secret, *rest = [*self.path.split("/", 2), "", ""][:3]
        right = hmac.compare_digest(secret.encode(), self.server.secret.encode())
        return rest[0] if right and host in HOSTS else None

    def _with_notes(self, act: Callable[[], list[Any]]) -> None:
        try:
            self._answer(JSON, {"notes": [asdict(note) for note in act()]})
        except GearError as error:
            self._answer(JSON, {"error": str(error)}, HTTPStatus.CONFLICT)
        except OSError as error:  # its own words name a temporary file
            why = f"no access to {self.server.notes.path}: {(error.strerror or str(error)).lower()}"
            self._answer(JSON, {"error": why}, HTTPStatus.CONFLICT)

    def _answer(self, kind: str, content: bytes | dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """The terminal is for the training's own words."""

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):  # the page was closed while it was being sent
            super().handle()


def watch(paths: list[Path], build: Callable[[int], bytes], say: Callable[[str], None], port: int = 0) -> None:
    """Serve what `build` makes of `paths`, again after each change, until Ctrl-C. It is told the number of the page."""
    for path in paths:
        if path.is_dir():
            RunFolder.open(path)  # it may have no rollouts yet
        else:
            open_source(path, growing=True)
    server = Server(port, Notes(notes_path(paths[0])))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    seen: list[Any] | None = None
    said = ""
    try:
        say(f"following {', '.join(map(str, paths))} at {server.url} (Ctrl-C ends)")
        while True:
            now, began = _stamps(paths), time.monotonic()
            if now != seen:
                seen = now
                server.changed = max((stamp[0] / 1e9 for stamp in now if stamp), default=server.changed)
                try:
                    server.show(build(server.version + 1))
                except NothingRecorded as error:
                    server.message = str(error)
                except (GearError, OSError) as error:
                    server.message = str(error)
                    if said != server.message:
                        say(f"not rebuilt: {server.message}")
                said = server.message
            time.sleep(max(EVERY, 2 * (time.monotonic() - began)))
    except KeyboardInterrupt:
        say("ended.")
    finally:
        server.shutdown()
        server.server_close()


def _stamps(paths: list[Path]) -> list[Any]:
    """What changes when a file that the page is made from does."""
    stamps: list[Any] = []
    for path in paths:
        folder = RunFolder(path)
        files = [folder.rollouts, folder.metrics, folder.evaluation] if path.is_dir() else [path]
        for file in [*files, measured_path(files[0])]:
            try:
                found = file.stat()
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
            except OSError:
                stamps.append(None)
    return stamps
