"""One holder: a loop over the program's output, its clients and its end.

Single-threaded. The program is never stalled by a client: one that does not read is
dropped from the live stream. A client is stalled by the program alone, when it has
typed more than the program takes.
"""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable

from bullpen.holder import VERSION, child
from bullpen.holder.answers import cut_half_answer, without_answers
from bullpen.holder.client import Client
from bullpen.holder.frames import BrokenFrameError, frame, json_frame, parse_json
from bullpen.holder.log import Log
from bullpen.holder.records import LAST_BYTES, exit_record, write_exit
from bullpen.holder.request import Request
from bullpen.holder.ring import Ring

READ = 1 << 16
BACKLOG = 128
INPUT_BYTES = 1 << 18  # queued for the program before its typist has to wait
NUDGE_SECONDS = 0.05
REOPEN_SECONDS = 0.5
ACCEPT_SECONDS = 0.5
SWEEP_SECONDS = 10.0
FAREWELL_SECONDS = 2.0  # without any progress
LONGEST_FAREWELL_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 86_400.0  # poll takes no more than 2^31 ms; a later turn waits on
DEFAULT_GRACE = 10.0


class Holder:
    """The program, its clients, and the loop between them."""

    def __init__(
        self,
        request: Request,
        listener: socket.socket,
        program: child.Child,
        log: Log,
        error_log: Log | None,
        started: float,
    ) -> None:
        self.request = request
        self.listener = listener
        self.child = program
        self.log = log
        self.is_pty = request.is_pty
        self.error_log = error_log  # in pipe mode
        self.socket_id = _identity(request.socket)
        self.ring = Ring(request.ring_bytes)
        self.rows, self.cols = request.rows, request.cols
        self.clients: dict[int, Client] = {}
        self.active: Client | None = None
        self.input = bytearray()
        self.close_input = False
        self.status: int | None = None  # as waitpid gave it
        self.stopping_until: float | None = None
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.started = started
        self.bytes = 0
        self.last_output = self.last_input = 0.0
        self.poll = select.poll()
        self.wake, wake_write = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, _nothing)
        signal.signal(signal.SIGTERM, lambda *_: self.stop(DEFAULT_GRACE))
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)

    # ── the loop ──

    def run(self) -> None:
        for descriptor in (self.listener.fileno(), self.wake, self.child.output, self.child.error):
            if descriptor >= 0:
                self.poll.register(descriptor, select.POLLIN)
        self._reap()  # it may have ended before SIGCHLD was ours to hear
        while self.status is None:
            self.turn(self._timeout())
        self.finish()

    def turn(self, milliseconds: float | None) -> None:
        for descriptor, events in self.poll.poll(milliseconds):
            self._dispatch(descriptor, events)
        now = time.monotonic()
        due = [timer for timer in self.timers if timer[0] <= now]
        self.timers = [timer for timer in self.timers if timer[0] > now]
        for _, action in due:
            action()

    def _dispatch(self, descriptor: int, events: int) -> None:
        if descriptor == self.child.output:
            if events & select.POLLOUT:  # a terminal is both
                self._write_input()
            if events & ~select.POLLOUT:
                self._read_output()
        elif descriptor == self.child.error:
            self._read_error()
        elif descriptor == self.wake:
            self._wake_up()
        elif descriptor == self.listener.fileno():
            self._accept()
        elif descriptor == self.child.input:
            self._write_input()
        elif descriptor in self.clients:
            self._serve(self.clients[descriptor], events)

    def _wake_up(self) -> None:
        try:
            signals = os.read(self.wake, 512)
        except BlockingIOError:
            return
        self._reap()
        if signal.SIGUSR1 in signals:
            self._listen_again()

    def _reap(self) -> None:
        ended, _ = child.reap()
        self.status = ended.get(self.child.pid, self.status)

    def _timeout(self) -> float | None:
        if not self.timers:
            return None
        wait = max(0.0, min(when for when, _ in self.timers) - time.monotonic())
        return min(wait, LONGEST_WAIT_SECONDS) * 1000 + 1

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append((time.monotonic() + seconds, action))

    # ── the program's output and input ──

    def _read_output(self) -> bool:
        """One piece of it to log, ring and clients; False when there is none now."""
        try:
            data = os.read(self.child.output, READ)
        except BlockingIOError:
            return False
        except OSError:  # EIO: nobody has the terminal open right now
            self._pause_output()
            return False
        if not data:
            self.poll.unregister(self.child.output)
            os.close(self.child.output)
            self.child.output = -1
            return False
        self.bytes += len(data)
        self.last_output = time.time()
        self.log.write(data)
        self.ring.write(data)
        self._broadcast(frame(b"O", data))
        return True

    def _read_error(self) -> bool:
        try:
            data = os.read(self.child.error, READ)
        except BlockingIOError:
            return False
        if not data:
            self.poll.unregister(self.child.error)
            os.close(self.child.error)
            self.child.error = -1
            return False
        if self.error_log:
            self.error_log.write(data)
        self._broadcast(frame(b"e", data))
        return True

    def _pause_output(self) -> None:
        """Look again later: a program may close its terminal and open it again.

        (Closing our end would hang it up.)
        """
        with contextlib.suppress(KeyError):
            self.poll.unregister(self.child.output)
            self.after(REOPEN_SECONDS, self._watch_input)

    def _broadcast(self, data: bytes) -> None:
        for client in list(self.clients.values()):
            if client.live:
                self._send(client, data)
                if client.live and client.is_slow:
                    try:
                        client.drop()
                    except OSError:
                        self._forget(client)
                self._watch(client)

    def _write_input(self) -> None:
        try:
            written = os.write(self.child.input, self.input[:READ])
        except BlockingIOError:
            written = 0
        except OSError:
            written = len(self.input)  # it no longer listens
        del self.input[:written]
        if len(self.input) <= INPUT_BYTES:
            for client in self.clients.values():
                if client.waits:
                    client.waits = False
                    self._watch(client)
        self._watch_input()

    def _watch_input(self) -> None:
        descriptor = self.child.input
        if descriptor < 0:
            return
        wants = select.POLLOUT if self.input else 0
        if self.is_pty:
            self.poll.register(descriptor, select.POLLIN | wants)
        elif wants:
            self.poll.register(descriptor, wants)
        else:
            with contextlib.suppress(KeyError):
                self.poll.unregister(descriptor)
            if self.close_input:
                os.close(descriptor)
                self.child.input = -1

    # ── clients ──

    def _accept(self) -> bool:
        """One who came; False when there is none, or he has to wait."""
        try:
            connection, _ = self.listener.accept()
        except (BlockingIOError, ConnectionError):
            return False
        except OSError:  # no descriptor is free: those that wait are served when one is
            with contextlib.suppress(KeyError):
                self.poll.unregister(self.listener)
            self.after(ACCEPT_SECONDS, self._watch_listener)
            return False
        client = Client(connection)
        self.clients[connection.fileno()] = client
        self.poll.register(connection.fileno(), select.POLLIN)
        self._send(client, json_frame(b"H", self.greeting()))
        self._watch(client)
        return True

    def _watch_listener(self) -> None:
        self.poll.register(self.listener, select.POLLIN)

    def greeting(self) -> dict[str, object]:
        return {
            "version": VERSION,
            "name": self.request.name,
            "pid": os.getpid(),
            "child": self.child.pid,
            "mode": self.request.mode,
            "rows": self.rows,
            "cols": self.cols,
            "started": self.started,
            "tag": self.request.tag,
        }

    def _listen_again(self) -> None:
        """Somebody deleted the socket: make it anew, under the same path."""
        if os.path.lexists(self.request.socket):
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self.request.socket)  # 0600 by the umask
            listener.listen(BACKLOG)
        except OSError:  # no directory for it, or no room; whoever signalled sees that
            listener.close()
            return
        listener.setblocking(False)
        with contextlib.suppress(KeyError):  # not watched while no descriptor is free
            self.poll.unregister(self.listener)
        while self._accept():
            pass  # those who came by the old one
        self.listener.close()
        self.listener = listener
        self.socket_id = _identity(self.request.socket)
        self._watch_listener()

    def _send(self, client: Client, data: bytes) -> None:
        try:
            client.send(data)
        except OSError:
            self._forget(client)

    def _watch(self, client: Client) -> None:
        descriptor = client.connection.fileno()
        if descriptor in self.clients:
            # Nothing more is asked of us by one that does not take the answers.
            wants = 0 if client.waits or client.is_slow else select.POLLIN
            self.poll.modify(descriptor, wants | (select.POLLOUT if client.queue else 0))

    def _forget(self, client: Client) -> None:
        descriptor = client.connection.fileno()
        if self.clients.pop(descriptor, None) is not None:
            self.poll.unregister(descriptor)
            client.live = False
            client.connection.close()
            if self.active is client:  # the size stays, but somebody has to answer the program
                others = (c for c in reversed(self.clients.values()) if c.attached)
                self.active = next((c for c in others if not c.read_only), None)

    def _serve(self, client: Client, events: int) -> None:
        try:
            if events & select.POLLOUT:
                client.flush()
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                data = client.connection.recv(READ)
                if not data:
                    self._forget(client)
                    return
                for kind, payload in client.reader.feed(data):
                    self._handle(client, kind, payload)
        except BlockingIOError:
            pass
        except BrokenFrameError as error:
            self._fail(client, b"?", str(error))
            self._forget(client)
        except OSError:
            self._forget(client)
        self._watch(client)

    def _handle(self, client: Client, kind: bytes, payload: bytes) -> None:
        action = {
            b"A": self._attach,
            b"I": self._type,
            b"C": self._close,
            b"R": self._resize,
            b"G": self._signal,
            b"S": self._tell_status,
            b"X": self._stop,
        }.get(kind)
        if action is None:
            return  # a later version's; ours to pass over
        try:
            action(client, payload)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            self._fail(client, kind, str(error) or type(error).__name__)

    def _done(self, client: Client, kind: bytes) -> None:
        self._send(client, json_frame(b"K", {"for": kind.decode()}))

    def _fail(self, client: Client, kind: bytes, message: str) -> None:
        self._send(client, json_frame(b"F", {"for": kind.decode(), "message": message}))

    def _attach(self, client: Client, payload: bytes) -> None:
        fields = parse_json(payload)
        size = _size(fields) if "rows" in fields or "cols" in fields else None
        client.read_only = bool(fields.get("read_only", False))
        client.attached = True
        client.live = False
        self._done(client, b"A")
        if not client.read_only:
            self.active = client
            client.size = size
        if fields.get("replay", True):
            self._send(client, frame(b"P", self.ring.replay()))
        client.live = True
        same = size is None or client.read_only or size == (self.rows, self.cols)
        if size is not None and not client.read_only:
            self._set_size(*size)
        if self.is_pty and same and fields.get("replay", True) and fields.get("nudge", True):
            self._nudge()

    def _type(self, client: Client, payload: bytes) -> None:
        if client.read_only or (self.is_pty and not client.attached):
            raise ValueError("this client may not type")
        if self.child.input < 0 or self.close_input:
            raise ValueError("the program takes no more input")
        payload, client.half_answer = client.half_answer + payload, b""
        if self.is_pty and client is not self.active:
            payload, client.half_answer = cut_half_answer(without_answers(payload))
            if not payload:
                return
            self._activate(client)
        self.last_input = time.time()
        self.input += payload
        client.waits = len(self.input) > INPUT_BYTES
        self._write_input()

    def _activate(self, client: Client) -> None:
        self.active = client
        if client.size:
            self._set_size(*client.size)

    def _close(self, client: Client, _payload: bytes) -> None:
        if self.is_pty:
            raise ValueError("a terminal's input cannot be closed")
        self.close_input = True
        self._watch_input()
        self._done(client, b"C")

    def _resize(self, client: Client, payload: bytes) -> None:
        if client.read_only:
            raise ValueError("this client may not resize")
        client.size = _size(parse_json(payload))
        self._activate(client)
        self._done(client, b"R")

    def _set_size(self, rows: int, cols: int) -> None:
        self.rows, self.cols = rows, cols
        self._apply_size()

    def _apply_size(self) -> None:
        if self.is_pty and self.child.input >= 0:
            child.set_size(self.child.input, self.rows, self.cols)

    def _nudge(self) -> None:
        """One row less and back: a program that is told the size it has does not repaint."""
        if self.child.input >= 0:
            child.set_size(self.child.input, max(self.rows - 1, 1), self.cols)
            self.after(NUDGE_SECONDS, self._apply_size)

    def _signal(self, client: Client, payload: bytes) -> None:
        self._signal_group(signal.Signals(int(str(parse_json(payload)["signal"]))))
        self._done(client, b"G")

    def _signal_group(self, number: int) -> None:
        if self.status is None:  # once it is reaped, its number may be another's
            child.signal_group(self.child.pid, number)

    def _tell_status(self, client: Client, _payload: bytes) -> None:
        fields: dict[str, object] = {
            "child": self.child.pid,
            "alive": self.status is None,
            "rows": self.rows,
            "cols": self.cols,
            "clients": len(self.clients),
            "bytes": self.bytes,
            "lost": self.log.lost,
            "last_output": self.last_output or None,
            "last_input": self.last_input or None,
            "started": self.started,
        }
        self._send(client, json_frame(b"S", fields))

    # ── the end ──

    def _stop(self, client: Client, payload: bytes) -> None:
        grace = float(str(parse_json(payload).get("grace", DEFAULT_GRACE)))
        if not 0 <= grace < float("inf"):
            raise ValueError(f"a grace of {grace} seconds")
        self.stop(grace)
        self._done(client, b"X")

    def stop(self, grace: float) -> None:
        """SIGTERM now, SIGKILL after the grace; a second stop can only shorten it."""
        until = time.monotonic() + grace
        if self.stopping_until is None:
            self._signal_group(signal.SIGTERM)
            self._signal_group(signal.SIGCONT)  # a stopped one could not end
        if self.stopping_until is None or until < self.stopping_until:
            self.stopping_until = until
            self.after(grace, lambda: self._signal_group(signal.SIGKILL))

    def _flush_clients(self) -> None:
        """Whoever goes on reading gets all of it, within limits; who does not is not waited for."""
        now = time.monotonic()
        limit, deadline = now + LONGEST_FAREWELL_SECONDS, now + FAREWELL_SECONDS
        left = self._queued()
        while left and time.monotonic() < min(limit, deadline):
            for client in list(self.clients.values()):
                self._watch(client)
            self.turn(20)
            before, left = left, self._queued()
            if left < before:
                deadline = time.monotonic() + FAREWELL_SECONDS

    def _queued(self) -> int:
        return sum(client.queued for client in self.clients.values())

    def finish(self) -> None:
        """The program has ended: end what it left, drain, record, say goodbye."""
        if self.stopping_until is not None:
            # The others of its group got the signal too, and have the rest of the grace.
            while time.monotonic() < self.stopping_until and child.has_group(self.child.pid):
                self.turn(20)
        deadline = time.monotonic() + SWEEP_SECONDS
        while not child.kill_descendants() and time.monotonic() < deadline:
            self.turn(5)
        while self.child.output >= 0 and self._read_output():
            pass
        while self.child.error >= 0 and self._read_error():
            pass
        assert self.status is not None
        last = bytes(self.ring.buffer[-LAST_BYTES:])
        record = exit_record(self.status, self.request.tag, self.started, last)
        write_exit(self.request.session, record)
        for client in list(self.clients.values()):
            self._send(client, json_frame(b"E", record))
        self._flush_clients()
        if _identity(self.request.socket) == self.socket_id:  # and not another's by now
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.request.socket)  # noqa: PTH108
        self.listener.close()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _size(fields: dict[str, object]) -> tuple[int, int]:
    rows, cols = fields.get("rows"), fields.get("cols")
    if not (isinstance(rows, int) and isinstance(cols, int)) or not (
        0 < rows < 1 << 16 and 0 < cols < 1 << 16
    ):
        raise ValueError(f"a terminal of {rows} rows and {cols} columns")
    return rows, cols


def _nothing(*_: object) -> None:
    """SIGCHLD only has to wake the loop."""
