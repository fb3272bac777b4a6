"""Ports of tests: reserved until the end, so that no two tests get the same one."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port outside of those that hubs choose from, ours until the end.

    Bound and not listening: a hub of this test may listen there, again and again, and the
    kernel gives it to nobody who asks for any port.
    """
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]
