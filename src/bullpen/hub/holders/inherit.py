"""The TCP listeners that an earlier hub left: asked of its factory, else of the holders.

Called by `hub/main` before it binds a port. An older factory refuses the request, an older holder
passes over the frame: they have none. What is not a listener of this machine's loopback is closed.
Blocks; called in a thread. Frames and requests: docs/holder-protocol.md.
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bullpen.client.processes import find_agents
from bullpen.component.ports import LOOPBACK
from bullpen.holder.frames import BrokenFrameError, FrameReader, frame
from bullpen.holder.listeners import MOST
from bullpen.home.paths import Home
from bullpen.hub.kept_ports import Listeners

ANSWER_SECONDS = 2.0  # of a holder: one that is stopped must not keep the hub from starting
FACTORY_SECONDS = 10.0  # it forks to answer, and the machine may be busy
LISTEN_SECONDS = 10.0  # for holders that were told to
LOOK_AGAIN_SECONDS = 0.005
AT_ONCE = 16
PIECE_BYTES = 1 << 16


def find_listeners(factory_socket: Path) -> Listeners:
    """The listeners of the home's last hub, by port. Holders' sockets lie beside the factory's."""
    listeners: Listeners = {}
    if _ask_factory(factory_socket, listeners):
        return listeners
    adding = threading.Lock()

    def ask(path: Path) -> None:
        given = _ask_holder(path)
        with adding:
            _add(listeners, given)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(ask, factory_socket.parent.glob("agent.*.sock")))
    return listeners


def find_again(home: Home) -> Listeners:
    """The same if somebody has deleted the sockets: holders are told to make theirs anew."""
    agents = find_agents(home)
    for agent in agents:
        with contextlib.suppress(ProcessLookupError):
            os.kill(agent.pid, signal.SIGUSR1)
    deadline = time.monotonic() + LISTEN_SECONDS
    while not all(_listens(home.socket(agent.name)) for agent in agents):
        if time.monotonic() > deadline:
            break
        time.sleep(LOOK_AGAIN_SECONDS)
    return find_listeners(home.factory_socket)


def _listens(path: Path) -> bool:
    """A socket has its file a moment before it listens."""
    try:
        _connected(path).close()
    except OSError:
        return False
    return True


def _ask_factory(path: Path, listeners: Listeners) -> bool:
    """Whether it knows the request."""
    given: list[int] = []
    answer = b""
    with contextlib.suppress(OSError), _connected(path, FACTORY_SECONDS) as line:
        line.sendall(b'{"do": "listeners"}\n')
        while not answer.endswith(b"\n"):
            piece, descriptors, _, _ = socket.recv_fds(line, PIECE_BYTES, MOST)
            given += descriptors
            answer += piece
            if not piece:
                break
    _add(listeners, given)
    return answer.endswith(b"\n") and json.loads(answer)["ok"] is True


def _ask_holder(path: Path) -> list[int]:
    """What it gives. The status is asked, too: every version answers that, and it comes last."""
    given: list[int] = []
    frames = FrameReader()
    kinds: set[bytes] = set()
    with contextlib.suppress(OSError, BrokenFrameError), _connected(path) as line:
        line.sendall(frame(b"L") + frame(b"S"))
        while not kinds & {b"S", b"E"}:
            piece, descriptors, _, _ = socket.recv_fds(line, PIECE_BYTES, MOST)
            given += descriptors
            if not piece:
                break
            kinds |= {kind for kind, _payload in frames.feed(piece)}
    return given


def _connected(path: Path, seconds: float = ANSWER_SECONDS) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.settimeout(seconds)
        line.connect(str(path))
    except BaseException:
        line.close()
        raise
    return line


def _add(listeners: Listeners, descriptors: list[int]) -> None:
    """Each port once; a port that was closed meanwhile is none."""
    for descriptor in descriptors:
        listener = socket.socket(fileno=descriptor)
        listener.set_inheritable(False)
        if _is_ours(listener) and listener.getsockname()[1] not in listeners:
            listeners[listener.getsockname()[1]] = listener
        else:
            listener.close()


def _is_ours(listener: socket.socket) -> bool:
    return (
        (listener.family, listener.type) == (socket.AF_INET, socket.SOCK_STREAM)
        and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        and listener.getsockname()[0] == LOOPBACK
    )
