"""Waiting for more output without asking again and again.

The holder tells every piece of output to who watches; what is printed comes from the log,
so that nothing is missed or doubled between the two. A piece may be told before it is in
the log: but what the holder answers after that, it answers with the log written.
"""

import select
from collections.abc import Iterator

from bullpen.client.holder import Connection, HolderGoneError


def wait_for_output(connection: Connection) -> Iterator[None]:
    """Once for each time that there is more in the log, until the program has ended."""
    _attach(connection)
    connection.wait_for(b"K")
    yield
    told = asked = False  # of output; for an answer
    while True:
        select.select([connection], [connection] if connection.wants_to_write else [], [])
        connection.flush()
        kinds = _read(connection)
        if b"D" in kinds:  # printing was slower than the program
            _attach(connection)
        _, answer, after = kinds.rpartition(b"S")
        told = any(kind in after for kind in b"OeD") or (told and not answer)
        if answer or b"E" in kinds:
            asked = False
            yield
        if b"E" in kinds:
            return
        if told and not asked:
            connection.send(b"S")
            asked = True


def _attach(connection: Connection) -> None:
    connection.send_fields(b"A", {"read_only": True, "replay": False})


def _read(connection: Connection) -> bytes:
    """The letters of the frames that are there; a holder that is gone has ended."""
    try:
        return b"".join(kind for kind, _ in connection.read())
    except HolderGoneError:
        return b"E"
