"""HTTP/1.1 over the hub's Unix socket: one connection, one request, one answer.

Used by everything that talks to the hub, the hot commands included. So only `_socket` is imported:
`socket`, `json` and `http.client` each take as long to load as the interpreter takes to start.
Starts no hub, sends nothing twice, does not interpret a body. Refusals by the system other than a
missing hub (permissions, a path that is too long) are raised as OSError.
"""

import _socket
import time

TYPE_CHECKING = False  # `typing` and `collections.abc` are heavy, too
if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_BYTES = 1 << 16
HEAD_BYTES = 1 << 16
# Ours to set: a second length would let a body pass for a request.
OWN_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding"})
UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
HEX = frozenset("0123456789abcdefABCDEF")


class HubError(Exception):
    """The hub did not answer."""


class NoHub(HubError):
    """No hub listens: the request was not sent."""


class HubGone(HubError):
    """No whole answer came back; whether the request counted is unknown."""


class HubSlow(HubGone):
    """No answer in time; the hub may still be at it."""


class BadAnswer(HubGone):
    """What came back is not HTTP."""


class Response:
    """A whole answer; header names are in lower case."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class StreamedAnswer:
    """An answer whose body is still coming. Iterate once; who leaves early closes it."""

    __slots__ = ("_connection", "_has_body", "headers", "status")

    def __init__(
        self, connection: "_Connection", status: int, headers: dict[str, str], has_body: bool
    ) -> None:
        self.status = status
        self.headers = headers
        self._connection = connection
        self._has_body = has_body

    def __iter__(self) -> "Iterator[bytes]":
        try:
            yield from self._pieces()
        finally:
            self.close()

    def __enter__(self) -> "StreamedAnswer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection; the hub notices."""
        self._connection.close()

    def _pieces(self) -> "Iterator[bytes]":
        if not self._has_body:
            return iter(())
        coding = self.headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked":
                raise BadAnswer(f"the hub sent an unknown transfer coding: {coding[:80]!r}")
            return self._connection.chunks()
        length = self.headers.get("content-length")
        if length is None:
            return self._connection.until_closed()
        if not (length.isascii() and length.isdecimal()) or len(length) > 18:
            raise BadAnswer(f"the hub sent a length that is none: {length[:80]!r}")
        return self._connection.exactly(int(length))


def request(
    socket_path: str | bytes,
    method: str,
    target: str,
    headers: dict[str, str],
    body: bytes = b"",
    timeout: float | None = None,
) -> Response:
    """Ask and wait for the whole answer; `timeout` is for all of it."""
    connection = _Connection(timeout)
    try:
        answer = _ask(connection, socket_path, method, target, headers, body)
        return Response(answer.status, answer.headers, b"".join(answer))
    finally:
        connection.close()


def stream(
    socket_path: str | bytes,
    method: str,
    target: str,
    headers: dict[str, str],
    body: bytes = b"",
    timeout: float | None = None,
) -> StreamedAnswer:
    """Ask and return when the head of the answer is there.

    `timeout` is for that, and after it for the silence before each piece of the body.
    """
    connection = _Connection(timeout)
    try:
        answer = _ask(connection, socket_path, method, target, headers, body)
    except BaseException:
        connection.close()
        raise
    connection.is_streaming = True
    return answer


def quoted(text: str | bytes) -> str:
    """Percent-encoded, for a segment of a path or a value of a query."""
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return "".join([chr(byte) if byte in UNRESERVED else f"%{byte:02X}" for byte in raw])


def _ask(
    connection: "_Connection",
    socket_path: str | bytes,
    method: str,
    target: str,
    headers: dict[str, str],
    body: bytes,
) -> StreamedAnswer:
    head = _head(method, target, headers, len(body))
    connection.open(socket_path)
    connection.send(head + body)
    status, answer_headers = connection.head()
    while 100 <= status < 200:  # "continue" and "early hints" announce the real one
        status, answer_headers = connection.head()
    return StreamedAnswer(
        connection, status, answer_headers, method != "HEAD" and status not in {204, 304}
    )


