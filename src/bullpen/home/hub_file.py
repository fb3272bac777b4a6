"""`hub.json` in the home: the process that serves it, its port and its socket.

Written by `hub/main` when the hub can be reached, and never removed: `hub/listen` reads the port of
the last hub there. Read by commands, too, to find a hub that does not answer. Holds no credential.
"""

import contextlib
import json
import os
import socket
from typing import NamedTuple

from bullpen import proc
from bullpen.files import read_object, write_atomically
from bullpen.home.paths import HUB, Home
from bullpen.hot.known_homes import read_id


class HubFile(NamedTuple):
    """What it says. A field that is missing, or of another type, is empty."""

    pid: int = 0
    start_time: str = ""
    host: str = ""
    boot_id: str = ""
    port: int = 0
    home: str = ""
    home_id: str = ""
    socket: str = ""
    version: str = ""

    @property
    def is_of_this_machine(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """Whether the process that wrote it lives, if that was on this machine."""
        return bool(self.pid and self.start_time and proc.start_time(self.pid) == self.start_time)


def read_hub_file(home: Home) -> HubFile:
    """The file as it is; empty if there is none that can be read."""
    fields = read_object(home.root / "hub.json")
    types = {name: type(empty) for name, empty in HubFile._field_defaults.items()}
    return HubFile(
        **{name: fields[name] for name in types if type(fields.get(name)) is types[name]}
    )


def write_hub_file(home: Home, port: int, version: str) -> None:
    """Say that this process serves the home, and where."""
    pid = os.getpid()
    fields = HubFile(
        pid=pid,
        start_time=proc.start_time(pid) or "",
        host=socket.gethostname(),
        boot_id=boot_id(),
        port=port,
        home=str(home.root),
        home_id=home.id,
        socket=str(home.socket(HUB)),
        version=version,
    )
    write_atomically(home.root / "hub.json", json.dumps(fields._asdict()) + "\n", mode=0o600)


def find_last_boot(home: Home) -> str | None:
    """The boot of this machine in which the file was written, if one was written here."""
    hub_file = read_hub_file(home)
    return hub_file.boot_id or None if hub_file.is_of_this_machine else None


def is_copied(home: Home, hub_file: HubFile) -> bool:
    """Whether the file came here with a copy of the home that it tells of: that one is still where
    it was. One that was moved is nowhere else; older versions do not say where they were."""
    if not hub_file.home or not hub_file.home_id:
        return False
    with contextlib.suppress(OSError):
        is_there = read_id(os.fsencode(hub_file.home)) == hub_file.home_id.encode()
        return is_there and not home.root.samefile(hub_file.home)
    return False


def boot_id() -> str:
    """The id of the kernel's present run; empty where the system has none."""
    return (proc.start_time(os.getpid()) or "").partition("/")[0]
