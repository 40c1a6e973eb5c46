"""The endpoint client against a real HTTP server that is down, slow, rate-limited, or talks nonsense."""

import json
import socket
import threading
import time
import tracemalloc

import pytest
from chat_server import message, serving

from gear_rl.chat.endpoint import LARGEST_ANSWER, ContextFull, Endpoint
from gear_rl.chat.tool_calls import Malformed, ToolCall, read_turn
from gear_rl.errors import GearError

ASK = [{"role": "user", "content": "hi"}]


@pytest.fixture
def server():
    with serving(lambda body: message(f"you said {body['messages'][-1]['content']}")) as server:
        yield server


def quick(server, **options):
    return Endpoint(server.url, "m", first_pause=0.01, **{"timeout": 5.0, **options})


def test_a_request_and_its_answer(server):
    quick(server).greet()
    reply = quick(server, key="secret").chat(ASK, [{"type": "function"}], temperature=0.0, max_tokens=7)
    assert reply.text == "you said hi" and not reply.cut_off and reply.tokens == 3
    sent = {"model": "m", "messages": ASK, "tools": [{"type": "function"}], "temperature": 0.0, "max_tokens": 7}
    assert server.requests == [sent] and server.headers[0]["Authorization"] == "Bearer secret"


def test_a_key_that_is_no_secret_may_be_a_word_of_the_answer():
    with serving(lambda body: message("EMPTY")) as server:
        assert quick(server, key="EMPTY").chat(ASK).text == "EMPTY"


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://a:1", "http://a:1/v1"),
        ("a:1", "http://a:1/v1"),
        ("https://a/v1/", "https://a/v1"),
        ("https://a/api/v2/chat/completions", "https://a/api/v2"),
    ],
)
def test_urls(url, base):
    assert Endpoint(url, "m").base == base


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://user:pw@a/v1", "http://a/v1?key=1"])
def test_bad_urls_are_refused(url):
    with pytest.raises(GearError, match="--endpoint"):
        Endpoint(url, "m")


@pytest.mark.parametrize(
    "trouble",
    [
        (503, "busy", {}),
        (500, "{}", {}),
        "drop",
        (200, "<html>not json</html>", {}),
        (200, '{"choices": []}', {}),
        (200, "[1]", {}),
        (200, "", {}),
        (200, "[" * 100_000, {}),
    ],
)
def test_what_may_pass_is_tried_again(server, trouble):
    server.trouble = [trouble, trouble]
    assert quick(server).chat(ASK).text == "you said hi" and len(server.requests) == 3


def test_patience_ends(server):
    server.trouble = [(503, "still \x1b[2J busy", {})] * 9
    with pytest.raises(
        GearError, match=r"HTTP 503 'still \[2J busy'; gave up after 3 attempts.*the same command"
    ) as caught:
        quick(server, retries=2).chat(ASK)
    assert "\x1b" not in str(caught.value) and len(server.requests) == 3


def test_a_rate_limit_holds_all_threads_back(server):
    endpoint = quick(server)
    server.trouble = [(429, "slow down", {"Retry-After": "0.5"})]
    endpoint_free = threading.Thread(target=endpoint.chat, args=(ASK,))
    endpoint_free.start()
    time.sleep(0.15)
    assert endpoint.chat(ASK).text == "you said hi"
    endpoint_free.join()
    first, *others = server.times
    assert len(others) == 2 and min(others) - first >= 0.45


@pytest.mark.parametrize("trouble", [30.0, "drip", "headers"])
def test_a_request_ends_at_its_deadline_whatever_the_server_sends(server, trouble):
    server.trouble = [trouble]
    began = time.monotonic()
    assert quick(server, timeout=0.5).chat(ASK).text == "you said hi"
    assert 0.4 <= time.monotonic() - began < 10


def test_a_deadline_that_is_never_met_says_so(server):
    server.trouble = ["drip"] * 2
    with pytest.raises(GearError, match=r"no answer within 0\.3 s; gave up after 2 attempts"):
        quick(server, timeout=0.3, retries=1).chat(ASK)


