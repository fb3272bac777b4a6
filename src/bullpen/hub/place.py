"""One hub per home: its lock, its port, and `hub.json` that tells where it is."""

import contextlib
import fcntl
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

from bullpen import proc
from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically
from bullpen.paths import HUB, Home

PORTS = range(9199, 8999, -1)  # the highest free one
LOOPBACK = "127.0.0.1"


class AlreadyServedError(Exception):
    """Another hub has this home."""


def take_lock(home: Home) -> int:
    """The lock of the home, held until this process ends; never inherited."""
    descriptor = os.open(home.root / "hub.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise AlreadyServedError from error
    return descriptor


def bind_port(home: Home, configured: int | None) -> socket.socket:
    """A listening loopback socket on the home's port: configured, kept, or chosen now."""
    kept = read_hub_file(home).get("port")
    wanted = configured or (kept if isinstance(kept, int) else None)
    if wanted is not None:
        return _bind(wanted)
    claimed = _claimed_ports(home)
    for port in PORTS:
        if port not in claimed:
            with contextlib.suppress(BullpenError):
                return _bind(port)
    raise BullpenError(
        f"no port is free from {PORTS[-1]} to {PORTS[0]}",
        hint="choose one: port in config.yaml, or BULLPEN_PORT",
        kind=Kind.UNAVAILABLE,
    )


def _bind(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((LOOPBACK, port))
        found.listen(1024)
    except OSError as error:
        found.close()
        who = _owner_of(port)
        raise BullpenError(
            f"port {port} is taken{f' by {who}' if who else ''}",
            hint="end it, or choose another: port in config.yaml, or BULLPEN_PORT"
            " (running agents know the old one)",
            kind=Kind.UNAVAILABLE,
        ) from error
    return found


def bind_socket(home: Home) -> socket.socket:
    """The home's own socket; the caller holds the lock, so whatever lies there is a dead one's."""
    path = home.socket(HUB)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        found.bind(str(path))
    finally:
        os.umask(before)
    found.listen(1024)
    return found


def read_hub_file(home: Home) -> dict[str, Any]:
    """What `hub.json` says; nothing if it says nothing sensible."""
    try:
        found = json.loads((home.root / "hub.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_hub_file(home: Home, port: int, version: str) -> None:
    """Where this process serves."""
    pid = os.getpid()
    fields = {
        "pid": pid,
        "start_time": proc.start_time(pid),
        "host": socket.gethostname(),
        "port": port,
        "socket": str(home.socket(HUB)),
        "version": version,
    }
    write_atomically(home.root / "hub.json", json.dumps(fields) + "\n", mode=0o600)


def _claimed_ports(home: Home) -> set[int]:
    """Ports that an agent's or a director's file names."""
    found: set[int] = set()
    for directory in (home.agents, home.directors):
        for path in (*directory.glob("*.yaml"), *directory.glob("*/*.yaml")):
            text = path.read_text(errors="replace")
            found |= {int(port) for port in re.findall(r"^\s*port:\s*([0-9]{1,5})\b", text, re.M)}
    return found


def _owner_of(port: int) -> str:
    """Who listens there, as far as we may see."""
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
            inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                if os.readlink(descriptor) in inodes:  # noqa: PTH115
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    command = b" ".join(words).decode(errors="replace").strip()[:80]
                    return f"pid {process.name} ({command})"
    return ""
