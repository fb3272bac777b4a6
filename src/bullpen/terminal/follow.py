"""Waiting for more output without asking again and again.

The holder tells every piece of output to who watches; what is printed comes from the log,
so that nothing is missed or doubled between the two.
"""

import select
from collections.abc import Iterator

from bullpen.client.holder import Connection, HolderGoneError


def wait_for_output(connection: Connection) -> Iterator[None]:
    """Once for each time that there may be more in the log, until the program has ended."""
    attach: dict[str, object] = {"read_only": True, "replay": False}
    connection.send_fields(b"A", attach)
    connection.wait_for(b"K")
    yield
    while True:
        select.select([connection], [connection] if connection.wants_to_write else [], [])
        try:
            kinds = {kind for kind, _ in connection.read()}
        except HolderGoneError:
            yield
            return
        if b"D" in kinds:  # printing was slower than the program
            connection.send_fields(b"A", attach)
        if kinds & {b"O", b"e", b"D"}:
            yield
        if b"E" in kinds:
            yield
            return
