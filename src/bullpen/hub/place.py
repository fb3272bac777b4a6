"""One hub per home: its lock, its port, and `hub.json` that tells where it is."""

import contextlib
import fcntl
import json
import os
import re
import socket
import time
from typing import Any

from bullpen import proc
from bullpen.component import ports
from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically
from bullpen.paths import HUB, Home

PORTS = range(9199, 8999, -1)  # the highest free one
ANOTHER = "choose another: port in config.yaml, or BULLPEN_PORT (running agents know the old one)"
PORT = re.compile(r"\bport[\"']?\s*:\s*([0-9]{1,5})\b")  # in YAML, and in JSON, which is YAML
LOCK_SECONDS = 0.2
LOOK_AGAIN_SECONDS = 0.005


class AlreadyServedError(Exception):
    """Another hub has this home."""


def take_lock(home: Home) -> int:
    """The lock of the home, held until this process ends; never inherited.

    On the directory itself: a file for it could be deleted, and then be locked twice.
    """
    descriptor = os.open(home.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError as error:
            # Somebody who only looks whether it is free has it for a moment, too.
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise AlreadyServedError from error
        time.sleep(LOOK_AGAIN_SECONDS)


def refuse_read_only(home: Home) -> None:
    """Before any part of the hub fails in its own words."""
    if not os.access(home.root, os.W_OK):
        raise BullpenError(
            f"{home.root} is read-only", hint="agents that run go on", kind=Kind.UNAVAILABLE
        )


def bind_port(home: Home, configured: int | None) -> socket.socket:
    """A listening loopback socket on the home's port: configured, kept, or chosen now."""
    wanted = configured or _kept_port(home)
    if wanted is not None:
        try:
            return ports.listen(wanted)
        except OSError as error:
            raise ports.not_ours(wanted, error, ANOTHER) from error
    claimed = _claimed_ports(home)
    for port in PORTS:
        if port not in claimed:
            with contextlib.suppress(OSError):
                return ports.listen(port)
    raise BullpenError(
        f"no port is free from {PORTS[-1]} to {PORTS[0]}",
        hint="choose one: port in config.yaml, or BULLPEN_PORT",
        kind=Kind.UNAVAILABLE,
    )


def _kept_port(home: Home) -> int | None:
    """The port of this home's last hub. That of another machine's, for a home that was copied,
    means nothing here."""
    last = read_hub_file(home)
    is_ours = last.get("host") == socket.gethostname() or (
        last.get("boot_id") is not None and last["boot_id"] == _boot_id()
    )
    port = last.get("port")
    return port if is_ours and isinstance(port, int) and 0 < port < 1 << 16 else None


def bind_socket(home: Home) -> socket.socket:
    """The home's own socket; the caller holds the lock, so whatever lies there is a dead one's."""
    with contextlib.suppress(FileNotFoundError):
        home.socket(HUB).unlink()
    return _listen(home)


def bind_socket_again(home: Home) -> socket.socket | None:
    """The same while serving, if somebody deleted it; None if there is something."""
    if os.path.lexists(home.socket(HUB)):
        return None
    home.sockets.mkdir(mode=0o700, exist_ok=True)
    return _listen(home)


def _listen(home: Home) -> socket.socket:
    path = home.socket(HUB)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Linux makes the file with the mode of the socket. Not by the umask: that is the whole
        # process's, threads and their children included.
        with contextlib.suppress(OSError):
            os.fchmod(found.fileno(), 0o600)
        found.bind(str(path))
        path.chmod(0o600)
        found.listen(1024)
    except BaseException:
        found.close()
        raise
    return found


def read_hub_file(home: Home) -> dict[str, Any]:
    """What `hub.json` says; nothing if it says nothing sensible."""
    try:
        found = json.loads((home.root / "hub.json").read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_hub_file(home: Home, port: int, version: str) -> None:
    """Where this process serves."""
    pid = os.getpid()
    fields = {
        "pid": pid,
        "start_time": proc.start_time(pid),
        "host": socket.gethostname(),
        "boot_id": _boot_id(),
        "port": port,
        "socket": str(home.socket(HUB)),
        "version": version,
    }
    write_atomically(home.root / "hub.json", json.dumps(fields) + "\n", mode=0o600)


def _boot_id() -> str | None:
    """Of the kernel that runs; None where it has none."""
    began = proc.start_time(os.getpid())
    return began.partition("/")[0] if began else None


def _claimed_ports(home: Home) -> set[int]:
    """Ports that an agent's or a director's file names, in whatever block of it. One too many does
    no harm, and what cannot be read claims none."""
    found: set[int] = set()
    for directory in (home.agents, home.directors):
        for path in (*directory.glob("*.yaml"), *directory.glob("*/*.yaml")):
            with contextlib.suppress(OSError):
                found |= {int(port) for port in PORT.findall(path.read_text(errors="replace"))}
    return found
