"""Ranges of ports that one test has for itself, whatever other tests run at the same time."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator

from bullpen.worktrees.ports import is_bindable

# Below those that hubs (9000) or worktrees (20000) choose from would be others; these are nobody's.
FIRST, LAST, STEP = 12000, 19900, 60


@contextlib.contextmanager
def own_range(count: int) -> Iterator[range]:
    """So many free ports that follow each other. The port after them is bound: whoever has that
    one has the range."""
    assert count < STEP
    places = range(FIRST, LAST, STEP)
    begin = os.getpid() % len(places)
    for first in [*places[begin:], *places[:begin]]:
        with contextlib.ExitStack() as stack:
            mark = stack.enter_context(socket.socket())
            try:
                mark.bind(("127.0.0.1", first + STEP - 1))
            except OSError as error:
                assert error.errno == errno.EADDRINUSE
                continue
            ports = range(first, first + count)
            if all(is_bindable(port) for port in ports):
                yield ports
                return
    raise AssertionError("no range of ports is free")


@contextlib.contextmanager
def listening(port: int, address: str = "127.0.0.1", *, listens: bool = True) -> Iterator[None]:
    """Somebody uses the port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        if listens:
            server.listen()
        yield
