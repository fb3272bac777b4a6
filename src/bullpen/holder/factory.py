"""The factory: the process that holders are forked from, so that they share its memory.

One request per connection, read and answered by a fork: a slow caller delays nobody. Killing or
replacing the factory ends no holder. It keeps the hub's listeners (`kept`), and leaves by itself
when neither a hub nor an agent is there.

Using a Python object writes to it (its reference count). Memory that the factory writes to
between two forks is no longer shared. So the factory does as little as possible.
"""

import contextlib
import gc
import os
import select
import signal
import sys
import time
from _socket import AF_UNIX, SOCK_STREAM, socket

from bullpen.holder import child
from bullpen.holder.listeners import KeptListeners
from bullpen.holder.main import BACKLOG
from bullpen.holder.rehearse import rehearse
from bullpen.holder.request import refuse
from bullpen.holder.start import hold

BREATH_SECONDS = 0.05


def main() -> None:
    """Serve requests until told to leave."""
    *line, path = sys.argv[2:]
    os.umask(0o177)  # sockets too are 0600; a holder makes no directories
    _replace_streams()
    turns = os.open(f"{path}.turns", os.O_RDWR | os.O_CREAT)
    for name in (path, f"{path}.turns"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)  # noqa: PTH108
    listener = socket(AF_UNIX, SOCK_STREAM)
    listener.bind(path)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    _reset_signals()
    child.return_large_memory()
    rehearse()
    gc.collect()
    gc.freeze()  # or each holder's first collection would copy all of it
    kept = KeptListeners(path, int(line[0]) if line else None)  # an older hub gives none
    _serve(listener, turns, kept)  # its socket stays: by then another's may be in its place


def _replace_streams() -> None:
    """Give 0 and 1 to the null device, and 2 if it is closed: no socket may take it."""
    null = os.open(os.devnull, os.O_RDWR)
    while null < 3:
        null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _reset_signals() -> None:
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


def _serve(listener: socket, turns: int, kept: KeptListeners) -> None:
    kept.poll.register(listener, select.POLLIN)
    while True:
        ready = kept.wait()
        kept.tend(ready)  # first: a holder inherits what was handed over before it was asked for
        if listener.fileno() in ready:
            _accept(listener, turns, kept)


def _accept(listener: socket, turns: int, kept: KeptListeners) -> None:
    factory = os.getpid()
    try:
        connection, _ = listener._accept()  # type: ignore[attr-defined]
    except BlockingIOError:
        return
    except OSError:  # no descriptor is free
        time.sleep(BREATH_SECONDS)
        return
    os.set_blocking(connection, True)
    try:
        if os.fork() == 0:
            hold(connection, listener.fileno(), turns, factory, kept)
    except OSError as error:  # no process to be had
        refuse(connection, error)
    os.close(connection)
