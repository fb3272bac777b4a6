"""Finds what serves on this machine: asks many loopback ports for their `/status`, all at once.

Plain sockets and one poll: two hundred closed ports cost some milliseconds, and whatever
listens on an open one (any program of any user) can cost no more than the deadline and
`ANSWER_BYTES`. No token is ever sent here. What came back is believed only as a description:
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
class Found:
    """A component, and where it is. Its state is None where only its announcement was seen."""

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
        """What it is, wherever it serves."""
        return self.home_id, self.type, self.name

    def is_own(self, home_id: str) -> bool:
        return self.home_id == home_id


def scan(ports: Iterable[int], seconds: float = SCAN_SECONDS) -> list[Found]:
    """The components that answer on these ports, in time, by port."""
    found: list[Found] = []
    wanted = list(dict.fromkeys(ports))
    for start in range(0, len(wanted), AT_ONCE):
        # A time for each: who is slow among the first must not hide the rest.
        found += _scan(wanted[start : start + AT_ONCE], time.monotonic() + seconds)
    return sorted(found, key=lambda one: one.port)


def having(found: Iterable[Found], interface: Interface | None) -> list[Found]:
    """Those that have the interface; all if none is asked for."""
    return [one for one in found if interface is None or interface in one.interfaces]


def parse(port: int, answer: bytes, address: str = LOOPBACK) -> Found | None:
    """The component whose whole answer this is; None if it is none of ours."""
    head, gap, body = answer.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].split(b" ")
    if not gap or len(status) < 2 or status[1] != b"200":
        return None
    try:
        said = PublicStatus.model_validate(json.loads(body), strict=False)
    except (ValueError, RecursionError, ValidationError):
        return None
    texts = (said.name, said.version, said.home_id)
    if not all(text.isprintable() and 0 < len(text) <= TEXT_CHARACTERS for text in texts):
        return None
    return Found(
        port, said.type, said.name, said.version, said.state, said.interfaces, said.home_id, address
    )


@dataclass
class _Talk:
    port: int
    line: socket.socket
    to_send: bytes
    got: bytearray = field(default_factory=bytearray)
    is_over: bool = False

    def go_on(self, events: int) -> None:
        """As far as the socket lets us now."""
        try:
            if events & select.POLLOUT and self.to_send:
                self.to_send = self.to_send[self.line.send(self.to_send) :]
            elif events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                piece = self.line.recv(READ_BYTES)
                self.got += piece
                self.is_over = (
                    not piece or len(self.got) > ANSWER_BYTES or _is_whole(bytes(self.got))
                )
        except BlockingIOError:
            return
        except OSError:
            self.is_over = True

    @property
    def waits_for(self) -> int:
        return select.POLLOUT if self.to_send else select.POLLIN


def _scan(ports: list[int], deadline: float) -> list[Found]:
    with contextlib.ExitStack() as stack:
        talks: dict[int, _Talk] = {}
        poll = select.poll()
        for port in ports:
            line = _connect(port)
            if line is not None:
                stack.callback(line.close)
                talk = talks[line.fileno()] = _Talk(port, line, _request(port))
                poll.register(line, talk.waits_for)
        _talk(talks, poll, deadline)
        found = (parse(talk.port, bytes(talk.got)) for talk in talks.values() if talk.is_over)
        return [one for one in found if one is not None]


def _talk(talks: dict[int, _Talk], poll: select.poll, deadline: float) -> None:
    left = len(talks)
    while left:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            return
        for descriptor, events in poll.poll(seconds * 1000):
            talk = talks[descriptor]
            before = talk.waits_for
            talk.go_on(events)
            if talk.is_over:
                poll.unregister(descriptor)
                left -= 1
            elif talk.waits_for != before:
                poll.modify(descriptor, talk.waits_for)


def _is_whole(answer: bytes) -> bool:
    """Whether all that was announced is there; who announces nothing is read to the end."""
    head, gap, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*(?:\r\n|\Z)", head)
    return bool(gap) and length is not None and len(body) >= int(length[1])


def _connect(port: int) -> socket.socket | None:
    """A connection that may not be there yet; None if nobody listens."""
    line = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    line.setblocking(False)
    code = line.connect_ex((LOOPBACK, port))
    # Where nobody listened the kernel may have given us that very port, and we met ourselves.
    if code not in (0, errno.EINPROGRESS) or _is_own(line):
        line.close()
        return None
    return line


def _is_own(line: socket.socket) -> bool:
    try:
        return bool(line.getpeername() == line.getsockname())
    except OSError:
        return False  # not connected yet


def _request(port: int) -> bytes:
    return (
        f"GET /status HTTP/1.1\r\nhost: {LOOPBACK}:{port}\r\nconnection: close\r\n\r\n"
    ).encode()
