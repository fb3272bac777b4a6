"""Where the hub listens: its TCP port on the loopback interface, and `sockets/hub.sock`.

The hub's port is, in this order: `BULLPEN_PORT`, `port` in config.yaml (`home/settings`), the port
of the home's last hub (`home/hub_file`), the highest free one of
`PORTS` (`home/settings`). Called by `hub/main`,
which holds the lock. Answers nothing there: that is done by `component/http_server`. Ports of task
agents are opened by `hub/tasks/ports`. A port that an earlier hub left is not bound again: its
listener is there (`hub/kept_ports`).
"""

import contextlib
import os
import re
import socket
from collections.abc import Mapping

from bullpen.component import ports
from bullpen.component.own_socket import listen_at
from bullpen.errors import BullpenError, Kind
from bullpen.home.hub_file import boot_id, is_copied, read_hub_file
from bullpen.home.paths import HUB, Home
from bullpen.home.settings import PORTS
from bullpen.hub.kept_ports import KeptPorts

ANOTHER = "choose another: port in config.yaml, or BULLPEN_PORT (running agents know the old one)"
PORT = re.compile(r"\bport[\"']?\s*:\s*([0-9]{1,5})\b")  # in YAML, and in JSON, which is YAML


def bind_port(
    home: Home,
    configured: int | None,
    environ: Mapping[str, str] | None = None,
    kept: KeptPorts | None = None,
) -> socket.socket:
    """A socket that listens on the hub's port. `configured` is `port` of the settings."""
    kept = kept or KeptPorts()
    port = _port_of(environ or {}) or configured or _last_port(home)
    if port is not None:
        try:
            return kept.listen(port)
        except OSError as error:
            raise ports.port_taken_error(port, error, ANOTHER) from error
    claimed = _claimed_ports(home)
    for port in reversed(PORTS):
        if port not in claimed:
            with contextlib.suppress(OSError):
                return kept.listen(port)
    raise BullpenError(
        f"no port is free from {PORTS[0]} to {PORTS[-1]}",
        hint="choose one: port in config.yaml, or BULLPEN_PORT",
        kind=Kind.UNAVAILABLE,
    )


def _port_of(environ: Mapping[str, str]) -> int | None:
    """What BULLPEN_PORT says."""
    text = environ.get("BULLPEN_PORT", "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 1 << 16):
        raise BullpenError(f"BULLPEN_PORT is no port: {text[:80]!r}")
    return int(text)


def _last_port(home: Home) -> int | None:
    """The port of this home's last hub; None if the home was copied, from this machine or another:
    the original goes on with that port."""
    last = read_hub_file(home)
    if is_copied(home, last):
        return None
    is_ours = last.is_of_this_machine or (last.boot_id and last.boot_id == boot_id())
    return last.port if is_ours and 0 < last.port < 1 << 16 else None


def bind_socket(home: Home) -> socket.socket:
    """The hub's own socket. The caller holds the lock: a file that lies there is of a dead hub."""
    with contextlib.suppress(FileNotFoundError):
        home.socket(HUB).unlink()
    return listen_at(home.socket(HUB))


def bind_socket_again(home: Home) -> socket.socket | None:
    """The same while the hub serves, if somebody deleted the file; None if it is there."""
    if os.path.lexists(home.socket(HUB)):
        return None
    home.sockets.mkdir(mode=0o700, exist_ok=True)
    return listen_at(home.socket(HUB))


def _claimed_ports(home: Home) -> set[int]:
    """Ports that the file of an agent or a director names, in any block of it. One too many does
    no harm, and a file that cannot be read names none."""
    claimed: set[int] = set()
    for directory in (home.agents, home.directors):
        for path in (*directory.glob("*.yaml"), *directory.glob("*/*.yaml")):
            with contextlib.suppress(OSError):
                claimed |= {int(port) for port in PORT.findall(path.read_text(errors="replace"))}
    return claimed
