"""The person's terminal: raw while attached, restored at the end.

Output goes through `Undo`, so that leaving can undo it. A slow terminal blocks nothing: what it
does not take stays in `pending`, and keys are read meanwhile.
"""

import contextlib
import os
import select
import termios
import time
import tty

from bullpen.terminal.undo import Undo

DEFAULT_SIZE = (24, 80)
FAREWELL_SECONDS = 2.0
ANSWER_SECONDS = 0.3
QUIET_SECONDS = 0.03
LONGEST_SECONDS = 1.0
# Every terminal answers this one, and after all that it has sent before.
ARE_YOU_THERE, HERE_I_AM = b"\x1b[5n", b"\x1b[0n"


class HungUpError(Exception):
    """The terminal is gone."""


class Tty:
    """Keys from one descriptor, output to another, of the same terminal as a rule."""

    def __init__(self, keys: int = 0, output: int = 1) -> None:
        self.keys = keys
        self.undo = Undo()
        self._data = b""  # what is being written
        self._sent = 0
        self._saved = termios.tcgetattr(keys)
        self.output = _own_output(output)

    def enter(self) -> None:
        """Raw: every key is a byte for the program."""
        tty.setraw(self.keys, termios.TCSADRAIN)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        try:
            size = os.get_terminal_size(self.output)
        except OSError:
            return DEFAULT_SIZE
        return (size.lines or DEFAULT_SIZE[0], size.columns or DEFAULT_SIZE[1])

    def read(self) -> bytes:
        try:
            typed = os.read(self.keys, 1 << 16)
        except OSError as error:
            raise HungUpError from error
        if not typed:
            raise HungUpError
        return typed

    @property
    def pending(self) -> bool:
        """Whether something waits for `flush` when the terminal takes more."""
        return self._sent < len(self._data)

    def write(self, data: bytes) -> None:
        """As much as it takes now; the rest waits for `flush`."""
        self._data = self._data[self._sent :] + data if self.pending else data
        self._sent = 0
        self.flush()

    def flush(self) -> None:
        while self._sent < len(self._data):
            begin = self._sent
            try:
                count = os.write(self.output, memoryview(self._data)[begin:])
            except BlockingIOError:
                return
            except OSError as error:
                raise HungUpError from error
            self._sent += count
            self.undo.feed(self._data[begin : self._sent])

    def leave(self, last: bytes) -> None:
        """Undo what was turned on, write `last`, and give the keys back.

        What was typed and not read is dropped: the rest of a paste, or the release of the
        key that left, is not for the shell. A terminal that is gone cannot be helped.
        """
        self._data = b""
        reports = self.undo.reports
        with contextlib.suppress(HungUpError, termios.error):
            self.write_all(self.undo.sequences() + last + (ARE_YOU_THERE if reports else b""))
            self._drop_input(reports)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.keys, termios.TCSAFLUSH, self._saved)

    def close(self) -> None:
        if self.output > 2:
            os.close(self.output)

    def write_all(self, data: bytes) -> None:
        """Wait for the terminal, for a while."""
        self.write(data)
        deadline = time.monotonic() + FAREWELL_SECONDS
        while self.pending and (left := deadline - time.monotonic()) > 0:
            select.select([], [self.output], [], left)
            self.flush()

    def _drop_input(self, until_answer: bool) -> None:
        """All that the terminal sent before it knew: mouse, focus, keys, the rest of a paste.

        (Flushing drops only what the kernel has already passed on, 4 KB.)
        """
        typed = b""
        deadline = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < deadline and HERE_I_AM not in typed:
            wait = ANSWER_SECONDS if until_answer else QUIET_SECONDS
            if not select.select([self.keys], [], [], wait)[0]:
                return
            typed = typed[-8:] + self.read()


def _own_output(output: int) -> int:
    """The same terminal, opened anew to be written to without waiting.

    (Making the descriptor that we were given so would do it to the shell's as well.)
    """
    try:
        own = os.open(os.ttyname(output), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # a terminal of another mount namespace has no name here
        return output
    if os.fstat(own).st_rdev == os.fstat(output).st_rdev:
        return own
    os.close(own)
    return output
