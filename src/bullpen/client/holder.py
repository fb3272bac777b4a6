"""A connection to one holder, for whoever shows or drives one agent's terminal.

Synchronous, and never blocking after the greeting: `send` queues what the holder does
not take at once, `read` gives what is there; `fileno` is for select. It needs no hub,
and knows nothing of terminals.
"""

import contextlib
import select
import socket
import time
from collections import deque
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.holder.frames import BrokenFrameError, FrameReader, frame, json_frame, parse_json
from bullpen.home.paths import Home
from bullpen.home.session_file import read_session_file

GREETING_SECONDS = 5.0
READ_BYTES = 1 << 18

Frame = tuple[bytes, bytes]


class HolderGoneError(Exception):
    """The holder closed the connection."""


class Connection:
    """One connection; its greeting has been read."""

    def __init__(self, name: str, line: socket.socket) -> None:
        self.name = name
        self.greeting: dict[str, object] = {}
        self._line = line
        self._reader = FrameReader()
        self._frames: deque[Frame] = deque()  # read, and not yet asked for
        self._queue = bytearray()

    def fileno(self) -> int:
        return self._line.fileno()

    def close(self) -> None:
        self._line.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def wants_to_write(self) -> bool:
        """Whether something waits for `flush` when the socket takes more."""
        return bool(self._queue)

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self._queue += frame(kind, payload)
        self.flush()

    def send_fields(self, kind: bytes, fields: dict[str, object]) -> None:
        self._queue += json_frame(kind, fields)
        self.flush()

    def flush(self) -> None:
        """As much as the holder takes now."""
        while self._queue:
            try:
                del self._queue[: self._line.send(self._queue)]
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):
                # It may have said goodbye: that is read next, and its absence is what counts.
                self._queue.clear()

    def read(self) -> list[Frame]:
        """The frames that are there now; HolderGoneError at the end."""
        frames = list(self._frames)
        self._frames.clear()
        if frames:
            return frames
        try:
            data = self._line.recv(READ_BYTES)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            data = b""
        if not data:
            raise HolderGoneError(self.name)
        return self._reader.feed(data)

    def wait_for(self, kinds: bytes, seconds: float = GREETING_SECONDS) -> Frame:
        """The next frame of one of these kinds; those before it are dropped, later ones kept."""
        deadline = time.monotonic() + seconds
        while True:
            frames = self.read()
            for number, received in enumerate(frames):
                if received[0] in kinds:
                    self._frames.extend(frames[number + 1 :])
                    return received
            left = deadline - time.monotonic()
            if left <= 0:
                raise _no_answer(self.name)
            writers = [self] if self.wants_to_write else []
            _, writable, _ = select.select([self], writers, [], left)
            if writable:
                self.flush()


def connect(home: Home, name: str) -> Connection:
    """A connection to the agent's holder; BullpenError when there is none. That of `HOST/AGENT` is
    on another machine, and needs the hub."""
    connection = Connection(name, _remote(home, name) if "/" in name else _local(home, name))
    try:
        connection.greeting = parse_json(connection.wait_for(b"H", GREETING_SECONDS)[1])
    except (BrokenFrameError, HolderGoneError, ValueError) as error:
        connection.close()
        raise BullpenError(f"{name}'s holder ended", kind=Kind.UNAVAILABLE) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _local(home: Home, name: str) -> socket.socket:
    path = _socket_path(home, name)
    line = _open(path, name) if path else None
    if line is None:
        raise _none_such(home, name, has_been=bool(path) and home.session(name).is_dir())
    return line


def _remote(home: Home, name: str) -> socket.socket:
    from bullpen.client.remote_holder import open_line
    from bullpen.home.settings import load_settings

    if load_settings(home.config_file).fleet.url is None:
        raise BullpenError(
            f"no agent called {name}: this machine is in no fleet",
            hint="bullpen fleet join FILE --url nats://HOST:4222",
            kind=Kind.NOT_FOUND,
        )
    return open_line(home, name)


def running(home: Home) -> list[str]:
    """Names of the agents whose holders take connections, sorted."""
    candidates = (path.name[len("agent.") : -len(".sock")] for path in _sockets(home))
    return sorted(name for name in candidates if _listens(home, name))


def running_terminals(home: Home) -> list[str]:
    """Those of them that a person can attach to."""
    return [name for name in running(home) if not read_session_file(home, name).takes_tasks]


def _sockets(home: Home) -> list[Path]:
    return list(home.sockets.glob("agent.*.sock")) if home.sockets.is_dir() else []


def _none_such(home: Home, name: str, has_been: bool) -> BullpenError:
    names = ", ".join(running(home))
    if not has_been:
        others = f"running: {names}" if names else "none is running"
        return BullpenError(f"no agent called {name} · {others}", kind=Kind.NOT_FOUND)
    if read_session_file(home, name).takes_tasks:
        return BullpenError(
            f"{name} has no terminal: it takes tasks, and none is under way",
            hint=f'bullpen task {name} "…" · bullpen history {name}',
            kind=Kind.NOT_FOUND,
        )
    return BullpenError(
        f"{name} is not running" + (f" · others are: {names}" if names else ""),
        hint=f"bullpen logs {name} shows what it wrote · bullpen restart {name}",
        kind=Kind.NOT_FOUND,
    )


def _listens(home: Home, name: str) -> bool:
    path = _socket_path(home, name)
    line = None
    with contextlib.suppress(BullpenError, OSError):
        line = _open(path, name) if path else None
    if line:
        line.close()
    return line is not None


def _socket_path(home: Home, name: str) -> Path | None:
    """None for a name that no agent can have."""
    try:
        return home.socket(name)
    except BullpenError as error:
        if error.kind is Kind.INVALID:
            return None
        raise


def _open(path: Path, name: str) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + GREETING_SECONDS
    try:
        line.setblocking(False)
        while True:
            try:
                line.connect(str(path))
                return line
            except BlockingIOError as error:
                # The queue of a busy holder is full, and Linux does not wait for room in it.
                if time.monotonic() > deadline:
                    raise _no_answer(name) from error
                time.sleep(0.005)
    except (FileNotFoundError, ConnectionRefusedError):
        line.close()
        return None
    except BaseException:
        line.close()
        raise


def _no_answer(name: str) -> BullpenError:
    return BullpenError(
        f"{name}'s holder does not answer",
        hint="it may be stopped, or the machine too busy; try again",
        kind=Kind.UNAVAILABLE,
    )
