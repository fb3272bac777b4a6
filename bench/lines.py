"""Ways to a program: bare, through our socket, and through clients in a terminal. For the rows of
output and keys."""

import contextlib
import fcntl
import itertools
import os
import pty
import socket
import struct
import termios
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bench.keepers import ENV, keepers
from bench.processes import end
from bench.table import WAIT_SECONDS, interleaved

# It says again and again that it is ready (dtach shows nothing old), until it is given a byte.
RAW = (
    'stty -icanon -echo min 0 time 1; until [ "$(head -c 1)" ]; do printf READY; done;'
    " stty min 1 time 0; "
)


class Line(Protocol):
    """A way to a program: what is typed goes in, what it prints comes out."""

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes: ...

    def close(self) -> None: ...


class BareLine:
    """The program's own terminal, read by nobody else."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            os.execvpe(argv[0], argv, ENV)

    def send(self, data: bytes) -> None:
        os.write(self.terminal, data)

    def receive(self) -> bytes:
        return os.read(self.terminal, 1 << 16)

    def close(self) -> None:
        end(self.pid)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


class DroppedError(Exception):
    """The machine was so busy that we fell behind by megabytes, and were told so."""


class SocketLine:
    """A holder's socket, attached."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(WAIT_SECONDS)
        self.socket.connect(str(path))
        self.socket.sendall(_frame(b"A", b'{"nudge": false}'))

    def send(self, data: bytes) -> None:
        self.socket.sendall(_frame(b"I", data))

    def receive(self) -> bytes:
        piece = self.socket.recv(1 << 16)
        if piece.endswith(b'{"reason": "slow"}'):
            raise DroppedError
        return piece

    def close(self) -> None:
        self.socket.close()


def _frame(kind: bytes, payload: bytes) -> bytes:
    return struct.pack(">cI", kind, len(payload)) + payload


@contextlib.contextmanager
def all_ways(place: Path) -> Iterator["Ways"]:
    """Every way that there is here; its programs are ended afterwards."""
    with keepers(place) as found:
        yield Ways(found)


class Ways:
    """Opens new programs, and measures all ways in turns."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = {"socket": found["holder"], "tty": found["holder"], **found}
        self.kinds = ["raw", "socket", "tty", *(found.keys() - {"holder"})]
        self.names = (f"p{number}" for number in itertools.count())

    def open(self, kind: str, argv: list[str]) -> Line:
        """A new program, ready to be let go."""
        name = next(self.names)
        line: Line
        if kind == "raw":
            line = BareLine(argv)
        else:
            keeper = self.found[kind]
            keeper.start(name, argv)
            is_socket = kind == "socket"
            line = SocketLine(keeper.socket(name)) if is_socket else BareLine(keeper.attach(name))
        receive_until(line, b"READY")
        return line

    def measure(self, rounds: int, work: Callable[[str], float]) -> dict[str, float]:
        """The median of each kind."""
        medians = interleaved(rounds, *(partial(work, kind) for kind in self.kinds))
        return dict(zip(self.kinds, medians, strict=True))


def exchange(line: Line, typed: bytes, wanted: bytes) -> None:
    """Type, and read until the answer is there."""
    line.send(typed)
    receive_until(line, wanted)


def receive_until(line: Line, wanted: bytes) -> None:
    """Read on until that has come."""
    tail = b""
    while wanted not in tail:
        piece = line.receive()
        assert piece, "it ended"
        tail = tail[-len(wanted) :] + piece
