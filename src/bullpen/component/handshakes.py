"""Accepts the connections of a TLS listener, and bounds those whose handshake is under way.

Used by `component/http_server`. asyncio's own server tells nobody of a handshake that failed, and
ends none to make room: strangers who say nothing would have all places. Here they have few, and
the oldest of whoever has most of them goes first. What is said afterwards is none of its business.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from bullpen.component.network import network_of

MOST_HANDSHAKES = 128
HANDSHAKE_SECONDS = 10.0
FULL_SECONDS = 0.1  # without descriptors, until the next look


class TlsServer:
    """Serves until it is closed. `connection` makes the protocol of each; `failed` is called for
    each that comes to nothing."""

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        connection: Callable[[], asyncio.Protocol],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._listener = listener
        self._context = context
        self._connection = connection
        self._failed = failed
        self._under_way: dict[asyncio.Task[None], str] = {}  # by network, the oldest first
        listener.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="accept")

    def close(self) -> None:
        """Let nobody in any more. Connections that are open stay open."""
        self._accepting.cancel()
        for handshake in self._under_way:
            handshake.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    line, address = await loop.sock_accept(self._listener)
                except OSError:  # no descriptor is free, or the client has left
                    await asyncio.sleep(FULL_SECONDS)
                    continue
                if len(self._under_way) >= MOST_HANDSHAKES:
                    self._end_one()
                handshake = loop.create_task(self._shake_hands(line), name="TLS handshake")
                self._under_way[handshake] = network_of(address[0])
                handshake.add_done_callback(lambda done: self._under_way.pop(done, None))
                await asyncio.sleep(0)  # it begins, and so does what waits beside it
        finally:
            self._listener.close()  # here: uvloop must have let go of it before

    async def _shake_hands(self, line: socket.socket) -> None:
        # It fails for what is no TLS, is too slow, or does not trust the certificate yet.
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._connection,
                line,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
        except OSError:
            self._failed()
        except asyncio.CancelledError:
            self._failed()
            raise

    def _end_one(self) -> None:
        numbers = Counter(self._under_way.values())
        busiest = max(numbers, key=numbers.__getitem__)
        victim = next(one for one, network in self._under_way.items() if network == busiest)
        del self._under_way[victim]
        victim.cancel()
