"""The small HTTP client: whole answers, however they come, and named errors for all others."""

import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.hot import wire
from tests.standin import SeenRequest, StandIn, answer, read_request, says
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def hub(place: Path) -> Iterator[StandIn]:
    stand_in = StandIn(place / "hub.sock")
    yield stand_in
    stand_in.close()


def ask(hub: StandIn, target: str = "/agents", timeout: float | None = 10.0) -> wire.Response:
    return wire.request(str(hub.path), "GET", target, {}, timeout=timeout)


def chunked(*pieces: bytes, trailer: bytes = b"") -> bytes:
    body = b"".join(b"%x;x=y\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + body + b"0\r\n" + trailer + b"\r\n"


def test_request_and_answer_arrive_whole(hub: StandIn) -> None:
    hub.script = says(answer(b"\x00\xffdone", "201 Created", X_Two="a", version="9.9.9"))
    got = wire.request(hub.path.as_posix(), "POST", "/x?a=%20b", {"X-One": "1"}, b"\r\n{}", 10)
    assert (got.status, got.body) == (201, b"\x00\xffdone")
    assert got.headers["bullpen-version"] == "9.9.9"
    assert got.headers["x-two"] == "a"
    [asked] = hub.asked
    assert (asked.method, asked.target, asked.body) == ("POST", "/x?a=%20b", b"\r\n{}")
    assert asked.headers["X-One"] == "1"
    assert asked.headers["host"] == "localhost"
    assert asked.headers["content-length"] == "4"


def test_path_may_be_bytes(hub: StandIn) -> None:
    assert wire.request(bytes(hub.path), "GET", "/", {}, timeout=10).status == 200


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (answer(b"hello"), b"hello"),
        (answer(b"hello") + b"what follows is not ours", b"hello"),
        (answer(b""), b""),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil it closes", b"until it closes"),
        (b"HTTP/1.0 200\r\n\r\n", b""),
        (chunked(b"a", b"\r\n0\r\n\r\n", b"c" * 300), b"a\r\n0\r\n\r\n" + b"c" * 300),
        (chunked(), b""),
        (chunked(b"x", trailer=b"X-Sum: 1\r\n"), b"x"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\na: b\r\n\r\n" + answer(b"x"), b"x"),
        (b"HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length:5\r\na:2\r\n\r\nhello", b"hello"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1 << 16])
def test_answers_in_any_framing_and_any_pieces(
    hub: StandIn, sent: bytes, body: bytes, size: int
) -> None:
    def drip(connection: socket.socket, _: SeenRequest) -> None:
        for start in range(0, len(sent), size):
            connection.sendall(sent[start : start + size])

    hub.script = drip
    got = ask(hub)
    assert (got.status, got.body) == (200, body)
    if "a" in got.headers:
        assert got.headers["a"] == "1, 2"


@settings(max_examples=30)
@given(data=st.data(), pieces=st.lists(st.binary(min_size=1, max_size=50), max_size=6))
def test_any_split_of_any_body_is_the_same_body(
    place: Path, data: st.DataObject, pieces: list[bytes]
) -> None:
    whole = chunked(*pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    hub = StandIn(place / "split.sock")

    def send(connection: socket.socket, _: SeenRequest) -> None:
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            connection.sendall(whole[start:end])

    hub.script = send
    try:
        assert ask(hub).body == b"".join(pieces)
    finally:
        hub.close()


@pytest.mark.parametrize(
    "whole", [answer(b"hello"), chunked(b"hello", trailer=b"a: b\r\n")], ids=["length", "chunked"]
)
def test_hub_killed_after_any_byte_is_named_gone(hub: StandIn, whole: bytes) -> None:
    for end in range(len(whole)):
        hub.script = says(whole[:end])
        with pytest.raises(wire.HubGone):
            ask(hub)


def test_nobody_there_is_named(place: Path) -> None:
    stale = place / "stale.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(stale))
    (place / "file").write_text("")
    for path in (stale, place / "none.sock", place / "file", place / "file/x", place / "no/x"):
        with pytest.raises(wire.NoHub):
            wire.request(str(path), "GET", "/", {}, timeout=5)
        with pytest.raises(wire.NoHub):
            wire.stream(str(path), "GET", "/", {}, timeout=5)


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: v\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na : v\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nab",
        chunked(b"").replace(b"0;", b"0x1;"),
        chunked(b"ab").replace(b"2;", b"1;"),
        chunked(b"ab").replace(b"2;", b"-2;"),
        chunked(b"ab").replace(b"2;", b"1_0;"),
        b"x" * 200_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 200_000,
    ],
)
def test_what_is_no_answer_is_named_and_ends(hub: StandIn, sent: bytes) -> None:
    hub.script = says(sent)
    with pytest.raises(wire.BadAnswer):
        ask(hub)


@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", "200 OK"), ("GET", "204 No"), ("GET", "304 No")]
)
def test_answers_without_a_body(hub: StandIn, method: str, status: str) -> None:
    hub.script = says(answer(b"abc", status)[:-3])
    assert wire.request(str(hub.path), method, "/", {}, timeout=10).body == b""


@pytest.mark.parametrize("timeout", [0.05, 0.2])
def test_silent_hub_is_named_slow(hub: StandIn, timeout: float) -> None:
    released = threading.Event()
    hub.script = lambda *_: released.wait(300) and None
    began = time.monotonic()
    with pytest.raises(wire.HubSlow):
        ask(hub, timeout=timeout)
    assert timeout <= time.monotonic() - began < 200
    released.set()


def test_the_limit_is_for_the_whole_answer_not_for_each_byte(hub: StandIn) -> None:
    released = threading.Event()

    def drip(connection: socket.socket, _: SeenRequest) -> None:
        for byte in answer(b"x" * 100_000):
            connection.sendall(bytes([byte]))
            if released.wait(0.005):
                return

    hub.script = drip
    with pytest.raises(wire.HubSlow):
        ask(hub, timeout=0.2)
    released.set()


