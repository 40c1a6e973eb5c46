"""A small OpenAI-compatible server for tests: answers by a function of the request body, misbehaves by script."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def message(content: str | None, **more: Any) -> dict[str, Any]:
    finish = more.pop("finish_reason", "stop")
    said = {"role": "assistant", "content": content, **more}
    return {"choices": [{"index": 0, "message": said, "finish_reason": finish}], "usage": {"completion_tokens": 3}}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer: Callable[[dict], dict]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.lock = answer, threading.Lock()
        self.trouble: list[Any] = []
        """What the next requests get instead: (status, body, headers), "drop", "drip" (a byte at a time for ever), "headers"
        (for ever), "body" (for ever, fast) or seconds of silence."""
        self.closing = threading.Event()
        self.requests: list[dict] = []
        self.headers: list[Any] = []
        self.times: list[float] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append(body)
            self.server.headers.append(dict(self.headers))
            self.server.times.append(time.monotonic())
            trouble = self.server.trouble.pop(0) if self.server.trouble else None
        if trouble == "drop":
            self.connection.close()
            return
        if isinstance(trouble, (int, float)):
            self.server.closing.wait(trouble)
            trouble = None
        if isinstance(trouble, str):
            self._endless(trouble)
            return
        status, text, headers = trouble or (200, json.dumps(self.server.answer(body)), {})
        data = text.encode() if isinstance(text, str) else text
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _endless(self, kind: str) -> None:
        """Until the client or the test has enough."""
        self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" if kind == "headers" else b"HTTP/1.1 200 OK\r\n\r\n")
        chunk = {"headers": b"HTTP/1.1 100 Continue\r\n\r\n", "drip": b" ", "body": b" " * 65536}[kind]
        with suppress(OSError):
            while not self.server.closing.wait(0.05 if kind != "body" else 0):
                self.wfile.write(chunk)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(answer: Callable[[dict], dict]):
    server = Server(answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
