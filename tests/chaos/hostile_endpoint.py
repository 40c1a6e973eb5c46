"""A chat server that misbehaves for its first requests, or always, and then answers "answer yes" to whatever is asked."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable

GOOD = json.dumps({"choices": [{"message": {"role": "assistant", "content": "answer yes"}, "finish_reason": "stop"}]}).encode()


def http(body: bytes, status: str = "200 OK", length: int | None = None, more: str = "") -> bytes:
    length = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}Connection: close"
    return f"{head}\r\n\r\n".encode() + body


def _drip(connection: socket.socket) -> None:
    connection.sendall(http(b"", length=1000))
    for _ in range(600):
        connection.sendall(b" ")
        time.sleep(0.1)


def _endless_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for i in range(100_000):
        connection.sendall(f"X-{i}: {'a' * 1000}\r\n".encode())


def _huge(connection: socket.socket) -> None:
    connection.sendall(http(b"", length=2**30))
    for _ in range(2**10):
        connection.sendall(b" " * 2**20)


BEHAVIOURS: dict[str, bytes | Callable[[socket.socket], None]] = {
    "closes at once": b"",
    "is silent": lambda connection: time.sleep(60),
    "drips": _drip,
    "sends headers without end": _endless_headers,
    "sends a gigabyte": _huge,
    "is not HTTP": b"\x00\xff\x00 hello\r\n\r\n",
    "sends half": http(GOOD[:20], length=len(GOOD)),
    "sends no JSON": http(b"<html>busy</html>"),
    "nests deeply": http(b"[" * 100_000),
    "has another shape": http(b'{"choices": [{"message": 7}]}'),
    "has no choices": http(b'{"choices": []}'),
    "says a lone surrogate": http(GOOD.replace(b"answer yes", b"answer \\udc80")),
    "fails": http(b"{}", "500 Internal Server Error"),
    "is busy": http(b"{}", "429 Too Many Requests", more="Retry-After: 1\r\n"),
    "asks for an odd pause": http(b"{}", "503 Service Unavailable", more="Retry-After: nan\r\n"),
    "wants a key": http(b'{"error": "no key"}', "401 Unauthorized"),
    "sends elsewhere": http(b"", "302 Found", more="Location: http://127.0.0.1:9/\r\n"),
}


class HostileServer:
    """In a thread of this process. `bad`: requests that are met with `behaviour` before all others are answered well."""

    def __init__(self, behaviour: str | None = None, bad: int = 0) -> None:
        self.behaviour, self.bad = behaviour, bad
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += (got := connection.recv(65536))
                if not got:  # only looked whether there is a server
                    return
            head, _, body = asked.partition(b"\r\n\r\n")
            length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
            while len(body) < length and (got := connection.recv(65536)):
                body += got
            behaviour: bytes | Callable[[socket.socket], None] = http(GOOD)
            if self.behaviour is not None and self.bad > 0:
                self.bad -= 1
                behaviour = BEHAVIOURS[self.behaviour]
            if callable(behaviour):
                behaviour(connection)
            else:
                connection.sendall(behaviour)

    def close(self) -> None:
        self._socket.close()
