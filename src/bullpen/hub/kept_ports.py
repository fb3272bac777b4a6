"""The loopback TCP ports of this hub: its own, and those of agents. They outlive it.

Each listener is handed to the factory over its line (`holder/listeners`), which keeps it when the
hub is gone. Called by `hub/listen` and `hub/tasks/ports` to open and close ports, by `hub/main`
when the hub starts and leaves, by `holders/factory` for each new factory. Answers nothing there.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Callable

from bullpen.component import ports
from bullpen.holder.frames import HEADER
from bullpen.holder.listeners import DROP, KEEP, MOST, TURN_AWAY

Listeners = dict[int, socket.socket]
Close = Callable[[], None]


class KeptPorts:
    """All listeners, by port. `found` are those of an earlier hub. Lives on one event loop."""

    def __init__(self, listeners: Listeners | None = None) -> None:
        self._listeners: Listeners = dict(listeners or {})
        self._used: set[int] = set()
        self._spare: dict[int, Close] = {}  # served though nobody has asked for them
        self._line: socket.socket | None = None

    def add(self, listeners: Listeners) -> bool:
        """More of an earlier hub; whether there is a port that was not known."""
        new = listeners.keys() - self._listeners.keys()
        for port, listener in listeners.items():
            if port in new:
                self._listeners[port] = listener
            else:
                listener.close()
        return bool(new)

    def listen(self, port: int) -> socket.socket:
        """A listening socket, the caller's to close; OSError if the port cannot be had."""
        if port in self._used:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        if port not in self._listeners:
            self._listeners[port] = ports.listen(port)
            self._listeners[port].setblocking(False)
            self._say(KEEP, 0, [self._listeners[port]])
        if port in self._spare:
            self._spare.pop(port)()
        self._used.add(port)
        return _duplicate(self._listeners[port])

    def release(self, port: int) -> None:
        """The port is no longer needed. Holders still have the listener: it is shut down, else
        they would keep the port, and whoever connects there would wait for ever."""
        self._used.discard(port)
        listener = self._listeners.pop(port, None)
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            self._say(DROP, port)

    def serve_rest(self, serve: Callable[[socket.socket], Close]) -> None:
        """Serve also what nobody has asked for, such as the port before `port` was changed:
        running agents know it. Who asks for it later gets it."""
        for port in self._listeners.keys() - self._used - self._spare.keys():
            self._spare[port] = serve(_duplicate(self._listeners[port]))

    # ── the factory ──

    def hand_to(self, line: socket.socket) -> None:
        """Hand all of them to a new factory, over its line; there may be none left at its end."""
        if self._line is not None:
            self._line.close()
        self._line = line
        listeners = list(self._listeners.values())
        for first in range(0, len(listeners), MOST):
            self._say(KEEP, 0, listeners[first : first + MOST])

    def turn_away(self) -> None:
        """The hub was stopped: nobody has to wait for the next one."""
        self._say(TURN_AWAY)

    def close(self) -> None:
        """The hub leaves. Said outright: a process that ends gives up its lock, and a while later
        its ports, which the next hub would find taken. Factory and holders keep theirs."""
        for listener in self._listeners.values():
            listener.close()

    def _say(
        self, kind: bytes, number: int = 0, listeners: list[socket.socket] | None = None
    ) -> None:
        if self._line is not None:
            numbers = [listener.fileno() for listener in listeners or ()]
            # A factory that is gone is replaced, and the next one is told everything.
            with contextlib.suppress(OSError):
                socket.send_fds(self._line, [HEADER.pack(kind, number)], numbers)


def _duplicate(listener: socket.socket) -> socket.socket:
    """`dup` of the standard library makes it blocking, for everybody who has it: the old factory
    would wait in `accept`, and take a connection that is ours."""
    return socket.socket(fileno=os.dup(listener.fileno()))