def _head(method: str, target: str, headers: dict[str, str], length: int) -> bytes:
    if not (method.isascii() and method.isalpha()):
        raise ValueError(f"not a method: {method!r}")
    if not target.startswith("/") or not all("!" <= char <= "~" for char in target):
        raise ValueError(f"not a target: {target!r}")
    # Over a Unix socket no name is meant; the hub accepts the loopback's.
    lines = [f"{method} {target} HTTP/1.1", "host: localhost", "connection: close"]
    if length or method not in {"GET", "HEAD"}:
        lines.append(f"content-length: {length}")
    for name, value in headers.items():
        if not (name.isascii() and name.replace("-", "").isalnum()):
            raise ValueError(f"not a header name: {name!r}")
        if name.lower() in OWN_HEADERS:
            raise ValueError(f"the header {name} is not the caller's to set")
        # The value may be a token: it is not repeated.
        if any(char < " " or char == "\x7f" for char in value):
            raise ValueError(f"the value of the header {name} has a control character")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class _Connection:
    """A socket, what was received and not used yet, and how long all may take."""

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self.is_streaming = False
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._buffer = b""

    def close(self) -> None:
        self._socket.close()

    def open(self, path: str | bytes) -> None:
        while True:
            self._socket.settimeout(self._left())
            try:
                return self._socket.connect(path)
            except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
                raise NoHub(f"no hub listens on {path!r}") from error
            except BlockingIOError:
                # The queue of a busy hub is full. With a time limit set, Linux does not wait
                # for room in the queue of a Unix socket.
                time.sleep(0.002)
            except TimeoutError as error:
                raise self._slow() from error

    def send(self, data: bytes) -> None:
        self._socket.settimeout(self._left())
        try:
            self._socket.sendall(data)
        except TimeoutError as error:
            raise self._slow() from error
        except (BrokenPipeError, ConnectionResetError):
            # It may have refused a large body half-way and said why: the answer is read next,
            # and its absence is what counts.
            return

    def head(self) -> tuple[int, dict[str, str]]:
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > HEAD_BYTES:
                raise BadAnswer("the hub's answer begins with too many headers")
            self._fill()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        number = rest[:3]
        if version not in {"HTTP/1.1", "HTTP/1.0"} or not (
            len(number) == 3 and number.isascii() and number.isdecimal()
        ):
            raise BadAnswer(f"the hub's answer begins with {first[:80]!r}")
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise BadAnswer(f"the hub sent a header that is none: {name[:80]!r}")
            name, value = name.lower(), value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return int(number), headers

    def exactly(self, length: int) -> "Iterator[bytes]":
        while length:
            if not self._buffer:
                self._fill()
            piece, self._buffer = self._buffer[:length], self._buffer[length:]
            length -= len(piece)
            yield piece

    def until_closed(self) -> "Iterator[bytes]":
        if self._buffer:
            piece, self._buffer = self._buffer, b""
            yield piece
        while piece := self._receive():
            yield piece

    def chunks(self) -> "Iterator[bytes]":
        while True:
            size, _, _ = self._line().partition(b";")
            text = size.strip(b" \t").decode("latin-1")
            if not text or len(text) > 16 or not HEX.issuperset(text):
                raise BadAnswer(f"the hub sent a chunk of size {text[:80]!r}")
            length = int(text, 16)
            if length == 0:
                break
            yield from self.exactly(length)
            if self._line():
                raise BadAnswer("the hub sent a chunk that is longer than its size")
        while self._line():  # trailers
            pass

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            if len(self._buffer) > HEAD_BYTES:
                raise BadAnswer("the hub sent a line without an end")
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _fill(self) -> None:
        piece = self._receive()
        if not piece:
            raise HubGone("the hub went away in the middle of its answer")
        self._buffer += piece

    def _receive(self) -> bytes:
        if self.is_streaming and self.timeout is not None:
            self._deadline = time.monotonic() + self.timeout
        self._socket.settimeout(self._left())
        try:
            return self._socket.recv(PIECE_BYTES)
        except TimeoutError as error:
            raise self._slow() from error
        except (ConnectionResetError, BrokenPipeError) as error:
            raise HubGone("the hub went away") from error

    def _left(self) -> float | None:
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._slow()
        return left

    def _slow(self) -> HubSlow:
        return HubSlow(f"no answer from the hub within {round(self.timeout or 0.0, 1):g} s")
