"""How a command reaches the hub: its home's, started when it is down, with what a person should
know on the way said on standard error."""

import os
import sys
from pathlib import Path

from bullpen import __version__
from bullpen.client import reach
from bullpen.client.hub import HubClient
from bullpen.errors import BullpenError
from bullpen.paths import Home, current_home


def connect(*, start: bool = True) -> HubClient:
    """The hub of this home; `start=False`: a hub that is down is an error."""
    client = HubClient(_home(), start=start, notice=_notice)
    client.first_start = warn_of_logout
    return client


def _home() -> Home:
    """In a sandbox there is no more of it than its name, and the agent's own door to its hub."""
    try:
        return current_home()
    except BullpenError:
        named = os.environ.get("BULLPEN_DIR")
        if not named or reach.find_door(dict(os.environb)) is None:
            raise
        return Home(Path(named))


def warn_of_logout() -> None:
    """Said once per home: some systems end everything of a person who logs out."""
    from bullpen.component import service

    if service.lingering() == "off":
        sys.stderr.write(f"agents end when you log out · {service.ENABLE_LINGER}\n")


def _notice(hub_version: str) -> None:
    sys.stderr.write(
        f"hub is version {hub_version}, this command is {__version__} · bullpen hub restart\n"
    )
