"""A chat model behind an OpenAI-compatible endpoint: vLLM, SGLang, `transformers serve`, or a provider.

Standard library only. A request that fails for a reason that may pass (no connection, a time-out, 408, 429, 5xx, an answer
that is no JSON) is tried again with growing pauses; one that cannot succeed stops the run. A failure of the endpoint is
never taken for an answer. Whatever a server sends, a request ends at its deadline, and its answer is bounded in size.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gear_rl.chat.messages import well_formed
from gear_rl.chat.tool_calls import read_turn
from gear_rl.errors import GearError, printable

LARGEST_ANSWER = 2**22
"""Bytes of one HTTP answer. Parsed, JSON can take 25 times as much."""
LONGEST_PAUSE = 60.0
SHORTEST_KEY = 12
"""Characters of a key that is kept out of what a server says."""
MAY_PASS = (408, 409, 425, 429, 500, 502, 503, 504, 529)


@dataclass
class Reply:
    """One turn of the model."""

    text: str
    """Content, thoughts in front as <think>…</think>, structured calls behind as <tool_call>…</tool_call>: one form, the
    one that tasks read, however the server splits it."""
    message: dict[str, Any]
    """The assistant message for the history."""
    cut_off: bool
    tokens: int


class _Passing(Exception):
    """A failure that may pass; `after`: seconds the server asks for."""

    def __init__(self, problem: str, after: float = 0.0) -> None:
        super().__init__(problem)
        self.after = after


class _Call:
    """One request under way. `end` breaks off its connection, whatever it waits for: a socket's own time-out is for one read,
    and a server that sends a byte at a time, or headers without end, never meets it."""

    def __init__(self) -> None:
        self.ended, self._handles, self._lock = False, list[socket.socket](), threading.Lock()

    def connect(self, *args: Any) -> socket.socket:
        made = socket.create_connection(*args)
        with self._lock:
            self._handles.append(made.dup())  # of our own: urllib closes its socket, or wraps it in TLS
        if self.ended:
            self.end()
        return made

    def end(self) -> None:
        self.ended = True
        with self._lock:
            for handle in self._handles:
                with suppress(OSError):
                    handle.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            while self._handles:
                self._handles.pop().close()


class _Request(urllib.request.Request):
    call: _Call


def _connection(kind: Any, call: _Call, *args: Any, **kwargs: Any) -> Any:
    made = kind(*args, **kwargs)
    made._create_connection = call.connect
    return made


class _Watched:
    def do_open(self, http_class: Any, req: Any, **http_conn_args: Any) -> Any:
        return super().do_open(partial(_connection, http_class, req.call), req, **http_conn_args)  # type: ignore[misc]


class _Http(_Watched, urllib.request.HTTPHandler): ...


class _Https(_Watched, urllib.request.HTTPSHandler): ...


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None  # a key must not follow to another host


@dataclass
class Endpoint:
    """Safe to use from several threads."""

    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    timeout: float = 300.0
    """Seconds for one request, from sending it to its last byte."""
    retries: int = 6
    first_pause: float = 0.5
    named: tuple[str, str, str] = ("--endpoint", "--api-key-env", "--model")
    """What the user sets the address, the key and the model's name by: for messages."""
    stopping: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set: no request is started or tried again. `stop` also ends those under way."""

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url if "://" in self.url else f"http://{self.url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise GearError(f"{self.named[0]}: write it as http://HOST:PORT or https://HOST/v1.")
        if parts.username or parts.password or parts.query or parts.fragment:
            address, key, _ = self.named
            raise GearError(f"{address}: no user, password, query or fragment in it; name the key with {key}.")
        path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
        self.base = f"{parts.scheme}://{parts.netloc}{path}"
        self._opener = urllib.request.build_opener(_NoRedirect, _Http, _Https)
        self._free_at, self._lock, self._parsing = 0.0, threading.Lock(), threading.Lock()
        self._calls: set[_Call] = set()

    def stop(self) -> None:
        """End the requests under way, and start no more."""
        self.stopping.set()
        for call in list(self._calls):
            call.end()

    def greet(self) -> None:
        """Refuse a server that is not there at once, before anything is prepared for it."""
        parts = urllib.parse.urlsplit(self.base)
        if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(parts.netloc):
            return  # not ours to reach
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((parts.hostname or "", port), timeout=min(10.0, self.timeout)).close()
        except OSError as error:
            raise GearError(f"{self.named[0]} {self.base}: no connection ({error}). Is the server running?") from None

    def chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, **sampling: Any) -> Reply:
        """The model's next message. `sampling`: temperature, max_tokens, seed, … as the API names them."""
        body = {"model": self.model, "messages": messages, **({"tools": tools} if tools else {}), **sampling}
        return self._post("/chat/completions", body)

    def _post(self, path: str, body: dict[str, Any]) -> Reply:
        """What the server answers; patient by the rules above."""
        data = json.dumps(body).encode()
        for attempt in range(self.retries + 1):
            self._wait()
            try:
                return self._once(path, data)
            except _Passing as problem:
                if attempt == self.retries:
                    raise GearError(
                        f"{self.base}: {problem}; gave up after {attempt + 1} attempts. What was sampled is kept: the same "
                        "command goes on from there."
                    ) from None
                pause = min(LONGEST_PAUSE, self.first_pause * 2**attempt) * random.uniform(0.5, 1.0)
                self._delay(max(pause, min(LONGEST_PAUSE, problem.after)), everyone=problem.after > 0)
        raise AssertionError("unreachable")

    def _wait(self) -> None:
        while not self.stopping.is_set() and (left := self._free_at - time.monotonic()) > 0:
            self.stopping.wait(left)
        if self.stopping.is_set():
            raise GearError(f"{self.base}: stopped.")

    def _delay(self, seconds: float, everyone: bool) -> None:
        """A server that says how long to wait is left alone by all threads."""
        if everyone:
            with self._lock:
                self._free_at = max(self._free_at, time.monotonic() + seconds)
        else:
            self.stopping.wait(seconds)

    def _once(self, path: str, data: bytes) -> Reply:
        text = self._bytes(path, data)
        with self._parsing:  # one at a time: a hostile answer takes its memory once, not once a thread
            try:
                answer = well_formed(json.loads(text))
            except (ValueError, RecursionError):
                raise _Passing(f"the answer is no JSON: {_shown(text)}") from None
            if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list) or not answer["choices"]:
                raise _Passing(f"the answer holds no choices: {_shown(text)}")
            try:
                return _reply(answer)
            except (KeyError, IndexError, TypeError, AttributeError, ValueError):
                raise GearError(f"{self.base} answered with no message: {_shown(text)}.") from None

    def _bytes(self, path: str, data: bytes) -> bytes:
        """The body of the answer, whole and in time."""
        headers = {"Content-Type": "application/json", "User-Agent": "gear-rl"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = _Request(self.base + path, data, headers)
        request.call = call = _Call()
        timer = threading.Timer(self.timeout, call.end)
        timer.daemon = True
        timer.start()
        self._calls.add(call)
        text, problem = b"", ""
        try:
            with self._opener.open(request, timeout=self.timeout) as response:
                text = self._read(response)
        except urllib.error.HTTPError as error:
            self._refused(error)
        except urllib.error.URLError as error:
            problem = f"no connection ({error.reason})"
        except TimeoutError:
            call.ended = True
        except (http.client.HTTPException, OSError) as error:
            problem = f"the connection broke ({type(error).__name__})"
        finally:
            timer.cancel()
            self._calls.discard(call)
            call.close()
        if call.ended or problem:
            raise _Passing(f"no answer within {self.timeout:g} s" if call.ended else problem)
        return self._without_key(text)

    def _without_key(self, data: bytes) -> bytes:
        """A server may repeat the key that it was sent; what it says ends up in messages and files. Short ones ("EMPTY", for
        servers that want some key) are no secrets, and may be words of an answer."""
        return data.replace(self.key.encode(), b"[key]") if self.key and len(self.key) >= SHORTEST_KEY else data

    def _read(self, response: Any) -> bytes:
        parts, size = [], 0
        while chunk := response.read1(65536):
            parts.append(chunk)
            size += len(chunk)
            if size > LARGEST_ANSWER:
                raise GearError(f"{self.base}: an answer of more than {LARGEST_ANSWER} bytes.")
        return b"".join(parts)

    def _refused(self, error: urllib.error.HTTPError) -> None:
        try:
            body = self._without_key(error.read(4096))
        except (OSError, http.client.HTTPException):
            body = b""
        said = body.decode(errors="replace")
        problem = f"HTTP {error.code} {_shown(body) if said.strip() else error.reason}"
        if error.code in MAY_PASS:
            raise _Passing(problem, _seconds(error.headers.get("Retry-After"))) from None
        if error.code in (400, 413, 422) and "context" in said.lower() and "length" in said.lower():
            raise ContextFull(f"{self.base}: {problem}.") from None
        _, key, model = self.named
        hints = {401: f" Give the key with {key}.", 404: f" Is the model's name right ({model})?"}
        raise GearError(f"{self.base}: {problem}.{hints.get(error.code, '')}") from None


class ContextFull(GearError):
    """The dialogue no longer fits the model's context."""


def _reply(answer: dict[str, Any]) -> Reply:
    choice = answer["choices"][0]
    message = choice["message"]
    content, calls = message.get("content") or "", message.get("tool_calls") or []
    if not isinstance(content, str):
        raise TypeError
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    text = f"<think>{thought}</think>\n{content}" if isinstance(thought, str) and thought else content
    history: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        # Written as they came: arguments that are no JSON must reach the task's parser as what they are.
        written = [{"name": c["function"]["name"], "arguments": c["function"].get("arguments") or "{}"} for c in calls]
        text += "".join(f"\n<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in written)
        history["tool_calls"] = [
            {"id": c.get("id") or f"call_{i}", "type": "function", "function": call}
            for i, (c, call) in enumerate(zip(calls, written, strict=True))
        ]
    elif (turn := read_turn(content)).calls:  # a server without a parser for calls: its template wants them apart
        history["content"] = turn.text
        history["tool_calls"] = [
            {"id": f"call_{i}", "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for i, c in enumerate(turn.calls)
        ]
    usage = answer.get("usage") or {}
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return Reply(text, history, choice.get("finish_reason") == "length", tokens if isinstance(tokens, int) else 0)


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header or 0))
    except ValueError:  # a date
        return 5.0


def _shown(data: bytes) -> str:
    """Foreign text in a message of ours: one line, short, nothing that steers a terminal."""
    return repr(" ".join(printable(data[:4096].decode(errors="replace"), " ").split())[:200])