def test_an_endless_answer_is_cut_and_the_message_says_the_limit(server):
    server.trouble = ["body"]
    with pytest.raises(GearError, match=f"more than {LARGEST_ANSWER} bytes"):
        quick(server, timeout=60).chat(ASK)


def test_hostile_answers_to_many_threads_take_bounded_memory(server):
    """JSON of empty objects takes 24 times its size once it is parsed. Measured at an eighth of the largest answer."""
    hostile = '{"choices": [' + "{}," * (LARGEST_ANSWER // 3 // 8) + "{}]}"
    server.trouble = [(200, hostile, {})] * 2
    endpoint, errors = quick(server, retries=0, timeout=120), []

    def ask():
        try:
            endpoint.chat(ASK)
        except GearError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    tracemalloc.start()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(errors) == 2 and all("answered with no message" in error for error in errors)
    assert 100e6 < 8 * peak < 300e6, peak


def test_stop_ends_a_request_under_way(server):
    server.trouble = [30.0]
    endpoint = quick(server, timeout=60)
    threading.Timer(0.3, endpoint.stop).start()
    began = time.monotonic()
    with pytest.raises(GearError, match="stopped"):
        endpoint.chat(ASK)
    assert time.monotonic() - began < 10


def test_a_server_that_is_down():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = Endpoint(f"http://127.0.0.1:{port}", "m", retries=1, first_pause=0.01)
    with pytest.raises(GearError, match=f"127.0.0.1:{port}/v1: no connection"):
        endpoint.chat(ASK)
    with pytest.raises(GearError, match="Is the server running"):
        endpoint.greet()


@pytest.mark.parametrize(
    ("status", "says"),
    [(401, "--api-key-env"), (404, "model's name"), (400, "HTTP 400 'bad request'"), (302, "HTTP 302")],
)
def test_what_cannot_pass_stops_at_once(server, status, says):
    server.trouble = [(status, "bad request", {"Location": f"{server.url}/elsewhere"})]
    with pytest.raises(GearError, match=says):
        quick(server, key="secret").chat(ASK)
    assert len(server.requests) == 1, "neither tried again nor redirected"


def test_a_full_context_is_told_apart(server):
    server.trouble = [(400, "This model's maximum context length is 4096 tokens", {})]
    with pytest.raises(ContextFull):
        quick(server).chat(ASK)


@pytest.mark.parametrize(
    "answer", [{"choices": [{}]}, {"choices": [{"message": {"content": [1]}}]}, {"choices": ["x"]}]
)
def test_an_answer_without_a_message(answer):
    with serving(lambda body: answer) as server, pytest.raises(GearError, match="answered with no message"):
        quick(server).chat(ASK)


def test_calls_and_thoughts_become_one_text():
    calls = [
        {"id": "x1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "x2", "type": "function", "function": {"name": "g", "arguments": "{broken"}},
    ]
    answer = message(None, tool_calls=calls, reasoning_content="hm", finish_reason="tool_calls")
    with serving(lambda body: answer) as server:
        reply = quick(server).chat(ASK)
    turn = read_turn(reply.text)
    assert turn.items[0] == ToolCall("f", {"a": 1}) and isinstance(turn.items[1], Malformed) and turn.text == ""
    assert reply.text.startswith("<think>hm</think>")
    assert [c["id"] for c in reply.message["tool_calls"]] == ["x1", "x2"]


def test_calls_in_plain_text_are_set_apart_for_the_history():
    written = f"I look.\n{ToolCall('f', {'a': 1})}"
    with serving(lambda body: message(written)) as server:
        reply = quick(server).chat(ASK)
    assert reply.text == written and reply.message["content"] == "I look."
    assert json.loads(reply.message["tool_calls"][0]["function"]["arguments"]) == {"a": 1}


def test_stopping_ends_waiting(server):
    endpoint = Endpoint(server.url, "m", first_pause=30.0)
    server.trouble = [(503, "busy", {})] * 9
    threading.Timer(0.2, endpoint.stopping.set).start()
    began = time.monotonic()
    with pytest.raises(GearError, match="stopped"):
        endpoint.chat(ASK)
    assert time.monotonic() - began < 5
