"""One holder: a loop over the program's output, its clients and its end.

Single-threaded. A client never blocks the program: one that does not read gets no more output.
A client is blocked only when it has typed more than the program reads.
"""

import contextlib
import os
import select
import signal
import time
from _signal import SIGTERM, SIGUSR1  # type: ignore[import-not-found]  # plain numbers
from _socket import AF_UNIX, SOCK_STREAM, socket
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from bullpen.holder import child
from bullpen.holder.answers import cut_half_answer, without_answers
from bullpen.holder.client import Client
from bullpen.holder.frames import HEADER, BrokenFrameError, frame, json_frame, parse_json
from bullpen.holder.listeners import give
from bullpen.holder.log import Log
from bullpen.holder.records import LAST_BYTES, exit_record, write_exit
from bullpen.holder.request import HoldRequest
from bullpen.holder.ring import Ring
from bullpen.holder.suspended import Suspended

READ = 1 << 14
# A terminal gives 4 KB at a time. After less than this there is probably no more yet.
FULL_READ = 1 << 11
BACKLOG = 128
INPUT_BYTES = 1 << 18  # queued for the program before its typist has to wait
NUDGE_SECONDS = 0.05
RESIZED_SECONDS = 0.05  # a window that is being dragged has many sizes
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
        request: HoldRequest,
        listener: socket,
        lock: int,
        program: child.Child,
        logs: list[Log],
        greeting: bytes,
        socket_id: tuple[int, int],
        started: float,
    ) -> None:
        self.request = request
        self.listener = listener
        self.lock = lock  # on the session directory, kept for as long as we live
        self.kept: tuple[socket, ...] = ()  # the hub's listeners, for the next hub
        self.child = program
        self.log, *self.error_logs = logs  # of errors only in pipe mode
        self.is_pty = request.is_pty
        self.socket_id = socket_id
        self.ring = Ring(request.ring_bytes)
        self.rows, self.cols = request.rows, request.cols
        self.to_redraw: set[int] = set()  # clients, by descriptor, that have yet to hear the size
        self.clients: dict[int, Client] = {}
        self.active: Client | None = None
        self.input = bytearray()
        self.close_input = False
        self.status: int | None = None  # as waitpid gave it
        self.stopping_until: float | None = None
        self.terminated = False
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.suspended = Suspended(self.after)
        self.greeting = greeting  # but for the size
        self.started = started
        self.bytes = 0
        self.last_output = self.last_input = 0.0
        # All reading is done into the same pages; output has its frame's header before it.
        self.room = memoryview(mmap(-1, HEADER.size + READ, MAP_PRIVATE | MAP_ANONYMOUS))
        self.poll = select.poll()
        self.wake = os.pipe()
        for descriptor in self.wake:
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self.wake[1], warn_on_full_buffer=False)

    # ── the loop ──

    def run(self) -> None:
        self._watch_listener()
        for descriptor in (self.wake[0], self.child.output, self.child.error):
            if descriptor >= 0:
                self.poll.register(descriptor, select.POLLIN)
        self._reap()  # it may have ended before SIGCHLD was ours to hear
        while self.status is None:
            self.turn(self._timeout())
        self.finish()

    def turn(self, milliseconds: float | None) -> None:
        for descriptor, events in self.poll.poll(milliseconds):
            self._dispatch(descriptor, events)
        if not self.timers:
            return
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
        elif descriptor == self.wake[0]:
            self._wake_up()
        elif descriptor == self.listener.fileno():
            self._accept()
        elif descriptor == self.child.input:
            self._write_input()
        elif descriptor in self.clients:
            self._serve(self.clients[descriptor], events)

    def _wake_up(self) -> None:
        try:
            signals = os.read(self.wake[0], 512)
        except BlockingIOError:
            return
        self._reap()
        if SIGTERM in signals:
            if self.stopping_until is None:  # else somebody stops its program
                self.terminated = True
            self.stop(DEFAULT_GRACE)
        if SIGUSR1 in signals:
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
        """What there is of it to clients, log and ring; False when there is nothing now."""
        count = 0
        while count < READ:
            try:
                more = os.readv(self.child.output, [self.room[HEADER.size + count :]])
            except BlockingIOError:
                break
            except OSError:  # EIO: nobody has the terminal open right now
                self._pause_output()
                break
            count += more
            if more == 0 and count == 0:
                self.poll.unregister(self.child.output)
                os.close(self.child.output)
                self.child.output = -1
            if more < FULL_READ:
                break
        if count == 0:
            return False
        self.last_output = time.time()
        self.bytes += count
        data = self.room[HEADER.size : HEADER.size + count]
        self.log.write(data)  # first: what somebody has seen is in the log
        self._broadcast(b"O", count)
        self.ring.write(data)
        return True

    def _read_error(self) -> bool:
        try:
            count = os.readv(self.child.error, [self.room[HEADER.size :]])
        except BlockingIOError:
            return False
        if count == 0:
            self.poll.unregister(self.child.error)
            os.close(self.child.error)
            self.child.error = -1
            return False
        for log in self.error_logs:
            log.write(self.room[HEADER.size : HEADER.size + count])
        self._broadcast(b"e", count)
        return True

    def _pause_output(self) -> None:
        """Look again later: a program may close its terminal and open it again.

        (Closing our end would hang it up.)
        """
        if self._unwatch(self.child.output):
            self.after(REOPEN_SECONDS, self._watch_input)

    def _unwatch(self, descriptor: int) -> bool:
        """False when it is not watched anyway."""
        try:
            self.poll.unregister(descriptor)
        except KeyError:
            return False
        return True

    def _broadcast(self, kind: bytes, count: int) -> None:
        """So much of what was read, to all who watch."""
        HEADER.pack_into(self.room, 0, kind, count)
        data = self.room[: HEADER.size + count]
        copy = b""
        for client in [client for client in self.clients.values() if client.live]:
            try:
                sent = client.send_now(data)
                if sent < len(data):
                    copy = copy or bytes(data)  # one for all
                    client.keep(copy, sent)
                    if client.is_slow:
                        client.drop()
                    self._watch(client)
            except OSError:
                self._forget(client)

    def _write(self, data: bytes | bytearray) -> int:
        """How much of it the program takes now."""
        try:
            return os.write(self.child.input, data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # it no longer listens

    def _write_input(self) -> None:
        del self.input[: self._write(self.input[:READ])]
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
            self._unwatch(descriptor)
            if self.close_input:
                os.close(descriptor)
                self.child.input = -1

    # ── clients ──

    def _accept(self) -> bool:
        """One who came; False when there is none, or he has to wait."""
        try:
            descriptor, _ = self.listener._accept()  # type: ignore[attr-defined] # accept() without making an object
        except (BlockingIOError, ConnectionError):
            return False
        except OSError:  # no descriptor is free: those that wait are served when one is
            self._unwatch(self.listener.fileno())
            self.after(ACCEPT_SECONDS, self._watch_listener)
            return False
        self.welcome(descriptor)
        return True

    def welcome(self, descriptor: int) -> None:
        """A new client."""
        client = Client(descriptor)
        self.clients[descriptor] = client
        self.poll.register(descriptor, 0)
        size = b', "rows": %d, "cols": %d}' % (self.rows, self.cols)
        self._send(client, frame(b"H", self.greeting[:-1] + size))
        self._watch(client)

    def _watch_listener(self) -> None:
        self.poll.register(self.listener.fileno(), select.POLLIN)

    def _listen_again(self) -> None:
        """Somebody deleted the socket: make it anew, under the same path."""
        if os.path.lexists(self.request.socket):
            return
        listener = socket(AF_UNIX, SOCK_STREAM)
        try:
            listener.bind(self.request.socket)  # 0600 by the umask
            listener.listen(BACKLOG)
        except OSError:  # no directory for it, or no room; whoever signalled sees that
            listener.close()
            return
        listener.setblocking(False)
        self._unwatch(self.listener.fileno())
        while self._accept():
            pass  # those who came by the old one
        self.listener.close()
        self.listener = listener
        self.socket_id = identity(self.request.socket)
        self._watch_listener()

    def _send(self, client: Client, data: bytes) -> None:
        try:
            client.send(data)
        except OSError:
            self._forget(client)

    def _watch(self, client: Client) -> None:
        # Nothing more is asked of us by one that does not take the answers.
        wants = 0 if client.waits or client.is_slow else select.POLLIN
        wants |= select.POLLOUT if client.queue else 0
        if wants != client.watched and client.descriptor in self.clients:
            self.poll.modify(client.descriptor, wants)
            client.watched = wants

    def _forget(self, client: Client) -> None:
        if self.clients.pop(client.descriptor, None) is not None:
            self.poll.unregister(client.descriptor)
            client.live = False
            os.close(client.descriptor)
            client.descriptor = -1  # by now it may be another's
            if self.active is client:
                self._pass_on()

    def _pass_on(self) -> None:
        """The one that was active has left: somebody has to answer the program, at its own size."""
        others = (c for c in reversed(self.clients.values()) if c.attached)
        self.active = next((c for c in others if not c.read_only), None)
        if self.active is not None and self.status is None:
            self._activate(self.active, by=None)

    def _serve(self, client: Client, events: int) -> None:
        try:
            if events & select.POLLOUT:
                client.flush()
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                count = os.readv(client.descriptor, [self.room])
                if count == 0:
                    self._forget(client)
                    return
                for kind, payload in client.reader.feed(self.room[:count]):
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
        action = ACTIONS.get(kind)
        if action is None:
            return  # a later version's; ours to pass over
        try:
            action(self, client, payload)
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
        client.hears_sizes = bool(fields.get("sizes", False))
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
            self._set_size(*size, by=client)
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
            self._activate(client, by=None)
        self.last_input = time.time()
        if self.is_pty:
            self.suspended.typed(payload, self.child)
        if not self.input:
            payload = payload[self._write(payload) :]
        if payload:
            self.input += payload
            client.waits = len(self.input) > INPUT_BYTES
            self._watch_input()

    def _activate(self, client: Client, by: Client | None) -> None:
        self.active = client
        if client.size:
            self._set_size(*client.size, by)

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
        self._activate(client, by=client)
        self._done(client, b"R")

    def _set_size(self, rows: int, cols: int, by: Client | None) -> None:
        """`by` is the client whose own terminal has changed: what it shows is right already."""
        if (rows, cols) != (self.rows, self.cols):
            if not self.to_redraw:
                self.after(RESIZED_SECONDS, self._tell_size)
            others = (client for client in self.clients.values() if client.hears_sizes)
            self.to_redraw |= {client.descriptor for client in others if client is not by}
        self.rows, self.cols = rows, cols
        self._apply_size()

    def _tell_size(self) -> None:
        """To terminals of another size: what they show was drawn for the size of before."""
        descriptors, self.to_redraw = self.to_redraw, set()
        for descriptor in descriptors & set(self.clients):
            client = self.clients[descriptor]
            self._send(client, json_frame(b"Z", {"rows": self.rows, "cols": self.cols}))
            self._send(client, frame(b"P", self.ring.replay()))
            self._watch(client)

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
            "continued": self.suspended.continued_at or None,
            "started": self.started,
        }
        self._send(client, json_frame(b"S", fields))

    def _give_listeners(self, client: Client, _payload: bytes) -> None:
        data = json_frame(b"L", {"count": len(self.kept)})
        sent = 0 if client.queue else give(self.kept, client.descriptor, data)
        if sent == 0:  # they cannot be queued
            raise ValueError("this client has not read what it was sent")
        if sent < len(data):
            client.keep(data, sent)

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
        last = self.ring.last(LAST_BYTES)
        record = exit_record(self.status, self.request.tag, self.started, last)
        if self.terminated:
            record["terminated"] = True
        write_exit(self.request.session, record)
        for client in list(self.clients.values()):
            self._send(client, json_frame(b"E", record))
        self._flush_clients()
        if identity(self.request.socket) == self.socket_id:  # and not another's by now
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.request.socket)  # noqa: PTH108
        self.listener.close()


ACTIONS = {
    b"A": Holder._attach,
    b"I": Holder._type,
    b"C": Holder._close,
    b"R": Holder._resize,
    b"G": Holder._signal,
    b"L": Holder._give_listeners,
    b"S": Holder._tell_status,
    b"X": Holder._stop,
}


def identity(path: str) -> tuple[int, int]:
    """What tells a file from another that is put in its place."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _size(fields: dict[str, object]) -> tuple[int, int]:
    rows, cols = fields.get("rows"), fields.get("cols")
    if not (isinstance(rows, int) and isinstance(cols, int)) or not (
        0 < rows < 1 << 16 and 0 < cols < 1 << 16
    ):
        raise ValueError(f"a terminal of {rows} rows and {cols} columns")
    return rows, cols
