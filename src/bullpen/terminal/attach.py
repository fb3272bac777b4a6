"""A person at an agent's terminal: keys to the holder, output to the screen, until they leave.

One loop over keys, output and signals; it never waits for one of them only. `raw` or `row` writes
the output to the screen.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from bullpen.client.holder import Connection, HolderGoneError
from bullpen.holder.frames import parse_json
from bullpen.terminal import title
from bullpen.terminal.hint import Hint
from bullpen.terminal.keys import Keys
from bullpen.terminal.status import TerminalStatus
from bullpen.terminal.tty import HungUpError, Tty

KEY_SECONDS = 0.02  # within which the rest of a key's bytes comes
STATUS_SECONDS = 2.0
SOON_SECONDS = 0.1  # after which our title comes back
LEAVING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


class OutputView(Protocol):
    """How output gets to the screen."""

    @property
    def takes_all(self) -> bool: ...
    def open(self, size: tuple[int, int]) -> bytes: ...
    def resize(self, size: tuple[int, int]) -> bytes: ...
    def restart(self, program: tuple[int, int]) -> None: ...
    def asked_size(self) -> dict[str, object]: ...
    def show_status(self, text: str) -> bytes | None: ...
    def feed(self, output: bytes) -> None: ...
    def wait(self, now: float, /) -> float | None: ...
    def take(self, now: float, /) -> bytes: ...
    def closing(self, ended: bool) -> bytes: ...


@dataclass(frozen=True)
class Detached:
    """The person pressed the detach key."""


@dataclass(frozen=True)
class AgentEnded:
    """The program ended; `record` is its exit record."""

    record: dict[str, object]


@dataclass(frozen=True)
class ConnectionLost:
    """The connection broke and the holder sent no exit record."""


@dataclass(frozen=True)
class Signalled:
    """A signal asked us to end, or the terminal is gone."""

    number: int


Outcome = Detached | AgentEnded | ConnectionLost | Signalled


class Attachment:
    """The loop of one attached terminal, and its state."""

    def __init__(
        self,
        connection: Connection,
        tty: Tty,
        view: OutputView,
        keys: Keys,
        status: Callable[[], TerminalStatus],
        read_only: bool = False,
        bell: bool = True,
        hint: str = "",
    ) -> None:
        """`hint` is shown once, for a moment."""
        self._connection = connection
        self._tty = tty
        self._view = view
        self._keys = keys
        self._status = status
        self._read_only = read_only
        self._bell = bell
        self._hint = Hint(hint, tty.size)
        self._poll = select.poll()
        self._watched: tuple[bool, int] | None = None
        self._outcome: Outcome | None = None
        self._dropped = False
        self._program: tuple[int, int] | None = None  # its size, if it was said
        self._text = self._shown_text = ""  # of the status
        self._needs_person = self._rung_for = ""
        self._asked_at = float("-inf")  # for it
        self._status_due = 0.0
        self._held_at = 0.0

    def run(self) -> Outcome:
        """Until it is over; the terminal is as before then, whatever happens."""
        with _signals() as wake:
            try:
                self._tty.enter()
                self._attach()
                self._poll.register(self._tty.keys, select.POLLIN)
                self._poll.register(wake, select.POLLIN)
                self._watch()
                while self._outcome is None:
                    self._turn(wake)
            except HungUpError:
                self._outcome = Signalled(signal.SIGHUP)
            except HolderGoneError:
                self._outcome = ConnectionLost()
            finally:
                ended = isinstance(self._outcome, AgentEnded)
                with contextlib.suppress(HungUpError):
                    if not self._tty.pending:
                        self._tty.write(self._hint.end())
                    if ended:
                        self._tty.write_all(self._view.take(float("inf")))
                self._tty.leave(self._view.closing(ended))
        return self._outcome

    def _attach(self) -> None:
        """Also again: after having been too slow, or stopped."""
        self._write(title.KEEP + self._view.open(self._tty.size))
        fields = {"read_only": self._read_only, "replay": True, "sizes": True}
        self._connection.send_fields(b"A", fields | self._view.asked_size())

    def _write(self, output: bytes) -> None:
        """To the screen, with the hint on top of it while that lasts."""
        self._tty.write(self._hint.add(output, time.monotonic()))

    def _turn(self, wake: int) -> None:
        for descriptor, events in self._poll.poll(self._timeout() * 1000):
            if descriptor == self._tty.keys:
                self._type(*self._keys.feed(self._tty.read()))
                self._held_at = time.monotonic()
            elif descriptor == self._tty.output:
                self._tty.flush()
            elif descriptor == wake:
                self._hear(os.read(wake, 512))
            else:
                if events & select.POLLOUT:
                    self._connection.flush()
                if events & ~select.POLLOUT:
                    self._receive()
        now = time.monotonic()
        if self._keys.waits and now >= self._held_at + KEY_SECONDS:
            self._type(*self._keys.flush())
        if not self._tty.pending:
            self._show(now)
        self._watch()

    def _timeout(self) -> float:
        now = time.monotonic()
        due = now + STATUS_SECONDS
        if not self._tty.pending:  # else nothing can be shown, whatever is due
            due = min(due, self._status_due)
            for wait in (self._view.wait(now), self._hint.wait(now)):
                due = due if wait is None else min(due, now + wait)
        if self._keys.waits:
            due = min(due, self._held_at + KEY_SECONDS)
        return max(due - now, 0.0)

    def _watch(self) -> None:
        """Wait for those only who have something for us, or something to take."""
        pending = self._tty.pending
        wanted = 0 if pending and not self._view.takes_all else select.POLLIN
        if self._connection.wants_to_write:
            wanted |= select.POLLOUT
        if (pending, wanted) != self._watched:
            self._watched = (pending, wanted)
            self._poll.register(self._connection, wanted)
            if pending:
                self._poll.register(self._tty.output, select.POLLOUT)
            else:
                with contextlib.suppress(KeyError):
                    self._poll.unregister(self._tty.output)

    def _hear(self, signals: bytes) -> None:
        for number in signals:
            if number in LEAVING:
                self._outcome = self._outcome or Signalled(number)
            elif number == signal.SIGWINCH:
                self._dropped = self._dropped or self._hint.is_shown  # it is elsewhere now
                self._hint.end()
                self._tty.write(self._view.resize(self._tty.size))
                if not self._read_only:
                    self._connection.send_fields(b"R", self._view.asked_size())
            elif number == signal.SIGCONT:  # the shell has had the terminal
                self._tty.enter()
                self._dropped = True

    def _type(self, typed: bytes, leave: bool) -> None:
        if typed and not self._read_only:
            self._connection.send(b"I", typed)
        if leave:
            self._outcome = Detached()

    def _receive(self) -> None:
        for kind, payload in self._connection.read():
            if kind in (b"O", b"P"):
                self._view.feed(payload)
            elif kind == b"D":
                self._dropped = True
            elif kind == b"E":
                self._outcome = self._outcome or AgentEnded(parse_json(payload))
            elif kind == b"Z":
                self._begin_anew(_size(payload))
            elif kind == b"S":
                self._hear_size(_size(payload))

    def _begin_anew(self, program: tuple[int, int]) -> None:
        """Somebody else changed the program's size; a replay follows."""
        self._program = program
        self._view.restart(program)

    def _hear_size(self, program: tuple[int, int]) -> None:
        """From a holder of before, which does not say by itself that the size has changed."""
        if self._program is None:
            self._program = program
        elif self._program != program:
            self._begin_anew(program)
            self._dropped = True

    def _show(self, now: float) -> None:
        output = self._view.take(now)
        if output or self._hint.wait(now) == 0:
            self._write(output)
        if self._dropped and not self._tty.pending:
            self._dropped = False
            # What was lost may have turned things off: begin as on a fresh terminal.
            self._write(self._hint.end() + self._tty.undo.sequences())
            self._attach()
            self._shown_text, self._status_due = "", now  # the title went, too
        if self._tty.undo.titled:  # by the program
            self._status_due = min(self._status_due, now + SOON_SECONDS)
        if now >= self._status_due:
            self._show_status(now)

    def _show_status(self, now: float) -> None:
        if now >= self._asked_at + STATUS_SECONDS:
            self._asked_at = now
            self._text, needs_person = self._status()
            if needs_person is not None:  # else nothing is known: the bell has rung for what was
                self._needs_person = needs_person
            if self._read_only:
                self._connection.send(b"S")
        self._status_due = self._asked_at + STATUS_SECONDS
        if self._needs_person == "":
            self._rung_for = ""
        is_shown = self._text == self._shown_text and self._needs_person == self._rung_for
        if is_shown and not self._tty.undo.titled:
            return
        row = None if self._tty.pending else self._view.show_status(self._text)
        if row is None:
            self._status_due = now + SOON_SECONDS
            return
        self._tty.write(row)
        if self._needs_person != self._rung_for and self._bell:
            self._tty.write(title.notification(self._needs_person))
        self._tty.undo.titled = False
        self._shown_text, self._rung_for = self._text, self._needs_person


def _size(payload: bytes) -> tuple[int, int]:
    fields = parse_json(payload)
    return int(str(fields["rows"])), int(str(fields["cols"]))


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """The end of a pipe where the numbers of the signals arrive that concern us."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    numbers = (*LEAVING, signal.SIGWINCH, signal.SIGCONT)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    before_wake = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(before_wake)
        for number, action in before.items():
            signal.signal(number, action)
        os.close(read)
        os.close(write)
