"""The system calls that no namespace confines, blocked by a filter (seccomp). Pure.

Blocked are the calls to keyrings, where the login session's keys are found, and sockets to the
machine around a virtual one, which belong to no network. Everything else is allowed.
"""

import errno
import platform
import socket
import struct
from collections.abc import Iterator

AF_VSOCK = getattr(socket, "AF_VSOCK", 40)
# By the kernel's names: add_key, request_key, keyctl; a ring takes orders for all other calls, past
# any filter; `socket`. A second row is of the older programs that the processor can run as well.
NUMBERS: dict[str, dict[int, tuple[tuple[int, ...], int]]] = {
    "x86_64": {
        0xC000003E: ((248, 249, 250, 425), 41),
        0x40000003: ((286, 287, 288, 425, 102), 359),  # 102: sockets by a list in memory
    },
    "aarch64": {0xC00000B7: ((217, 218, 219, 425), 198)},
}
X32 = 0x40000000  # x86_64's numbers once more, under other numbers
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # where they lie in `struct seccomp_data`
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


def program(machine: str | None = None) -> bytes:
    """The filter for this kind of processor; empty where none is known."""
    kinds = NUMBERS.get(machine or platform.machine(), {})
    return b"".join(_words(kinds)) if kinds else b""


def _words(kinds: dict[int, tuple[tuple[int, ...], int]]) -> Iterator[bytes]:
    for architecture, (refused, opens) in kinds.items():
        body = list(_body(refused, opens))
        yield _word(LOAD, ARCHITECTURE)
        yield _word(EQUAL, architecture, 0, len(body))
        yield from body
    yield _word(RETURN, REFUSE | errno.ENOSYS)  # programs for a processor that we do not know


def _body(refused: tuple[int, ...], opens: int) -> Iterator[bytes]:
    yield _word(LOAD, NUMBER)
    for number in refused:
        yield from (_word(EQUAL, number, 0, 1), _word(RETURN, REFUSE | errno.ENOSYS))
    yield from (_word(AT_LEAST, X32, 0, 1), _word(RETURN, REFUSE | errno.ENOSYS))
    yield _word(EQUAL, opens, 1, 0)
    yield _word(RETURN, ALLOW)
    yield _word(LOAD, FIRST_ARGUMENT)
    yield from (_word(EQUAL, AF_VSOCK, 0, 1), _word(RETURN, REFUSE | errno.EAFNOSUPPORT))
    yield _word(RETURN, ALLOW)


def _word(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    """One `struct sock_filter`."""
    return struct.pack("=HBBI", code, if_so, if_not, value)