def test_a_hub_whose_queue_is_full_is_waited_for(place: Path) -> None:
    path = place / "busy.sock"
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(str(path))
        listener.listen(0)
        fillers = []
        while True:
            filler = socket.socket(socket.AF_UNIX)
            fillers.append(filler)
            filler.setblocking(False)
            try:
                filler.connect(str(path))
            except BlockingIOError:
                break
        with pytest.raises(wire.HubSlow):
            wire.request(str(path), "GET", "/", {}, timeout=0.05)
        asking = pool.submit(wire.request, str(path), "GET", "/", {}, b"", 20)
        for filler in fillers:
            filler.close()
        while not asking.done():
            listener.settimeout(60)
            connection, _ = listener.accept()
            with connection:
                try:
                    read_request(connection)
                except ConnectionResetError:
                    continue  # one of those that filled the queue
                connection.sendall(answer(b"at last"))
                break
        assert asking.result(60).body == b"at last"


def test_refusal_in_the_middle_of_a_large_body_is_read(place: Path) -> None:
    path = place / "refuses.sock"
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(str(path))
        listener.listen(1)
        asking = pool.submit(wire.request, str(path), "POST", "/", {}, b"x" * (8 << 20), 20)
        connection, _ = listener.accept()
        connection.recv(100)
        connection.sendall(answer(b"too much", "413 Too Large"))
        connection.close()
        got = asking.result(60)
    assert (got.status, got.body) == (413, b"too much")


@pytest.mark.parametrize("bad", ["a\r\nX-Evil: 1", "a\n", "\r", "a\x00b", "\x7f", "a\u2028b"])
def test_a_header_value_cannot_become_a_header(hub: StandIn, bad: str) -> None:
    with pytest.raises(ValueError) as caught:
        wire.request(str(hub.path), "GET", "/", {"authorization": bad}, timeout=5)
    assert "evil" not in str(caught.value).lower()
    assert hub.asked == []


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "ä", "Host", "content-length"])
def test_odd_and_reserved_header_names_are_refused(hub: StandIn, name: str) -> None:
    with pytest.raises(ValueError):
        wire.request(str(hub.path), "GET", "/", {name: "x"}, timeout=5)


@pytest.mark.parametrize("target", ["", "agents", "/a b", "/a\r\nx: y", "/ä", "/\x7f"])
def test_odd_targets_are_refused(hub: StandIn, target: str) -> None:
    with pytest.raises(ValueError):
        ask(hub, target)
    with pytest.raises(ValueError):
        wire.request(str(hub.path), "GE T", "/", {}, timeout=5)


@given(st.text(st.characters(codec="utf-8")))
def test_quoting_is_what_the_library_does(text: str) -> None:
    from urllib.parse import quote

    assert wire.quoted(text) == quote(text, safe="") == wire.quoted(text.encode())


def test_stream_hands_over_each_piece_as_it_comes(hub: StandIn) -> None:
    seen = [threading.Event() for _ in range(3)]

    def serve(connection: socket.socket, _: SeenRequest) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for event in seen:
            connection.sendall(b"2\r\nab\r\n")
            assert event.wait(60)
        connection.sendall(b"0\r\n\r\n")

    hub.script = serve
    with wire.stream(str(hub.path), "GET", "/events/stream", {}, timeout=10) as stream:
        assert stream.status == 200
        pieces = []
        for piece, event in zip(stream, seen, strict=False):
            pieces.append(piece)
            event.set()
    assert pieces == [b"ab"] * 3


def test_stream_that_breaks_off_is_named(hub: StandIn) -> None:
    hub.script = says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n")
    pieces = []
    with pytest.raises(wire.HubGone):
        for piece in wire.stream(str(hub.path), "GET", "/", {}, timeout=10):
            pieces.append(piece)
    assert pieces == [b"ab"]


@pytest.mark.slow
def test_stream_allows_silence_up_to_its_limit_and_no_more(hub: StandIn) -> None:
    for limit in (3.0, 12.0, 48.0):  # a busy machine makes silence of its own
        over = threading.Event()

        def serve(
            connection: socket.socket,
            _: SeenRequest,
            limit: float = limit,
            over: threading.Event = over,
        ) -> None:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for _number in range(8):
                over.wait(limit / 6)
                connection.sendall(b".")
            over.wait(300)

        hub.script = serve
        pieces = []
        with pytest.raises(wire.HubSlow):
            for piece in wire.stream(str(hub.path), "GET", "/", {}, timeout=limit):
                pieces.append(piece)
        over.set()
        if len(b"".join(pieces)) == 8:
            return
    raise AssertionError(f"cut off in spite of signs of life: {pieces}")


def test_leaving_a_stream_closes_it(hub: StandIn) -> None:
    noticed = threading.Event()

    def serve(connection: socket.socket, _: SeenRequest) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nfirst")
        if connection.recv(1) == b"":
            noticed.set()

    hub.script = serve
    for _piece in wire.stream(str(hub.path), "GET", "/", {}, timeout=10):
        break
    wait_until(noticed.is_set)


def test_it_imports_only_the_socket(hub: StandIn) -> None:
    code = (
        "import sys; before = set(sys.modules); sys.path.insert(0, sys.argv[1]);"
        "from bullpen.hot import wire; print(*sorted(set(sys.modules) - before))"
    )
    root = str(Path(wire.__file__).parents[2])
    said = subprocess.check_output([sys.executable, "-I", "-S", "-c", code, root], text=True)
    assert said.split() == ["_socket", "bullpen", "bullpen.hot", "bullpen.hot.wire"]
