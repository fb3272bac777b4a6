"""The web view of this home as commands see it: the process, started and stopped.

Called by `web`, `up` and `down`.
"""

import os

from bullpen.cli.components import OwnComponent, own_components
from bullpen.cli.supervised import Supervisable
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
    """Start it, with a hub; False: it runs already. One that waits for its next start after a crash
    is started now."""
    refuse_agent()
    view = _supervisable(home)
    with view.alone():
        if (running := find_view(home)) is not None:
            view.supervise(running.pid)
            return False
        view.stop(None)
        if not answers(home):
            start_hub(home, os.environ)
        view.start()
    return True


def stop_view(home: Home) -> bool:
    """Stop it; False: it does not run."""
    view = _supervisable(home)
    with view.alone():
        return view.stop(find_view(home))


def _supervisable(home: Home) -> Supervisable:
    return Supervisable(home, "the view", home.root / "web", "web", "bullpen.web.view")
