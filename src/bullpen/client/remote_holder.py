"""A connection to the holder of an agent on another machine, as if it were here.

Called by `client/holder` for `HOST/AGENT`. A WebSocket of this home's hub carries the bytes of the
holder's own protocol; two threads pass them to and from a socket. Each waits for the other end to
take what it has: a slow terminal slows its own stream, and nobody else's.
"""

import contextlib
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING

from bullpen.client import terminals
from bullpen.client.hub import Hub
from bullpen.home.paths import Home

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

PIECE_BYTES = 1 << 16


def open_line(home: Home, name: str) -> socket.socket:
    """This end of it, not blocking; BullpenError if that agent has no holder to talk to."""
    ending = contextlib.ExitStack()
    web = ending.enter_context(Hub(home, start=False).open(terminals.hold(name)))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    for work in (_pass_in, partial(_pass_out, ending)):
        threading.Thread(target=work, args=(web, theirs), daemon=True).start()
    return ours


def _pass_in(web: "ClientConnection", line: socket.socket) -> None:
    """What the holder says, to this machine."""
    from websockets.exceptions import ConnectionClosed

    with contextlib.suppress(OSError, ConnectionClosed):
        while True:
            data = web.recv()
            line.sendall(data if isinstance(data, bytes) else data.encode())
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def _pass_out(ending: contextlib.ExitStack, web: "ClientConnection", line: socket.socket) -> None:
    """What this machine says, to the holder; at its end all is closed."""
    from websockets.exceptions import ConnectionClosed

    with contextlib.suppress(OSError, ConnectionClosed):
        while data := line.recv(PIECE_BYTES):
            web.send(data)
    ending.close()
    line.close()
