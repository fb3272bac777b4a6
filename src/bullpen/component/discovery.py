"""Finds components of this machine: asks many loopback ports for their `/status`, all at once.

Called by `discover`, `shutdown`, `doctor` and `component/watcher`. Uses plain sockets and one poll:
two hundred closed ports cost some milliseconds, and an open one (of any program of any user) costs
no more than the deadline and `ANSWER_BYTES`. Never sends a token. An answer is only a description:
who may be commanded is not decided by it.
"""

import contextlib
import errno
import json
import re
import select
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import ValidationError

from bullpen.component.ports import LOOPBACK
from bullpen.model.component import Interface, PublicStatus

SCAN_SECONDS = 1.0
ANSWER_BYTES = 1 << 16
READ_BYTES = 1 << 14
TEXT_CHARACTERS = 100
# Descriptors in use at the same time.
AT_ONCE = 512


@dataclass(frozen=True)
class DiscoveredComponent:
    """A component that answered or was announced. Its state is None if it was only announced."""

    port: int
    type: str
    name: str
    version: str
    state: str | None
    interfaces: tuple[str, ...]
    home_id: str
    address: str = LOOPBACK

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is, at whichever port."""
        return self.home_id, self.type, self.name

    def is_own(self, home_id: str) -> bool:
        return self.home_id == home_id


def scan(ports: Iterable[int], seconds: float = SCAN_SECONDS) -> list[DiscoveredComponent]:
    """The components that answer on these ports, in time, by port."""
    components: list[DiscoveredComponent] = []
    wanted = list(dict.fromkeys(ports))
    for start in range(0, len(wanted), AT_ONCE):
        # Each batch has its own deadline: slow ones of the first must not hide the rest.
        components += _scan(wanted[start : start + AT_ONCE], time.monotonic() + seconds)
    return sorted(components, key=lambda one: one.port)


def having(
    components: Iterable[DiscoveredComponent], interface: Interface | None
) -> list[DiscoveredComponent]:
    """Those that have the interface; all if it is None."""
    return [one for one in components if interface is None or interface in one.interfaces]


def parse(port: int, answer: bytes, address: str = LOOPBACK) -> DiscoveredComponent | None:
    """The component whose whole answer this is; None if it is none of ours."""
    head, gap, body = answer.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].split(b" ")
    if not gap or len(status) < 2 or status[1] != b"200":
        return None
    try:
        shown = PublicStatus.model_validate(json.loads(body), strict=False)
    except (ValueError, RecursionError, ValidationError):
        return None
    texts = (shown.name, shown.version, shown.home_id)
    if not all(text.isprintable() and 0 < len(text) <= TEXT_CHARACTERS for text in texts):
        return None
    return DiscoveredComponent(
        port=port,
        type=shown.type,
        name=shown.name,
        version=shown.version,
        state=shown.state,
        interfaces=shown.interfaces,
        home_id=shown.home_id,
        address=address,
    )


@dataclass
class _Exchange:
    """One request and its answer, so far."""

    port: int
    connection: socket.socket
    to_send: bytes
    answer: bytearray = field(default_factory=bytearray)
    is_over: bool = False

    def go_on(self, events: int) -> None:
        """Send and read what the socket takes and has now."""
        try:
            if events & select.POLLOUT and self.to_send:
                self.to_send = self.to_send[self.connection.send(self.to_send) :]
            elif events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                piece = self.connection.recv(READ_BYTES)
                self.answer += piece
                self.is_over = (
                    not piece or len(self.answer) > ANSWER_BYTES or _is_whole(bytes(self.answer))
                )
        except BlockingIOError:
            return
        except OSError:
            self.is_over = True

    @property
    def waits_for(self) -> int:
        return select.POLLOUT if self.to_send else select.POLLIN


def _scan(ports: list[int], deadline: float) -> list[DiscoveredComponent]:
    with contextlib.ExitStack() as stack:
        exchanges: dict[int, _Exchange] = {}
        poll = select.poll()
        for port in ports:
            connection = _connect(port)
            if connection is not None:
                stack.callback(connection.close)
                exchange = _Exchange(port, connection, _request(port))
                exchanges[connection.fileno()] = exchange
                poll.register(connection, exchange.waits_for)
        _exchange(exchanges, poll, deadline)
        over = (one for one in exchanges.values() if one.is_over)
        components = (parse(one.port, bytes(one.answer)) for one in over)
        return [one for one in components if one is not None]


def _exchange(exchanges: dict[int, _Exchange], poll: select.poll, deadline: float) -> None:
    left = len(exchanges)
    while left:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            return
        for descriptor, events in poll.poll(seconds * 1000):
            exchange = exchanges[descriptor]
            before = exchange.waits_for
            exchange.go_on(events)
            if exchange.is_over:
                poll.unregister(descriptor)
                left -= 1
            elif exchange.waits_for != before:
                poll.modify(descriptor, exchange.waits_for)


def _is_whole(answer: bytes) -> bool:
    """Whether the body has its `Content-Length`; without that header it is read to the end."""
    head, gap, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*(?:\r\n|\Z)", head)
    return bool(gap) and length is not None and len(body) >= int(length[1])


def _connect(port: int) -> socket.socket | None:
    """A connection that may not be there yet; None if nobody listens."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.setblocking(False)
    code = connection.connect_ex((LOOPBACK, port))
    # If nobody listens the kernel may give us that very port: we would be connected to ourselves.
    if code not in (0, errno.EINPROGRESS) or _is_own(connection):
        connection.close()
        return None
    return connection


def _is_own(connection: socket.socket) -> bool:
    try:
        return bool(connection.getpeername() == connection.getsockname())
    except OSError:
        return False  # not connected yet


def _request(port: int) -> bytes:
    return (
        f"GET /status HTTP/1.1\r\nhost: {LOOPBACK}:{port}\r\nconnection: close\r\n\r\n"
    ).encode()
