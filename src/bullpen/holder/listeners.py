"""The hub's TCP listeners, kept while it is away: its ports are never free while an agent lives.

The hub hands them to the factory over the *line*, a pair of sockets; the hub alone has the other
end, so the line ends with the hub. Holders inherit the listeners by fork, programs do not: exec
closes them. Factory and holders give them to the next hub. Connections that come meanwhile wait in
the kernel's queue for that hub, but not for long: then the factory takes each one and closes it. A
holder never does.
"""

import os
import select
import struct
import sys
import time
from _socket import (
    AF_INET,
    AF_UNIX,
    CMSG_SPACE,
    SCM_RIGHTS,
    SOCK_STREAM,
    SOL_SOCKET,
    socket,
)
from collections.abc import Iterable

from bullpen.holder.frames import HEADER

# What the hub says on the line: a type and a number.
KEEP = b"K"  # the listeners that come with it
DROP = b"D"  # the listener of that port
TURN_AWAY = b"T"  # the hub was stopped: nobody has to wait for the next one

MOST = 250  # the kernel passes at most 253 in one message
NUMBER = struct.Struct("i")
WAIT_SECONDS = 10.0  # for the next hub, after one has died
LOOK_SECONDS = 30.0  # between two looks whether an agent lives


class KeptListeners:
    """The listeners of a factory, and what becomes of those who connect to them."""

    def __init__(self, socket_path: str, line: int | None) -> None:
        self.path = socket_path
        self.listeners: dict[int, socket] = {}
        self.line = None if line is None else socket(AF_UNIX, SOCK_STREAM, 0, line)
        self.poll = select.poll()
        self.turns_away = False
        self.due: float | None = None  # something is to be done at that time
        self.socket_id = _identity(socket_path)
        if self.line is not None:
            self.line.setblocking(False)
            self.poll.register(self.line, select.POLLIN)

    def inherit(self) -> tuple[socket, ...]:
        """In a process that was forked: what it keeps. The line is the factory's alone."""
        if self.line is not None:
            self.line.close()
        return tuple(self.listeners.values())

    def wait(self) -> set[int]:
        """Until a descriptor that the factory watches is ready; which are."""
        left = None if self.due is None else max(0.0, self.due - time.monotonic()) * 1000 + 1
        return {descriptor for descriptor, _ in self.poll.poll(left)}

    def tend(self, ready: set[int]) -> None:
        """Do what the hub has said, and what is due. Ends the process if nobody needs it."""
        while self.line is not None and self._hear(self.line):
            pass
        if self.turns_away and not ready.isdisjoint(map(socket.fileno, self.listeners.values())):
            self._leave_if_replaced()
            for listener in self.listeners.values():
                if listener.fileno() in ready:
                    _close_next(listener)
        if self.due is not None and self.due <= time.monotonic():
            self._leave_if_replaced()
            self._turn_away()
            if not any_agent_lives(os.path.dirname(self.path)):  # noqa: PTH120
                sys.exit()
            self.due = time.monotonic() + LOOK_SECONDS

    def _leave_if_replaced(self) -> None:
        """Nobody can reach us any more: the next hub has a factory of its own, and would not
        have what we take."""
        if _identity(self.path) != self.socket_id:
            sys.exit()

    def _hear(self, line: socket) -> bool:
        """One thing that the hub says; False when there is nothing more now."""
        try:
            head, rights, *_ = line.recvmsg(HEADER.size, CMSG_SPACE(NUMBER.size * MOST))
        except BlockingIOError:
            return False
        except OSError:
            head, rights = b"", []
        if len(head) < HEADER.size:
            self._hub_is_gone(line)
            return False
        kind, number = HEADER.unpack(head)
        if kind == KEEP:
            for _, _, data in rights:
                self._keep(data)
        elif kind == DROP:
            self._drop(number)
        elif kind == TURN_AWAY:
            self._turn_away()
        return True

    def _keep(self, data: bytes) -> None:
        for (descriptor,) in NUMBER.iter_unpack(data[: len(data) // NUMBER.size * NUMBER.size]):
            os.set_inheritable(descriptor, False)
            listener = socket(AF_INET, SOCK_STREAM, 0, descriptor)
            listener.setblocking(False)
            port = listener.getsockname()[1]
            self._drop(port)
            self.listeners[port] = listener

    def _drop(self, port: int) -> None:
        listener = self.listeners.pop(port, None)
        if listener is not None:
            if self.turns_away:
                self.poll.unregister(listener)
            listener.close()

    def _hub_is_gone(self, line: socket) -> None:
        self.poll.unregister(line)
        line.close()
        self.line = None
        self.due = time.monotonic() + (LOOK_SECONDS if self.turns_away else WAIT_SECONDS)

    def _turn_away(self) -> None:
        """Nobody waits from now on."""
        if not self.turns_away:
            self.turns_away = True
            for listener in self.listeners.values():
                self.poll.register(listener, select.POLLIN)


def _close_next(listener: socket) -> None:
    """Close one connection, if one waits."""
    try:
        connection, _ = listener._accept()  # type: ignore[attr-defined]
    except OSError:
        return
    os.close(connection)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def any_agent_lives(directory: str) -> bool:
    """Whether a holder listens in that directory: it takes the connection, or is too busy to."""
    try:
        names = os.listdir(directory)  # noqa: PTH208
    except OSError:
        return False
    for name in names:
        if name.startswith("agent.") and name.endswith(".sock"):
            probe = socket(AF_UNIX, SOCK_STREAM)
            probe.setblocking(False)
            try:
                probe.connect(f"{directory}/{name}")
            except (ConnectionRefusedError, FileNotFoundError):
                continue
            except OSError:
                pass
            finally:
                probe.close()
            return True
    return False


def give(listeners: Iterable[socket], connection: int, data: bytes) -> int:
    """Send the bytes, and with them the listeners; how many bytes were sent now. With more than
    fit into one message go the first bytes, one with each message."""
    numbers = [NUMBER.pack(listener.fileno()) for listener in listeners]
    line = socket(AF_UNIX, SOCK_STREAM, 0, connection)
    sent = 0
    try:
        while len(numbers) > MOST:
            sent += line.sendmsg([data[sent : sent + 1]], [_rights(numbers[:MOST])])
            del numbers[:MOST]
        return sent + line.sendmsg([data[sent:]], [_rights(numbers)] if numbers else [])
    except BlockingIOError:
        return sent
    finally:
        line.detach()


def _rights(numbers: list[bytes]) -> tuple[int, int, bytes]:
    return SOL_SOCKET, SCM_RIGHTS, b"".join(numbers)
