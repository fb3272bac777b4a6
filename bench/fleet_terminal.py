"""Row 23: a key in a terminal of another machine until its echo is seen, over a link with a delay,
beside that link's own round trip; and the same while somebody else's terminal of that machine is
flooded and not read."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from statistics import median

from bench.delayed_link import delayed_link
from bench.hubs import hub_home, run
from bench.keys import ECHO
from bench.lines import exchange, receive_until
from bench.nats_server import fleet_server, url_of
from bench.table import WAIT_SECONDS, Row, interleaved, timed, wait_until
from bullpen.client import Hub, agents
from bullpen.client.holder import Connection, connect
from bullpen.client.shell import Shell
from bullpen.home.paths import Home

ROUND_TRIP_SECONDS = 0.020
FLOOD_BYTES = 20_000_000  # far more than is let on its way for one that does not read
FLOOD = ["/bin/sh", "-c", f"read -r go; yes 0123456789abcdef | head -c {FLOOD_BYTES}; exec cat"]
SEEN_BYTES = 1 << 20


class FleetLine:
    """An agent's terminal, as a command on this machine has it."""

    def __init__(self, home: Home, name: str) -> None:
        self._connection: Connection = connect(home, name)
        fields = {"read_only": False, "rows": 24, "cols": 80}
        self._connection.send_fields(b"A", {**fields})

    def send(self, data: bytes) -> None:
        self._connection.send(b"I", data)

    def receive(self) -> bytes:
        """What is shown next: other frames may come alone, and the first screen may be empty."""
        while not (shown := self._connection.wait_for(b"PO", WAIT_SECONDS)[1]):
            pass
        return shown

    def close(self) -> None:
        self._connection.close()


def rows(short: bool) -> Iterator[Row]:
    """Medians of many keys, one after the other."""
    count, rounds = (2, 1) if short else (30, 5)
    keys = [b"%c" % (ord("a") + number % 26) for number in range(count)]
    with ExitStack() as stack:
        server = stack.enter_context(fleet_server(("h1", "h2")))
        link = stack.enter_context(delayed_link(ROUND_TRIP_SECONDS / 2, server.port))
        (here, own), (there, others) = (stack.enter_context(hub_home()) for _ in range(2))
        run(own, "fleet", "join", str(server.keys["h1"]), "--url", server.url)
        run(others, "fleet", "join", str(server.keys["h2"]), "--url", url_of(link.port))
        for name, words in (("amy", ECHO), ("flood", FLOOD)):
            shell = Shell(cwd="/", env={"PATH": os.environ["PATH"]})
            Hub(there).do(agents.start_agent(shell, name=name, words=words).unchecked())
        bare = stack.enter_context(link.open_echo())

        def trip(key: bytes) -> None:
            bare.sendall(key)
            if not bare.recv(1):
                raise ConnectionError("the link is gone")

        line = FleetLine(here, "h2/amy")
        stack.callback(line.close)
        receive_until(line, b"READY")
        line.send(b"g")

        def type_all() -> float:
            return median(timed(partial(exchange, line, key, key)) for key in keys)

        def trip_all() -> float:
            return median(timed(partial(trip, key)) for key in keys)

        what = f"key and echo elsewhere, {ROUND_TRIP_SECONDS * 1000:.0f} ms link"
        yield Row("23", what, *interleaved(rounds, type_all, trip_all), 2.0)
        slow = FleetLine(here, "h2/flood")
        stack.callback(slow.close)
        slow.send(b"go\r")
        log = there.session("flood") / "output.log"
        wait_until(lambda: log.exists() and log.stat().st_size > SEEN_BYTES)
        what = "  while somebody else does not read"
        yield Row("23", what, *interleaved(rounds, type_all, trip_all), 2.0)
