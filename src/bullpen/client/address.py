"""Where the hub of a home is reached: the home's socket or, in a sandbox, the agent's own.

Called by both transports and by commands. Connects to nothing.
"""

import os
from pathlib import Path
from typing import NamedTuple

from bullpen.errors import BullpenError
from bullpen.home import marker
from bullpen.home.paths import HUB, Home, current_home
from bullpen.hot import find_hub


class Address(NamedTuple):
    """A socket of the hub. An agent's own is there only while the hub is, and cannot start it."""

    home: Home
    socket: str
    is_agents_own: bool


def address_of(home: Home) -> Address:
    """In a sandbox the home is not to be seen; the agent's own socket is."""
    own = None if marker.is_home(home.root) else find_hub.find_agent_socket(dict(os.environb))
    return Address(home, os.fsdecode(own) if own else str(home.socket(HUB)), own is not None)


def home_of(home: Home | Path | str | None) -> Home:
    """The home that is meant, which None says is this one."""
    if home is None:
        return this_home()
    return home if isinstance(home, Home) else Home(Path(home).resolve())


def this_home() -> Home:
    """The home of this process; in a sandbox no more than its name."""
    try:
        return current_home()
    except BullpenError:
        named = os.environ.get("BULLPEN_DIR")
        if not named or find_hub.find_agent_socket(dict(os.environb)) is None:
            raise
        return Home(Path(named))
