"""The factory: holders are forked from it, with everything imported and shared.

One request per connection, read and answered by a fork, so a slow caller or start holds
nobody up. Killing the factory, or replacing it, touches no holder.

To use a Python object is to write to it, for its uses are counted; and what the factory
writes to between two forks is no longer shared by the holders before and after. So it does
next to nothing.
"""

import contextlib
import gc
import os
import signal
import sys
import time
from _socket import AF_UNIX, SOCK_STREAM, socket

from bullpen.holder import child
from bullpen.holder.main import BACKLOG
from bullpen.holder.rehearse import rehearse
from bullpen.holder.request import refuse
from bullpen.holder.start import hold

BREATH_SECONDS = 0.05


def main() -> None:
    """Serve requests until told to leave."""
    path = sys.argv[2]
    os.umask(0o177)  # sockets too are 0600; a holder makes no directories
    _settle_streams()
    turns = os.open(f"{path}.turns", os.O_RDWR | os.O_CREAT)
    for name in (path, f"{path}.turns"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)  # noqa: PTH108
    listener = socket(AF_UNIX, SOCK_STREAM)
    listener.bind(path)
    listener.listen(BACKLOG)
    _settle_signals()
    child.return_large_memory()
    rehearse()
    gc.collect()
    gc.freeze()  # or each holder's first collection would copy all of it
    _serve(listener, turns)  # its socket stays: by then another's may be in its place


def _settle_streams() -> None:
    """Give 0 and 1 to the null device, and 2 if it is closed: no socket may take it."""
    null = os.open(os.devnull, os.O_RDWR)
    while null < 3:
        null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _settle_signals() -> None:
    """Whatever was ignored where we were started: from here on, just what `child` undoes."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):  # the C library's own
            signal.signal(number, signal.SIG_DFL)
    for number in child.IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # holders are nobody's to wait for
    signal.signal(signal.SIGTERM, _leave)


def _leave(*_: object) -> None:
    sys.exit()


def _serve(listener: socket, turns: int) -> None:
    factory = os.getpid()
    while True:
        try:
            connection, _ = listener._accept()  # type: ignore[attr-defined]
        except OSError:  # it left, or no descriptor is free
            time.sleep(BREATH_SECONDS)
            continue
        try:
            if os.fork() == 0:
                hold(connection, listener.fileno(), turns, factory)
        except OSError as error:  # no process to be had
            refuse(connection, error)
        os.close(connection)
