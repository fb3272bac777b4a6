"""The web view of this home as commands see it: the process, started and stopped.

Called by `web`, `up` and `down`.
"""

import os

from bullpen.cli.components import OwnComponent, ask_to_leave, own_components
from bullpen.cli.start_component import start_component
from bullpen.client.start import answers, start_hub
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home


def find_view(home: Home) -> OwnComponent | None:
    """Its process."""
    return next((one for one in own_components(home) if one.type == "view"), None)


def refuse_agent() -> None:
    """Raise if this command is an agent's."""
    if os.environ.get("BULLPEN_ACTOR"):
        raise BullpenError("an agent may not start the web view", kind=Kind.DENIED)


def start_view(home: Home) -> bool:
    """Start it, with a hub; False: it runs already."""
    refuse_agent()
    if find_view(home) is not None:
        return False
    if not answers(home):
        start_hub(home, os.environ)
    start_component(home, "the view", "web", "bullpen.web.view")
    return True


def stop_view(home: Home) -> bool:
    """Stop it; False: it does not run."""
    running = find_view(home)
    if running is not None:
        ask_to_leave(running.socket, running.type, running.name, timeout=0, force=True)
    return running is not None
