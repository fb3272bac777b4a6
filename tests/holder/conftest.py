"""A real factory, real holders and a plain synchronous client of the protocol.

Everything that a factory or a program of a test starts carries HOLDER_TEST=<its directory>
in its environment, so that what is left over is found, also in sessions of its own, and
ended by pid.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bullpen import holder as held
from tests.conftest import wait_until

MARK = "HOLDER_TEST"
MIB = 1 << 20
SECONDS = 45.0
GONE = "ZX"


# Programs


def python(code: str, *words: str | Path) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *map(str, words)]


def shell(code: str, *words: str | Path) -> list[str]:
    return ["/bin/bash", "--norc", "-c", code, "bash", *map(str, words)]


RAW = "import os, signal, sys, termios, tty; tty.setraw(0);"

# Says READY, then says in hexadecimal what it is given.
HEXER = python(
    RAW
    + """
os.write(1, b"READY ")
while piece := os.read(0, 65536):
    os.write(1, piece.hex().encode())
"""
)

# Tells its size at the start and whenever that changes.
SIZER = python(
    RAW
    + """
def tell(*_):
    size = os.get_terminal_size(1)
    os.write(1, b"<%d %d>" % (size.lines, size.columns))
signal.signal(signal.SIGWINCH, tell)
tell()
os.write(1, b"READY")
while True:
    try:
        os.read(0, 100)
    except InterruptedError:
        pass
"""
)

# Waits for a byte of input, then writes the file to its terminal as it is, and ends.
PRINT_FILE = (
    RAW
    + """
os.write(1, b"READY")
os.read(0, 1)
with open(sys.argv[1], "rb") as file:
    while piece := file.read(50_000):
        done = 0
        while done < len(piece):
            done += os.write(1, piece[done:])
termios.tcdrain(1)
"""
)

# Copies a FIFO to its terminal, piece by piece, until that is closed.
FED = (
    RAW
    + """
feed = os.open(sys.argv[1], os.O_RDONLY)
while piece := os.read(feed, 65536):
    done = 0
    while done < len(piece):
        done += os.write(1, piece[done:])
"""
)


# Processes


def process_state(pid: int) -> str:
    """The letter of /proc/<pid>/stat; X when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def alive(pid: int) -> bool:
    """A zombie counts as gone: a container's first process may not reap."""
    return process_state(pid) not in GONE


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def children_of(pid: int) -> list[int]:
    """Also the dead ones that nobody reaped."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    found.append(int(entry.name))
    return found


def marked(root: Path) -> set[int]:
    """Every living process of this test's factory, holders and programs."""
    sign = f"{MARK}={root}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if sign in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return {pid for pid in found if alive(pid)}


def end_marked(root: Path) -> None:
    for _ in range(200):
        left = marked(root)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    raise AssertionError(f"cannot be ended: {marked(root)}")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# The client


@dataclass(frozen=True)
class Frame:
    type: str
    payload: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.payload)


class ClosedError(Exception):
    """The holder closed the connection."""


def pack(type_: str, payload: bytes | dict[str, Any] = b"") -> bytes:
    body = json.dumps(payload).encode() if isinstance(payload, dict) else payload
    return type_.encode() + struct.pack(">I", len(body)) + body


