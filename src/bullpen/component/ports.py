"""Loopback ports: listen on one, and find out which process listens on one.

Called by `hub/listen` for the hub's port, `hub/tasks/ports` for agents', `component/server` for
other components', and by `doctor`. Chooses no port: its callers do.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from bullpen.errors import BullpenError, Kind

LOOPBACK = "127.0.0.1"
BACKLOG = 1024
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"


def listen(port: int) -> socket.socket:
    """A listening socket; OSError if the port cannot be had."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def port_taken_error(
    port: int, error: OSError, hint: str, kind: Kind = Kind.UNAVAILABLE
) -> BullpenError:
    """The error of a port that we cannot listen on, with the process that does."""
    if error.errno != errno.EADDRINUSE:
        return BullpenError(f"cannot listen on port {port}: {error.strerror}", hint=hint, kind=kind)
    who = owner_of(port)
    return BullpenError(
        f"port {port} is taken{f' by {who}' if who else ''}", hint=f"end it, or {hint}", kind=kind
    )


def owner_of(port: int) -> str:
    """The pid and command of a process that listens there; empty if we may not see it."""
    for pid in owners_of(port):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            command = b" ".join(words).decode(errors="replace").strip()[:80]
            return f"pid {pid} ({command})"
    return ""


def owners_of(port: int) -> Iterator[int]:
    """The processes that have a listener there, as far as we may see them."""
    inodes = {f"socket:[{inode}]" for _, inode in _listeners(port)}
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        with contextlib.suppress(OSError):
            if any(_link(descriptor) in inodes for descriptor in (process / "fd").iterdir()):
                yield int(process.name)


def _link(descriptor: Path) -> str:
    """What it is; empty if it is closed by now."""
    try:
        return os.readlink(descriptor)  # noqa: PTH115
    except FileNotFoundError:
        return ""


def is_ours(port: int) -> bool:
    """Whether only processes of this user listen on that port."""
    users = {user for user, _ in _listeners(port)}
    return users == {os.getuid()}


def _listeners(port: int) -> list[tuple[int, str]]:
    """The user and the inode of each listening socket."""
    listeners = []
    for table in TABLES:
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            fields = line.split()
            if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                listeners.append((int(fields[7]), fields[9]))
    return listeners
