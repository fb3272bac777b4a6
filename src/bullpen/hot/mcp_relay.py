"""`bullpen mcp`: offers the hub's tools to an agent's engine, on standard input and output.

Started by engines from the line that `hook_line` writes, with the agent's own socket as its last
word. Passes JSON-RPC on, one message per line, unchanged. It outlives the hub: when that dies under
a call, or is not there yet, the relay asks the next one again. Every request carries an id of its
own in a header, by which the hub knows one that it has had before. While a call is open, progress
is told every 20 seconds. Without its socket it refuses: at the home's own it would be the owner.
As light as `wire`, and lighter in memory: only C modules, and one thread.
"""

import _json
import _socket
import posix
import select
import sys
import time

PROGRESS_SECONDS = 20.0
AGAIN_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
PIECE_BYTES = 1 << 16
LINE_BYTES = 8 << 20
PATH_BYTES = 100  # that an address may have
REFUSED = (-32000, "the hub refused it")
VERSION = "io.modelcontextprotocol/protocolVersion"
TOOL_USE = "claudecode/toolUseId"
TOKEN_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class _Reading:
    """What C's scanner wants to know of its reader."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012 - it wants this name


_scan = _json.make_scanner(_Reading())  # type: ignore[arg-type]


def main() -> None:
    """Entry of the generated line."""
    code = run(sys.argv[1:])
    posix._exit(code)


def run(words: list[str]) -> int:
    """Until standard input ends; the exit code."""
    socket = words[0] if words else ""
    parts = socket.split("/")
    if len(parts) < 4 or not socket.startswith("/") or parts[-2:] != ["api", "hub.sock"]:
        text = "bullpen mcp: needs the agent's own socket: bullpen mcp <session>/api/hub.sock\n"
        posix.write(2, text.encode())
        return 2
    Relay(socket, parts[-3]).run()
    return 0


class Call:
    """One message on its way: its bytes, and the connection that its answer comes from."""

    __slots__ = (
        "again_at",
        "answer",
        "head",
        "id",
        "line",
        "link",
        "next_progress",
        "progress",
        "token",
        "tries",
    )  # fmt: skip

    def __init__(self, line: bytes, head: bytes, id: str, token: str) -> None:
        self.line = line
        self.head = head
        self.id = id  # as JSON; empty: a notification
        self.token = token  # of its progress, as JSON
        self.link: _socket.socket | None = None
        self.answer = b""
        self.tries = 0
        self.again_at = 0.0
        self.progress = 0
        self.next_progress = time.monotonic() + PROGRESS_SECONDS


class Relay:
    """One engine's connection to the hub."""

    def __init__(self, socket: str, agent: str) -> None:
        self._socket = socket
        self._agent = agent
        self._name = posix.urandom(8).hex()  # of this relay: ids of JSON-RPC begin again in each
        self._calls: list[Call] = []
        self._poll = select.poll()

    def run(self) -> None:
        """Read, ask, answer."""
        self._poll.register(0, select.POLLIN)
        rest = b""
        while True:
            for descriptor, _ in self._poll.poll(self._wait_milliseconds()):
                if descriptor != 0:
                    self._receive(descriptor)
                    continue
                piece = posix.read(0, PIECE_BYTES)
                if not piece:
                    return
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._take(line.strip())
                if len(rest) > LINE_BYTES:
                    return
            self._do_due()

    # ── what the engine says ──

    def _take(self, line: bytes) -> None:
        try:
            message, _ = _scan(line.decode(), 0)
        except (StopIteration, ValueError, RecursionError):
            if line:
                write_line(
                    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no JSON"}}'
                )
            return
        if not isinstance(message, dict):
            message = {}
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        if message.get("method") == "notifications/cancelled":
            self._cancel(params.get("requestId"))
            return
        id = to_json(message["id"]) if message.get("id") is not None else ""
        token = meta.get("progressToken")
        head = self._head(message, params, meta, id, len(line))
        call = Call(line, head, id, "" if token is None else to_json(token))
        self._calls.append(call)
        self._ask(call)

    def _head(
        self,
        message: "dict[str, object]",
        params: "dict[str, object]",
        meta: "dict[str, object]",
        id: str,
        length: int,
    ) -> bytes:
        request = token_of(meta.get(TOOL_USE)) or token_of(f"{self._name}.{id}")
        headers = [
            f"POST /agents/{self._agent}/mcp HTTP/1.1",
            "host: localhost",
            "connection: close",
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            f"content-length: {length}",
            f"bullpen-request: {request}",
        ]
        version = token_of(meta.get(VERSION))
        if version:
            headers.append(f"mcp-protocol-version: {version}")
            headers.append(f"mcp-method: {message.get('method')}")
            name = token_of(params.get("name") or params.get("uri"))
            if name:
                headers.append(f"mcp-name: {name}")
        return "\r\n".join([*headers, "", ""]).encode("latin-1", "replace")

    def _cancel(self, id: object) -> None:
        """The engine waits no longer: the hub notices that nobody listens."""
        wanted = to_json(id)
        for call in [call for call in self._calls if call.id == wanted]:
            self._hang_up(call)
            self._calls.remove(call)

    # ── asking the hub ──

    def _ask(self, call: Call) -> None:
        link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        link.settimeout(5.0)
        directory = -1
        try:
            path = self._socket
            if len(path.encode()) > PATH_BYTES:
                # The path of a deep home is longer than an address may be.
                flags = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC
                directory = posix.open(path[: -len("/hub.sock")], flags)
                path = f"/proc/self/fd/{directory}/hub.sock"
            link.connect(path)
            link.sendall(call.head + call.line)
        except OSError:
            link.close()
            self._later(call)
            return
        finally:
            if directory >= 0:
                posix.close(directory)
        link.setblocking(False)
        call.link, call.answer = link, b""
        self._poll.register(link.fileno(), select.POLLIN)

    def _later(self, call: Call) -> None:
        """No hub, or one that died: the next is asked."""
        seconds = AGAIN_SECONDS[min(call.tries, len(AGAIN_SECONDS) - 1)]
        call.tries += 1
        call.again_at = time.monotonic() + seconds

    def _hang_up(self, call: Call) -> None:
        if call.link is not None:
            self._poll.unregister(call.link.fileno())
            call.link.close()
            call.link = None

    def _receive(self, descriptor: int) -> None:
        for call in self._calls:
            if call.link is not None and call.link.fileno() == descriptor:
                break
        else:
            return
        try:
            piece = call.link.recv(PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        call.answer += piece
        status, body, is_whole = parse_answer(call.answer)
        if piece and not is_whole:
            return
        self._hang_up(call)
        if not is_whole or status == 429 or status >= 500:
            self._later(call)
            return
        self._calls.remove(call)
        self._answer(call, status, body)

    def _answer(self, call: Call, status: int, body: bytes) -> None:
        if not call.id:
            return
        if status in (401, 403, 404, 409, 413) or not body:
            code, text = REFUSED
            reason = body.decode("utf-8", "replace")[:2000] or f"status {status}"
            message = to_json(f"{text}: {reason}")
            error = f'{{"code":{code},"message":{message}}}'
            body = f'{{"jsonrpc":"2.0","id":{call.id},"error":{error}}}'.encode()
        write_line(body.replace(b"\n", b" "))

    # ── time ──

    def _wait_milliseconds(self) -> "int | None":
        due = [call.again_at for call in self._calls if call.link is None]
        due += [call.next_progress for call in self._calls if call.token]
        if not due:
            return None
        return max(0, int((min(due) - time.monotonic()) * 1000) + 1)

    def _do_due(self) -> None:
        now = time.monotonic()
        for call in list(self._calls):
            if call.link is None and call.again_at <= now:
                self._ask(call)
            if call.token and call.next_progress <= now:
                call.next_progress = now + PROGRESS_SECONDS
                call.progress += 1
                params = f'{{"progressToken":{call.token},"progress":{call.progress}}}'
                method = '"method":"notifications/progress"'
                write_line(f'{{"jsonrpc":"2.0",{method},"params":{params}}}'.encode())


def parse_answer(data: bytes) -> "tuple[int, bytes, bool]":
    """Status and body of an answer, and whether it is whole. Pure."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return 0, b"", False
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 500
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
            return status, body[:length], len(body) >= length
    return status, body, status in (202, 204)


def token_of(value: object) -> str:
    """A text that can stand in a header; empty: it cannot."""
    text = value if isinstance(value, str) else ""
    return "".join([char if char in TOKEN_CHARS else "_" for char in text])[:200]


def to_json(value: object) -> str:
    """An id or a token: a text or a number."""
    if isinstance(value, str):
        return _json.encode_basestring_ascii(value)
    return repr(value) if isinstance(value, int | float) else "null"


def write_line(line: bytes) -> None:
    """All of it, also into a pipe that its owner made non-blocking."""
    rest = memoryview(line + b"\n")
    while rest:
        try:
            rest = rest[posix.write(1, rest) :]
        except BlockingIOError:
            time.sleep(0.002)
        except OSError:
            posix._exit(0)  # the engine left