class Client:
    """One connection. Frames that are read past are kept in `seen`."""

    def __init__(self, path: Path, rcvbuf: int = 0) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        if rcvbuf:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.socket.settimeout(SECONDS)
        self.socket.connect(str(path))
        self.buffer = bytearray()
        self.seen: list[Frame] = []
        self.output = bytearray()
        self.errors = bytearray()

    def close(self) -> None:
        self.socket.close()

    def send(self, type_: str, payload: bytes | dict[str, Any] = b"") -> None:
        self.send_raw(pack(type_, payload))

    def send_raw(self, data: bytes) -> None:
        self.socket.settimeout(SECONDS)
        self.socket.sendall(data)

    def type(self, data: bytes) -> None:
        self.send("I", data)

    def next(self, seconds: float = SECONDS) -> Frame:
        """The next frame; TimeoutError at the deadline, ClosedError at the end."""
        deadline = time.monotonic() + seconds
        while (frame := self._cut()) is None:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                piece = self.socket.recv(MIB)
            except ConnectionResetError:
                piece = b""
            if not piece:
                assert not self.buffer, f"closed within a frame: {bytes(self.buffer[:40])!r}"
                raise ClosedError
            self.buffer += piece
        self.seen.append(frame)
        if frame.type == "O":
            self.output += frame.payload
        elif frame.type == "e":
            self.errors += frame.payload
        return frame

    def _cut(self) -> Frame | None:
        if len(self.buffer) < 5:
            return None
        (length,) = struct.unpack_from(">I", self.buffer, 1)
        assert length <= MIB, "a frame is at most 1 MiB"
        if len(self.buffer) < 5 + length:
            return None
        frame = Frame(chr(self.buffer[0]), bytes(self.buffer[5 : 5 + length]))
        del self.buffer[: 5 + length]
        return frame

    def read_until(self, types: str, seconds: float = SECONDS) -> Frame:
        """The next frame of one of these types."""
        deadline = time.monotonic() + seconds
        while (frame := self.next(deadline - time.monotonic())).type not in types:
            assert time.monotonic() < deadline, f"no {types} within {seconds} s"
        return frame

    def read_to_end(self, seconds: float = SECONDS) -> None:
        deadline = time.monotonic() + seconds
        with contextlib.suppress(ClosedError):
            while True:
                self.next(deadline - time.monotonic())

    def collect(
        self, wanted: bytes | int | Callable[[bytes], bool], seconds: float = SECONDS
    ) -> bytes:
        """Live output until it holds these bytes, or so many, or the condition is true."""
        deadline = time.monotonic() + seconds
        while not self._has(wanted):
            try:
                self.next(deadline - time.monotonic())
            except (TimeoutError, ClosedError) as error:
                raise AssertionError(
                    f"no {wanted!r}: {len(self.output)} bytes, {bytes(self.output[-300:])!r}"
                ) from error
        return bytes(self.output)

    def _has(self, wanted: bytes | int | Callable[[bytes], bool]) -> bool:
        if isinstance(wanted, bytes):
            return wanted in self.output
        if isinstance(wanted, int):
            return len(self.output) >= wanted
        return wanted(bytes(self.output))

    def attach(self, **fields: Any) -> bytes:
        """Attach; the replay, if one was asked for."""
        self.send("A", fields)
        reply = self.read_until("KF")
        assert reply.type == "K", reply
        assert reply.json == {"for": "A"}
        if not fields.get("replay", True):
            return b""
        replay = self.next()
        assert replay.type == "P", "the replay comes right after the answer"
        return replay.payload

    def status(self) -> dict[str, Any]:
        self.send("S")
        return self.read_until("S").json  # type: ignore[no-any-return]

    def stop(self, grace: float = 10) -> dict[str, Any]:
        """Stop; the exit record."""
        self.send("X", {"grace": grace})
        assert self.read_until("KF").json == {"for": "X"}
        return self.read_until("E", grace + SECONDS).json  # type: ignore[no-any-return]


# Holders and their factory


@dataclass(frozen=True)
class Holder:
    pid: int
    child: int
    socket: Path
    session: Path
    clients: list[Client]

    def connect(self, rcvbuf: int = 0) -> Client:
        """A connection whose greeting has been read."""
        client = Client(self.socket, rcvbuf)
        self.clients.append(client)
        assert client.next().type == "H"
        return client

    def attached(self, **fields: Any) -> Client:
        client = self.connect()
        client.attach(**fields)
        return client

    def ready(self, **fields: Any) -> Client:
        """Attached to a program that said READY, with no output read so far."""
        client = self.connect()
        replay = client.attach(**fields)
        if b"READY" not in replay:
            client.collect(b"READY")
        client.output.clear()
        return client

    def wait_gone(self, seconds: float = SECONDS) -> dict[str, Any]:
        """Wait until the holder has left; its exit record."""
        wait_until(lambda: not alive(self.pid), seconds)
        return self.record()

    def record(self) -> dict[str, Any]:
        return json.loads((self.session / "exit.json").read_text())  # type: ignore[no-any-return]

    def log(self, name: str = "output.log") -> bytes:
        return (self.session / name).read_bytes()


