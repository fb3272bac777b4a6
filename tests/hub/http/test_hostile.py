"""What a client may send by mistake or by malice: refused in our format, never a failure."""

import contextlib
import http.client
import json
import logging
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_websocket

from bullpen.component import connection
from bullpen.component import guard as shared_guard
from bullpen.engines.hooks import refusal
from bullpen.hub import quotas
from bullpen.model.quota import Limit
from tests.hub.http.agents import token_of
from tests.hub.http.http import Answer, Client, ask, connect, raw
from tests.hub.http.inside import Inside
from tests.hub.http.table import TABLE
from tests.waiting import quiet_for, wait_until

pytestmark = pytest.mark.slow

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_failed(inside: Inside, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After every test: the hub serves, and had to log no failure."""
    with caplog.at_level(logging.WARNING):
        yield
    assert ask(inside.socket, "GET", "/status").status == 200
    failures = [r for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info]
    assert not failures, [(r.name, r.getMessage()) for r in failures]


def is_ours(answer: Answer) -> bool:
    """One of our errors, whole."""
    return answer.status < 500 and {"error", "message", "details"} == set(answer.json)


def parsed(data: bytes) -> tuple[int, dict[str, object]]:
    """Status and JSON of an answer as it came."""
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)


def read_answer(talk: socket.socket) -> tuple[int, dict[str, object]]:
    """Status and JSON of the next answer, in however many pieces it comes."""
    answer = http.client.HTTPResponse(talk)
    answer.begin()
    return answer.status, json.loads(answer.read())


# ── sizes ──


def test_b6_a_body_is_capped_by_its_length(inside: Inside) -> None:
    hooks = "/agents/amy/hooks"
    assert ask(inside.socket, "POST", hooks, body=b"x" * (8 * MIB)).status == 200
    assert ask(inside.socket, "POST", hooks, body=b"x" * (8 * MIB + 1)).status == 413
    for length in (8 * MIB + 1, 10**15, 2**64 - 1):
        head = f"POST {hooks} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        with connect(inside.socket) as talk:
            talk.sendall(head.encode())  # and nothing else: the answer does not wait for it
            status, error = read_answer(talk)
        assert (status, error["error"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("method", "path"),
    sorted(
        {
            (method, path)
            for (method, path), rights in TABLE.items()
            if rights.body is not None and rights.owner != 403
        }
    ),
)
def test_b6_a_body_in_chunks_is_capped(inside: Inside, method: str, path: str) -> None:
    sent = 0
    with connect(inside.socket) as talk:
        asked = path.format(name="amy", id=1)
        head = f"{method} {asked}?ask=12345678 HTTP/1.1\r\nHost: x\r\n"
        head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        talk.sendall(head.encode())
        while sent <= 8 * MIB:
            talk.sendall(b"10000\r\n" + b"[" * 65536 + b"\r\n")
            sent += 65536
        status, error = read_answer(talk)
        assert (status, error["error"]) == (413, "too_large")


def test_b6_without_the_cap_the_body_is_taken(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_guard, "BODY_BYTES", 1 << 40)
    body = b"x" * (8 * MIB + 1)
    assert ask(inside.socket, "POST", "/agents/amy/hooks", body=body).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Long": "x" * 70_000},
        {f"X-{number}": "x" for number in range(200)},
        {"Authorization": "Bearer " + "x" * 70_000},
    ],
    ids=["long", "many", "token"],
)
def test_b6_a_head_is_capped(inside: Inside, headers: dict[str, str]) -> None:
    answer = ask(inside.port, "GET", "/status", headers)
    assert (answer.status, answer.json["error"]) == (431, "too_large")
    assert is_ours(answer)


def test_b6_a_path_is_capped(inside: Inside) -> None:
    assert ask(inside.port, "GET", "/" + "x" * 70_000).status == 431


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nX: "])
def test_b6_a_head_without_an_end_is_cut_off(inside: Inside, start: bytes) -> None:
    with connect(inside.port) as talk:
        talk.sendall(start)
        try:
            for _ in range(1000):
                talk.sendall(b"x" * 65536)
            received = talk.recv(1 << 16)  # one that is not cut off waits here until it fails
        except (BrokenPipeError, ConnectionResetError):
            received = b""  # in the middle of what it sends, it may not get to see the answer
        assert not received or parsed(received)[0] in (400, 431)


def test_b6_without_the_cap_the_head_is_taken(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_BYTES", 1 << 40)
    monkeypatch.setattr(connection, "HEADERS", 1 << 40)
    many = {f"X-{number}": "x" * 1000 for number in range(200)}
    assert ask(inside.socket, "GET", "/status", many).status == 200


# ── slowness ──


@pytest.mark.storm
def test_b6_slow_bodies_hold_nobody_up(inside: Inside) -> None:
    with contextlib.ExitStack() as stack:
        talks = [stack.enter_context(connect(inside.socket)) for _ in range(100)]
        head = b"POST /agents/amy/hooks HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n"
        for talk in talks:
            talk.sendall(head + b'{"hook_event_nam')
        for _ in range(20):
            assert ask(inside.socket, "GET", "/status").status == 200
            assert ask(inside.socket, "POST", "/agents/amy/hooks", body={}).status == 200
        for talk in talks:
            talk.sendall(b'e":1')
        assert all(talk.recv(20).startswith(b"HTTP/1.1 200") for talk in talks)


def test_b6_a_slow_head_ends(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 2.0)  # by then half of it has come
    with connect(inside.port) as silent, connect(inside.port) as slow:
        slow.sendall(b"GET /status HTTP/1.1\r\nHo")
        status, error = read_answer(slow)
        assert (status, error["error"]) == (408, "timeout")
        assert error["details"] == {"retryable": True}
        assert silent.recv(1) == b""  # nothing was asked, nothing is answered


def test_b6_the_deadline_of_a_head_is_not_that_of_an_answer(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(Client(inside.socket)) as client:
        with monkeypatch.context() as patch:
            patch.setattr(connection, "HEAD_SECONDS", 2.0)
            stream = client.begin("GET", "/events/stream?after=0", {})
        quiet_for(2.5)
        for _ in range(10):
            assert ask(inside.socket, "POST", "/agents/amy/hooks", body={}).status == 200
        number = len(ask(inside.socket, "GET", "/events?limit=1000").json["events"])
        received = b""
        while received.count(b"data:") < number:
            received += stream.read1()


# ── contents ──

BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "not UTF-8": b'{"cwd": "\xff\xfe"}',
    "NUL": b'{"cwd": "/\\u0000"}',
    "a raw NUL": b'{"cwd": "/\x00"}',
    "half a surrogate": b'{"cwd": "/\\ud800", "words": ["\\udfff"], "env": {"\\ud800": "x"}}',
    "half a surrogate as a key": b'{"\\ud800": 1, "cwd": "/"}',
    "a deep list": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000,
    "a deep list in a field": b'{"cwd": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a huge number": b'{"rows": ' + b"9" * 5000 + b', "cwd": "/"}',
    "a large number": b'{"rows": 1e400, "cols": 99999999999999999999, "cwd": "/"}',
    "no number": b'{"rows": NaN, "cols": Infinity, "older_than_seconds": NaN, "pid": NaN}',
    "an endless number": b'{"older_than_seconds": Infinity, "text": -Infinity}',
    "a list": b"[]",
    "null": b"null",
    "a string": b'"x"',
    "twice the same key": b'{"cwd": 1, "cwd": 2}',
    "unknown keys": json.dumps({f"k{n}": n for n in range(5000)}).encode(),
    "another encoding": '{"cwd": "/"}'.encode("utf-16"),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("content", ["application/json", "text/plain", "", "application/x+json"])
def test_b5_bodies_that_do_not_fit(inside: Inside, content: str, body: bytes) -> None:
    for path in ("/agents", "/pods", "/gc", "/components", "/agents/amy/input"):
        answer = ask(inside.socket, "POST", path, {"Content-Type": content}, body)
        assert is_ours(answer), (path, answer)
        assert answer.status == 400
        assert answer.json["error"] == "validation_error"
        assert len(answer.body) < 20_000


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_b5_a_hook_is_taken_whatever_is_in_it(inside: Inside, body: bytes) -> None:
    assert ask(inside.socket, "POST", "/agents/amy/hooks", body=body).status == 200


def test_b5_half_a_surrogate_in_a_hook_spoils_nothing(inside: Inside) -> None:
    for event, tool in (("PreToolUse", "\ud800"), ("Stop", "x"), ("\udfff", "\ud800")):
        hook = {"hook_event_name": event, "tool_name": tool, "prompt": "\ud800", "source": "\udfff"}
        assert ask(inside.socket, "POST", "/agents/bob/hooks", body=hook).status == 200
    for target in ("/events?limit=1000", "/agents", "/agents/bob", "/agents/bob/explain"):
        for text in ("", "&text=1" if "?" in target else "?text=1"):
            assert ask(inside.socket, "GET", target + text).status == 200


@pytest.mark.parametrize("text", ["\ud800", "\udc00x", "x\udfff"])
def test_b5_half_a_surrogate_is_not_typed(inside: Inside, text: str) -> None:
    answer = ask(inside.socket, "POST", "/agents/amy/input", body={"text": text})
    assert (answer.status, is_ours(answer)) == (400, True)


TARGETS = (
    *("/agents/%ff", "/agents/%00", "/agents/%ud800", "/agents/%ED%A0%80", "/agents/%", "/agents/"),
    *("/agents/..", "/agents/../../etc/passwd", "/agents/%2e%2e%2fx", "//agents", "/agents//amy"),
    *("/agents?pod=%ff%fe", "/agents?pod=%00", "/agents?pod=%ED%A0%80", "/agents?%ff=%ff&&&=&=="),
    *("/agents?text=maybe", "/agents?pod=" + "x" * 2000, "/events?after=-1", "/events?after=1e9"),
    *("/events?after=99999999999999999999", "/events?limit=0", "/events?limit=" + "9" * 5000),
    *("/events?after=%D9%A3", "/events?agent=%00", "/events?after=%00", "/pods/%ff", "/nowhere"),
    *("/events/stream?after=x", "/status?text=%00", "/openapi.json?x=%ff", "/docs?%ff", "/docs/"),
    *("/agents/" + "x" * 5000, "/agents/a%0d%0aX:y", "/status#x", "/%2e/status", "/;x", "/\\"),
)


@pytest.mark.parametrize("target", TARGETS)
def test_b5_odd_targets(inside: Inside, target: str) -> None:
    for method in ("GET", "DELETE", "POST", "PUT", "PATCH", "OPTIONS", "HEAD", "TRACE"):
        data = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = raw(inside.socket, data.encode("latin-1"))
        status = int(answer.split(b" ")[1])
        assert status < 500
        if status >= 400 and method != "HEAD":
            assert {"error", "message", "details"} == set(parsed(answer)[1])


@pytest.mark.parametrize("grace", ["nan", "inf", "-inf", "1e400", "-0.1", "x", "%00"])
def test_b5_odd_graces(inside: Inside, grace: str) -> None:
    for method, path in (
        ("DELETE", "/agents/amy"),
        ("POST", "/agents/amy/restart"),
        ("DELETE", "/pods/x"),
    ):
        answer = ask(inside.socket, method, f"{path}?grace={grace}")
        assert (answer.status, is_ours(answer)) == (400, True)


# ── what is not quite HTTP ──

RAW = {
    "nothing": b"\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "words": b"hello, is this the hub?\r\n\r\n",
    "an old version": b"GET /status\r\n\r\n",
    "version 1.0": b"GET /status HTTP/1.0\r\n\r\n",
    "a new version": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no host": b"GET /status HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /status HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    "a proxy's form": b"GET http://evil.example/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a form without a path": b"GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "connect": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no method": b"/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bytes in the query": b"GET /agents?\xff=\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bytes in a header": b"GET /status HTTP/1.1\r\nHost: localhost\r\nX: \xff\xfe\r\n\r\n",
    "a NUL in a header": b"GET /status HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
    "a folded header": b"GET /status HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
    "a space before the colon": b"GET /status HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "line feeds": b"GET /status HTTP/1.1\nHost: localhost\n\n",
    "length and chunks": b"POST /gc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /pods HTTP/1.1\r\n\r\n",
    "two lengths": b"POST /gc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
    b"Content-Length: 2\r\n\r\n{}",
    "a length of words": b"POST /gc HTTP/1.1\r\nHost: localhost\r\nContent-Length: two\r\n\r\n",
    "a negative length": b"POST /gc HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    "a length beyond all": b"POST /gc HTTP/1.1\r\nHost: x\r\nContent-Length: "
    + b"9" * 30 + b"\r\n\r\n",
    "a chunk of words": b"POST /gc HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    b"\r\nzz\r\n",
    "another coding": b"POST /gc HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
    "an upgrade to nothing": b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\n"
    b"Upgrade: h2c\r\n\r\n",
}  # fmt: skip
HEAD = b"GET /agents/amy/terminal HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
UPGRADE = b"Upgrade: websocket\r\n" + KEY
RAW |= {
    "a handshake without a key": HEAD + b"Upgrade: websocket\r\n\r\n",
    "a handshake of another version": HEAD + UPGRADE.replace(b"13", b"8") + b"\r\n",
    "a short key": HEAD + UPGRADE.replace(b"dGhl", b"") + b"\r\n",
    "a key that is none": HEAD + UPGRADE.replace(b"d", b"\xff") + b"\r\n",
    "a handshake by post": HEAD.replace(b"GET", b"POST") + UPGRADE + b"\r\n",
    "a handshake with a long line": HEAD + UPGRADE
    + b"X: " + b"x" * 9000 + b"\r\n\r\n",
    "a handshake with many lines": HEAD + UPGRADE
    + b"X: y\r\n" * 150 + b"\r\n",
    "bytes in the path of a handshake": HEAD.replace(b"/amy", b"/\xff")
    + UPGRADE + b"\r\n",
    "bytes in a header of a handshake": HEAD + b"Upgrade: websocket\r\nX: \xff\r\n" + KEY + b"\r\n",
    "a handshake nowhere": HEAD.replace(b"terminal", b"nowhere")
    + UPGRADE + b"\r\n",
    "a handshake with a plain route": HEAD.replace(b"/amy/terminal", b"")
    + UPGRADE + b"\r\n",
    "a handshake of a wrong size": HEAD.replace(b"terminal", b"terminal?rows=x&cols=-1")
    + UPGRADE + b"\r\n",
    "a handshake with an odd extension": HEAD + UPGRADE
    + b"Sec-WebSocket-Extensions: \xff;;;=\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("data", RAW.values(), ids=RAW)
def test_b5_what_is_not_quite_http(inside: Inside, data: bytes) -> None:
    """Twice: as anybody over TCP, and past the guard over the owner's socket."""
    for where in (inside.port, inside.socket):
        # Answered, or waited for; then the rest of a connection is of no interest.
        answer = raw(where, data, timeout=0.5, one=True)
        if not answer:
            continue
        status, error = parsed(answer) if b"\r\n\r\n{" in answer else (answered(answer), {})
        assert status < 500
        if status >= 400:
            assert {"error", "message", "details"} == set(error)


def answered(data: bytes) -> int:
    return int(data.split(b" ")[1])


def test_b6_a_second_header_is_not_chosen_from(inside: Inside) -> None:
    """Whichever of two the hub took, somebody between could have looked at the other."""
    owner, own = inside.owner.encode(), token_of(inside.home, "amy").encode()
    host = f"Host: localhost:{inside.port}\r\n".encode()
    pairs = [
        host + b"Authorization: Bearer " + own + b"\r\nAuthorization: Bearer " + owner + b"\r\n",
        host + b"Host: evil.example\r\nAuthorization: Bearer " + owner + b"\r\n",
        host + b"Origin: http://localhost\r\nOrigin: https://evil.example\r\n",
    ]
    for headers in pairs:
        answer = raw(inside.port, b"GET /status HTTP/1.1\r\n" + headers + b"\r\n", one=True)
        assert parsed(answer)[0] == 400


def test_b5_requests_in_a_row_are_answered_in_a_row(inside: Inside) -> None:
    one = b"POST /agents/amy/hooks HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n"
    last = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = raw(inside.socket, (one + b"x" * 60000) * 5 + last)
    assert answer.count(b"HTTP/1.1 200") == 5
    assert answer.count(b"HTTP/1.1 404") == 1


# ── WebSockets ──


@contextlib.contextmanager
def terminal(inside: Inside, target: str = "/agents/amy/terminal") -> Iterator[ClientConnection]:
    with connect_websocket(
        f"ws://localhost{target}",
        sock=connect(inside.socket),
        compression=None,
        open_timeout=60,
    ) as found:
        yield found


SIZES = (
    *('{"rows": 1e999, "cols": 80}', '{"rows": 0, "cols": 80}', '{"rows": NaN, "cols": 80}'),
    *('{"rows": 99999999999999999999, "cols": 1}', '{"rows": "x"}', "[]", ""),
    *("\x00", "[" * 100_000),
    *('{"rows": ' + "9" * 5000 + ', "cols": 1}', '{"rows": true, "cols": null}'),
)  # fmt: skip


@pytest.mark.parametrize("text", SIZES, ids=lambda text: text[:20])
def test_a3_a_size_that_is_none_closes_the_terminal(inside: Inside, text: str) -> None:
    with terminal(inside) as found:
        found.send(text)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                found.recv(60)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4400


def test_a3_too_much_at_once_closes_the_terminal(inside: Inside) -> None:
    with terminal(inside) as found:
        with contextlib.suppress(ConnectionClosed):
            found.send(b"x" * (2 * MIB))
            while True:
                found.recv(60)
        assert found.close_code in (1009, 1006)  # or cut off while it still sent


def test_a3_who_leaves_without_a_word_leaves_nothing(inside: Inside) -> None:
    before = len(inside.server.server_state.connections)
    for _ in range(10):
        with connect(inside.socket) as talk:
            talk.sendall(HEAD + UPGRADE + b"\r\n")
            assert talk.recv(100).startswith(b"HTTP/1.1 101")
            talk.sendall(b"\x82")  # half a frame
    wait_until(lambda: len(inside.server.server_state.connections) <= before)
    wait_until(lambda: not inside.server.server_state.tasks)


def test_b5_a_refused_terminal_says_why(inside: Inside) -> None:
    for target, status in (
        ("/agents/nobody/terminal", 404),
        ("/agents/%00/terminal", 400),
        ("/agents/amy/terminal?rows=0", 400),
        ("/nowhere", 404),
    ):
        with pytest.raises(InvalidStatus) as refused, terminal(inside, target):
            pass
        response = refused.value.response
        assert response.status_code == status
        assert {"error", "message", "details"} == set(json.loads(response.body or b""))


# ── floods of one agent ──


@pytest.mark.parametrize(
    ("thing", "path", "body"),
    [
        ("messages", "/agents/bob/messages", {"text": "x"}),
        ("message_bytes", "/agents/bob/messages", {"text": "x" * 100_000}),
        ("hooks", "/agents/amy/hooks", {"hook_event_name": "Stop"}),
        ("questions", "/agents/amy/permission?ask=12345678", {}),
        ("telemetry", "/v1/metrics", {}),
        ("telemetry", "/v1/logs", {}),
        ("telemetry", "/v1/traces", {}),
    ],
)
def test_x8_an_agent_that_floods_is_refused_and_nobody_else(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, thing: str, path: str, body: Any
) -> None:
    most = 250_000 if thing == "message_bytes" else 2
    limits = {**quotas.LIMITS, thing: Limit(at_once=most, per_second=1)}
    monkeypatch.setattr(quotas, "LIMITS", limits)
    monkeypatch.setattr(inside.hub, "quotas", quotas.Quotas(lambda: 0.0))
    amy, bob = token_of(inside.home, "amy"), token_of(inside.home, "bob")
    for _ in range(2):
        assert ask(inside.port, "POST", path, body=body, token=amy).status < 300
    refused = ask(inside.port, "POST", path, body=body, token=amy)
    assert (refused.status, refused.json["error"]) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) >= 1
    assert "amy has sent too many" in refused.json["message"]
    same = path.replace("/amy/", "/bob/")
    assert ask(inside.port, "POST", same, body=body, token=bob).status < 300
    if thing != "telemetry":
        assert ask(inside.socket, "POST", path, body=body).status < 300
    # An attack counts only if it works without the defence.
    monkeypatch.setattr(quotas.Quotas, "spend", lambda *_: None)
    assert ask(inside.port, "POST", path, body=body, token=amy).status < 300


def test_x8_an_agent_that_floods_is_still_told_that_its_budget_is_used_up(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {**quotas.LIMITS, "hooks": Limit(at_once=1, per_second=1)}
    monkeypatch.setattr(quotas, "LIMITS", limits)
    monkeypatch.setattr(inside.hub, "quotas", quotas.Quotas(lambda: 0.0))
    monkeypatch.setattr(inside.hub.budgets, "refusal", lambda name: f"{name} has used it up")
    engine = SimpleNamespace(refuse=refusal)
    monkeypatch.setattr("bullpen.hub.http.hooks.get_engine", lambda name: engine)
    token = token_of(inside.home, "amy")
    for _ in range(3):
        body = {"hook_event_name": "PreToolUse"}
        answer = ask(inside.port, "POST", "/agents/amy/hooks", body=body, token=token)
        assert answer.status == 200
        assert b"amy has used it up" in answer.body
    for body in ({"hook_event_name": "Stop"}, b"no JSON", b"[]"):
        answer = ask(inside.port, "POST", "/agents/amy/hooks", body=body, token=token)
        assert answer.status == 429
