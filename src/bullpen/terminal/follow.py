"""Waits for more output of an agent without polling.

The holder reports every piece of output to its clients; what is printed comes from the log, so
that nothing is missed or printed twice. A report may come before the piece is in the log. An
answer of the holder that comes after the report proves that it is.
"""

import select
from collections.abc import Iterator

from bullpen.client.holder import Connection, HolderGoneError


def wait_for_output(connection: Connection) -> Iterator[None]:
    """Once for each time that there is more in the log, until the program has ended."""
    _attach(connection)
    connection.wait_for(b"K")
    yield
    has_output = is_asked = False  # of output; for an answer
    while True:
        select.select([connection], [connection] if connection.wants_to_write else [], [])
        connection.flush()
        kinds = _read(connection)
        if b"D" in kinds:  # printing was slower than the program
            _attach(connection)
        _, answer, after = kinds.rpartition(b"S")
        has_output = any(kind in after for kind in b"OeD") or (has_output and not answer)
        if answer or b"E" in kinds:
            is_asked = False
            yield
        if b"E" in kinds:
            return
        if has_output and not is_asked:
            connection.send(b"S")
            is_asked = True


def _attach(connection: Connection) -> None:
    connection.send_fields(b"A", {"read_only": True, "replay": False})


def _read(connection: Connection) -> bytes:
    """The letters of the frames that are there; a holder that is gone has ended."""
    try:
        return b"".join(kind for kind, _ in connection.read())
    except HolderGoneError:
        return b"E"
