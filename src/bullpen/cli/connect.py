"""How a command reaches the hub: its home's, started when it is down.

Called by every command that asks the hub. Says on standard error what a person should know on
the way.
"""

import sys

from bullpen import __version__
from bullpen.client.address import this_home
from bullpen.client.hub import Hub


def connect(*, start: bool = True) -> Hub:
    """The hub of this home; `start=False`: a hub that is down is an error."""
    return Hub(this_home(), start=start, notice=_notice, first_start=warn_of_logout)


def connect_for(name: str) -> tuple[Hub, str]:
    """The hub whose agent or task `HOST/NAME` is, and its name there; without a host this one."""
    host, slash, inner = name.partition("/")
    return (connect().at(host), inner) if slash else (connect(), name)


def warn_of_logout() -> None:
    """Said once per home: some systems end everything of a person who logs out."""
    from bullpen.component import service

    if service.lingering() == "off":
        sys.stderr.write(f"agents end when you log out · {service.ENABLE_LINGER}\n")


def _notice(hub_version: str) -> None:
    sys.stderr.write(
        f"hub is version {hub_version}, this command is {__version__} · bullpen hub restart\n"
    )