class Factory:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.socket = root / "f"
        self.process: subprocess.Popen[bytes] | None = None
        self.clients: list[Client] = []
        self.made = 0

    def start(self, before: tuple[str, ...] = (), **popen: Any) -> None:
        """Start it, `before` being words that its command line is given to."""
        self.process = subprocess.Popen(
            [*before, *held.command(self.socket)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": os.environ["PATH"], MARK: str(self.root)},
            **popen,
        )
        wait_until(
            lambda: self.answers() or self.process is None or self.process.poll() is not None
        )
        assert self.process.poll() is None, "the factory ended at once"

    def answers(self) -> bool:
        try:
            return bool(self.ask({"do": "ping"})["ok"])
        except (FileNotFoundError, ConnectionRefusedError):
            return False

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    def end(self) -> None:
        """Kill it, it alone, with -9."""
        assert self.process
        self.process.kill()
        self.process.wait(SECONDS)

    def ask(self, request: dict[str, Any] | bytes, seconds: float = SECONDS) -> dict[str, Any]:
        line = request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n"
        reply = self.ask_raw(line, seconds)
        assert reply.endswith(b"\n"), reply
        assert reply.count(b"\n") == 1
        return json.loads(reply)  # type: ignore[no-any-return]

    def ask_raw(self, data: bytes, seconds: float = SECONDS) -> bytes:
        """What it says until it closes."""
        deadline = time.monotonic() + seconds
        reply = b""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(seconds)
            line.connect(str(self.socket))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                line.sendall(data)
            with contextlib.suppress(ConnectionResetError):
                while piece := line.recv(65536):
                    reply += piece
                    line.settimeout(max(0.001, deadline - time.monotonic()))
        return reply

    def env(self, **more: str) -> dict[str, str]:
        path = os.environ["PATH"]
        return {"PATH": path, "TERM": "xterm-256color", MARK: str(self.root), **more}

    def request(self, argv: Any, **fields: Any) -> dict[str, Any]:
        """A request to hold it, with a socket and a session directory of its own."""
        self.made += 1
        session = self.root / f"s{self.made}"
        session.mkdir()
        return {
            "do": "hold",
            "name": f"agent{self.made}",
            "socket": str(self.root / f"h{self.made}"),
            "session": str(session),
            "argv": argv,
            "env": self.env(),
            "cwd": str(self.root),
            **fields,
        }

    def hold(self, argv: list[str], **fields: Any) -> Holder:
        request = self.request(argv, **fields)
        reply = self.ask(request)
        assert reply["ok"], reply
        return self.holder(request, reply)

    def holder(self, request: dict[str, Any], reply: dict[str, Any]) -> Holder:
        return Holder(
            reply["pid"],
            reply["child"],
            Path(request["socket"]),
            Path(request["session"]),
            self.clients,
        )

    def close(self) -> None:
        for client in self.clients:
            client.close()
        if self.process:
            self.end()
        end_marked(self.root)
        if self.process and self.process.stdout:
            self.process.stdout.close()
        shutil.rmtree(self.root)


@pytest.fixture
def bare_factory() -> Iterator[Factory]:
    """Not started yet."""
    factory = Factory(Path(tempfile.mkdtemp(prefix="bp", dir="/tmp")).resolve())
    try:
        yield factory
    finally:
        factory.close()


@pytest.fixture
def factory(bare_factory: Factory) -> Factory:
    bare_factory.start()
    return bare_factory


class Feed:
    """A program that prints what it is told, and a client that watches it do so."""

    def __init__(self, factory: Factory, **fields: Any) -> None:
        fifo = factory.root / f"feed{factory.made}"
        os.mkfifo(fifo)
        self.holder = factory.hold(python(FED, fifo), **fields)
        # Read and write: opening it does not wait for a program that may never come.
        self.fifo = os.fdopen(os.open(fifo, os.O_RDWR), "r+b", buffering=0)
        self.watcher = self.holder.connect()
        self.watcher.attach(replay=False)
        self.written = bytearray()

    def say(self, *pieces: bytes) -> None:
        """Each piece is read by the holder before the next is written."""
        for piece in pieces:
            for start in range(0, len(piece), 4000):
                part = piece[start : start + 4000]
                self.fifo.write(part)
                self.written += part
                self.watcher.collect(len(self.written))
        assert self.watcher.output == self.written

    def replay(self) -> bytes:
        """What a new client is shown."""
        client = self.holder.connect()
        shown = client.attach()
        client.close()
        return shown

    def close(self) -> None:
        self.fifo.close()


@pytest.fixture
def feed(factory: Factory) -> Iterator[Callable[..., Feed]]:
    made: list[Feed] = []

    def make(**fields: Any) -> Feed:
        made.append(Feed(factory, **fields))
        return made[-1]

    yield make
    for one in made:
        one.close()


@contextlib.contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Do it in a thread; it must be through at the end, and without an error."""
    errors: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    yield thread
    thread.join(60)
    assert not thread.is_alive(), "still at it after 60 s"
    if errors:
        raise errors[0]
