"""The sockets by which directors, views and bridges are commanded: `sockets/component.<pid>.sock`.

`component/server` listens there (0600, in a directory that is 0700), `cli/components` asks there.
Who can connect is the owner, and who listens there is of this home: a port proves neither. No
sandbox shows the directory.
"""

import contextlib
import os
import re
import socket
import struct
from pathlib import Path

from bullpen import proc
from bullpen.component.ports import BACKLOG
from bullpen.home.paths import Home

NAME = re.compile(r"component\.([0-9]{1,9})\.sock")
CONNECT_SECONDS = 2.0
CREDENTIALS = struct.Struct("3i")  # pid, user, group


def listen(home: Home) -> socket.socket:
    """Listen at this process's own. What lies there is of a dead process that had its pid."""
    path = home.component_socket(os.getpid())
    home.sockets.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)
    return listen_at(path)


def listen_at(path: Path) -> socket.socket:
    """Listen there, for this user alone. `hub/listen` does, too."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Linux makes the file with the mode of the socket, so it is never open to others. Not by
        # the umask: that is the whole process's, threads and their children included.
        with contextlib.suppress(OSError):
            os.fchmod(listener.fileno(), 0o600)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def remove(home: Home) -> None:
    """This process leaves."""
    home.component_socket(os.getpid()).unlink(missing_ok=True)


def list_sockets(home: Home) -> dict[int, Path]:
    """The sockets of living components, by pid. Files that dead ones left are removed."""
    sockets = {}
    for file in home.sockets.glob("component.*.sock"):
        name = NAME.fullmatch(file.name)
        pid = int(name[1]) if name else 0
        if pid and proc.start_time(pid) is not None:
            sockets[pid] = home.component_socket(pid)
        elif pid:
            file.unlink(missing_ok=True)
    return sockets


def is_listened_to(path: Path, pid: int) -> bool:
    """Whether that process of this user listens there, by the kernel's word where it gives it."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(CONNECT_SECONDS)
        try:
            line.connect(str(path))
        except OSError:
            return False
        if not hasattr(socket, "SO_PEERCRED"):
            return True
        given = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    peer, user, _ = CREDENTIALS.unpack(given)
    return (peer, user) == (pid, os.getuid())
