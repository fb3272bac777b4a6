"""How a command reaches the hub: its home's, started when it is down, with what a person should
know on the way said on standard error."""

import sys

from bullpen import __version__
from bullpen.client.hub import HubClient
from bullpen.paths import current_home


def connect(*, start: bool = True) -> HubClient:
    """The hub of this home; `start=False`: a hub that is down is an error."""
    return HubClient(current_home(), start=start, notice=_notice)


def _notice(hub_version: str) -> None:
    sys.stderr.write(
        f"the hub is version {hub_version}, this command is {__version__} · bullpen hub restart\n"
    )
