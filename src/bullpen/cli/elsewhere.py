"""`HOST/AGENT`, where a command works on files of the agent's machine: what to do instead, and
where.

Called by commands that cannot have another machine's hub do it. Asks no hub: `config.yaml` says
whether there can be another machine.
"""

import shlex
import sys

from bullpen.errors import BullpenError, Kind
from bullpen.model.names import NAME, SUBTREE_NAME


def name_here(name: str, here: str = "") -> str:
    """The name on this machine, which a fleet calls HOST/NAME. Raises if it is an agent of another
    machine; `here` is a command of this one that does part of it, to be followed by the name."""
    host, _, agent = name.partition("/")
    if not NAME.fullmatch(host) or not SUBTREE_NAME.fullmatch(agent):
        return name
    own = without_own_host(name)
    if own != name:
        return own
    words = [agent if word == name else word for word in sys.argv[1:]]
    there = f"on {host}: {shlex.join(['bullpen', *words])}"
    raise BullpenError(
        f"{name}: this can be done on {host} alone",
        hint=f"{here} {name} · {there}" if here else there,
        kind=Kind.UNSUPPORTED,
    )


def without_own_host(name: str) -> str:
    """Without the host if that is this machine, else as it is. Raises if the name has a slash, as
    HOST/AGENT and branches have, and this machine knows no other."""
    host, slash, agent = name.partition("/")
    if not slash:
        return name
    from bullpen.home.paths import current_home
    from bullpen.home.settings import load_settings

    fleet = load_settings(current_home().config_file).fleet
    if fleet.url is None:
        raise BullpenError(
            f"nothing here is called {name}, and this machine is in no fleet",
            hint="bullpen list · bullpen worktree list",
            kind=Kind.NOT_FOUND,
        )
    return agent if host == fleet.name else name


def logs_of(name: str) -> str:
    """The command that follows what an agent writes, and where."""
    host, slash, agent = name.partition("/")
    return f"on {host}: bullpen logs -f {agent}" if slash else f"bullpen logs -f {name}"
