"""A program that went to sleep at Ctrl-Z, as under a shell, which would wake it again with `fg`.

Called by the holder's loop with what clients type. There is no shell here: the kernel ignores the
stop, and the program waits for SIGCONT for ever (Claude Code does). It is told to go on as soon as
it has given up the terminal. A shell that runs here, and its jobs, are left alone.
"""

import time
from collections.abc import Callable

from bullpen.holder import child

CTRL_Z = (b"\x1a", b"\x1b[122;5u")  # the second: kitty's keyboard protocol
LOOK_SECONDS = 0.1
LONGEST_SECONDS = 10.0  # for which a busy program may take to act on the key


class Suspended:
    """What is known of it: whether to look, and when the program was last told to go on."""

    def __init__(self, after: Callable[[float, Callable[[], None]], None]) -> None:
        self.continued_at = 0.0
        self._after = after
        self._until = 0.0
        self._is_looking = False

    def typed(self, keys: bytes, program: child.Child) -> None:
        """Somebody types that to the program."""
        if not any(key in keys for key in CTRL_Z) or not child.is_in_raw_mode(program.input):
            return
        self._until = time.monotonic() + LONGEST_SECONDS
        if not self._is_looking:
            self._is_looking = True
            self._after(LOOK_SECONDS, lambda: self._look(program))

    def _look(self, program: child.Child) -> None:
        if program.input < 0 or time.monotonic() > self._until:
            self._is_looking = False
            return
        is_asleep = not child.is_in_raw_mode(program.input)
        if is_asleep and child.is_in_front(program.input, program.pid):
            self.continued_at = time.time()
            child.signal_group(program.pid, child.SIGCONT)
        self._after(LOOK_SECONDS, lambda: self._look(program))
