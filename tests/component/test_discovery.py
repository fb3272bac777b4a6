"""The scan: what it finds, and what hostile, slow and strange listeners cost it: nothing."""

import contextlib
import gc
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.component import discovery
from bullpen.component.discovery import having, parse, scan
from tests.ports import reserved_port

STATUS = {
    "type": "view",
    "interfaces": ["statusable", "configurable"],
    "name": "web",
    "version": "0.1.0",
    "state": "idle",
    "uptime_seconds": 1.5,
    "home_id": "0123456789abcdef",
}


def answer(body: bytes, head: str = "HTTP/1.1 200 OK", *lines: str, length: bool = True) -> bytes:
    sized = [f"content-length: {len(body)}"] if length else []
    return "\r\n".join([head, *sized, *lines, "", ""]).encode() + body


def good(**fields: Any) -> bytes:
    return answer(json.dumps({**STATUS, **fields}).encode())


@contextlib.contextmanager
def listener(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """Accepts for as long as it lasts, each connection in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()
        lines: list[socket.socket] = []

        def accept() -> None:
            while not stop.is_set():
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                lines.append(line)
                threading.Thread(target=run, args=(line,), daemon=True).start()

        def run(line: socket.socket) -> None:
            with contextlib.suppress(OSError):
                talk(line)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)
            for line in lines:
                line.close()


def says(data: bytes) -> Callable[[socket.socket], None]:
    """Reads the request, answers, and leaves the connection open."""

    def talk(line: socket.socket) -> None:
        line.recv(1 << 16)
        line.sendall(data)

    return talk


def then_closes(talk: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
    def talking(line: socket.socket) -> None:
        talk(line)
        line.close()

    return talking


def test_f1_a_component_is_found_with_what_it_says() -> None:
    with listener(then_closes(says(good()))) as port:
        (found,) = scan([port], 60)
    assert (found.port, found.type, found.name, found.state) == (port, "view", "web", "idle")
    assert found.interfaces == ("statusable", "configurable")
    assert (found.version, found.home_id) == ("0.1.0", "0123456789abcdef")
    assert found.address == "127.0.0.1"
    assert found.is_own("0123456789abcdef")
    assert not found.is_own("f" * 16)


def test_f1_who_keeps_the_connection_open_is_found_at_once() -> None:
    with listener(says(good())) as port:
        began = time.monotonic()
        assert [one.name for one in scan([port], 300)] == ["web"]
        assert time.monotonic() - began < 200


def test_f1_without_a_length_the_answer_ends_with_the_connection() -> None:
    body = json.dumps(STATUS).encode()
    with listener(then_closes(says(answer(body, length=False)))) as port:
        assert [one.name for one in scan([port], 60)] == ["web"]


def test_f1_an_answer_in_small_pieces() -> None:
    def talk(line: socket.socket) -> None:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.recv(1 << 16)
        for byte in good():
            line.sendall(bytes([byte]))
        line.close()

    with listener(talk) as port:
        assert [one.name for one in scan([port], 60)] == ["web"]


def test_f1_no_credential_is_sent_and_the_host_is_loopback() -> None:
    asked: list[bytes] = []

    def talk(line: socket.socket) -> None:
        asked.append(line.recv(1 << 16))
        line.sendall(good())

    with listener(talk) as port:
        assert scan([port], 60)
        (request,) = asked
    assert request.startswith(b"GET /status HTTP/1.1\r\n")
    assert f"\r\nhost: 127.0.0.1:{port}\r\n".encode() in request
    assert b"authorization" not in request.lower()
    assert b"cookie" not in request.lower()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00" * 100,
        b"\r\n\r\n",
        answer(b"{}"),
        answer(b"[]"),
        answer(b"null"),
        answer(b"<html>"),
        answer(b"\xff\xfe"),
        answer(b"[" * 50_000),
        answer(b'{"type":' * 9_000),
        answer(json.dumps(STATUS).encode(), "HTTP/1.1 401 Unauthorized"),
        answer(json.dumps(STATUS).encode(), "HTTP/1.1 2000 OK"),
        answer(json.dumps(STATUS).encode(), "HTTP/1.1"),
        good(type="virus"),
        good(type=None),
        good(state="excellent"),
        good(interfaces="statusable"),
        good(interfaces=["everything"]),
        good(interfaces=[["statusable"]]),
        good(name=""),
        good(name="\x1b[2J"),
        good(name="x\ny"),
        good(name="x" * 1000),
        good(name=7),
        good(version="\u202e"),
        good(version="x" * 1000),
        good(home_id=""),
        good(uptime_seconds="long"),
        good(uptime_seconds={}),
    ],
    ids=lambda data: repr(data[-40:]),
)
def test_f1_what_makes_no_sense_is_nobody(data: bytes) -> None:
    with listener(then_closes(says(data))) as port, listener(says(good())) as other:
        assert [one.port for one in scan([port, other], 60)] == [other]


def test_f1_one_that_never_stops_talking_costs_a_bounded_amount() -> None:
    sent = 0

    def talk(line: socket.socket) -> None:
        nonlocal sent
        line.recv(1 << 16)
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            sent += line.send(b"x" * (1 << 16))

    with listener(talk) as port, listener(says(good())) as other:
        began = time.monotonic()
        assert [one.port for one in scan([port, other], 300)] == [other]
        assert time.monotonic() - began < 200  # not at the deadline: at the limit


def scan_besides_silent_ones(ports: list[int]) -> list[int]:
    """Who is found, though some never answer: they are waited for to the deadline, and no longer.
    A busy machine is slow as well, and is given more time."""
    for seconds in (0.3, 2.0, 8.0, 30.0):
        began = time.monotonic()
        found = scan(ports, seconds)
        assert seconds - 0.1 < time.monotonic() - began
        if found:
            break
    return [one.port for one in found]


@pytest.mark.parametrize("how", ["silent", "never reads", "head only", "drips"])
def test_f1_slow_ones_cost_no_more_than_the_deadline(how: str) -> None:
    stop = threading.Event()

    def talk(line: socket.socket) -> None:
        if how != "never reads":
            line.recv(1 << 16)
        if how == "head only":
            line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{")
        while how == "drips" and not stop.wait(0.01):
            line.sendall(b"x")

    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(listener(talk)) for _ in range(5)]
        quick = stack.enter_context(listener(says(good())))
        stack.callback(stop.set)
        assert scan_besides_silent_ones([*slow, quick]) == [quick]


def test_f1_a_listener_that_accepts_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as stack:
        port = full.getsockname()[1]
        for _ in range(3):  # more than its queue has room for: the next one waits
            line = stack.enter_context(socket.socket())
            line.setblocking(False)
            line.connect_ex(("127.0.0.1", port))
        with listener(says(good())) as other:
            assert scan_besides_silent_ones([port, other]) == [other]


def test_f1_slow_ones_do_not_hide_those_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "AT_ONCE", 2)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(listener(lambda line: None)) for _ in range(3)]
        quick = stack.enter_context(listener(says(good())))
        assert scan_besides_silent_ones([*slow, quick]) == [quick]


def test_f1_closed_ports_are_nobody_and_leave_no_descriptor() -> None:
    gc.collect()  # what tests of before have left is closed now, and not in the middle of this one
    before = len(list(Path("/proc/self/fd").iterdir()))
    with reserved_port() as port:
        assert scan([port] * 3) == []
    assert scan([]) == []
    scan(range(9000, 9200))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_f1_filtered_by_interface() -> None:
    found = [
        parse(1, good(name="one")),
        parse(2, good(name="two", interfaces=["statusable", "taskable"])),
    ]
    known = [one for one in found if one is not None]
    assert [one.name for one in having(known, "taskable")] == ["two"]
    assert [one.name for one in having(known, "configurable")] == ["one"]
    assert [one.name for one in having(known, None)] == ["one", "two"]
    assert having(known, "observable") == []
