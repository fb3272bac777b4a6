"""Listening on a port of the loopback interface, and who it is that listens on one."""

import contextlib
import errno
import os
import socket
from pathlib import Path

from bullpen.errors import BullpenError, Kind

LOOPBACK = "127.0.0.1"
BACKLOG = 1024
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"


def listen(port: int) -> socket.socket:
    """A listening socket; OSError if the port cannot be had."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((LOOPBACK, port))
        found.listen(BACKLOG)
    except OSError:
        found.close()
        raise
    return found


def not_ours(port: int, error: OSError, hint: str, kind: Kind = Kind.UNAVAILABLE) -> BullpenError:
    """Why we cannot listen there, and who does."""
    if error.errno != errno.EADDRINUSE:
        return BullpenError(f"cannot listen on port {port}: {error.strerror}", hint=hint, kind=kind)
    who = owner_of(port)
    return BullpenError(
        f"port {port} is taken{f' by {who}' if who else ''}", hint=f"end it, or {hint}", kind=kind
    )


def owner_of(port: int) -> str:
    """Who listens there, as far as we may see."""
    inodes = {f"socket:[{inode}]" for _, inode in _listeners(port)}
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                if os.readlink(descriptor) in inodes:  # noqa: PTH115
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    command = b" ".join(words).decode(errors="replace").strip()[:80]
                    return f"pid {process.name} ({command})"
    return ""


def is_ours(port: int) -> bool:
    """Whether all who listen on that port are this user's processes: nobody else may be sent a
    token, whatever it says of itself."""
    users = {user for user, _ in _listeners(port)}
    return users == {os.getuid()}


def _listeners(port: int) -> list[tuple[int, str]]:
    """The user and the inode of each."""
    found = []
    for table in TABLES:
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            fields = line.split()
            if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                found.append((int(fields[7]), fields[9]))
    return found
