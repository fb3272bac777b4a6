"""The sandboxes Bullpen knows: one module each, and this table."""

import sys

from bullpen.sandboxes.base import Git, Network, Policy, Sandbox, Wrapped
from bullpen.sandboxes.bubblewrap import BUBBLEWRAP
from bullpen.sandboxes.none import NONE
from bullpen.sandboxes.seatbelt import SEATBELT

SANDBOXES: dict[str, Sandbox] = {
    "bubblewrap": BUBBLEWRAP,
    "seatbelt": SEATBELT,
    "none": NONE,
}

__all__ = ["SANDBOXES", "Git", "Network", "Policy", "Sandbox", "Wrapped", "get_sandbox"]


def get_sandbox(platform: str = sys.platform) -> Sandbox:
    """The one of this system. Whether it works here is what `unavailable` tells."""
    return SANDBOXES["seatbelt" if platform == "darwin" else "bubblewrap"]
