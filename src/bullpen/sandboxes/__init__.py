"""The sandboxes: one module per system, and the table of them.

Turns a policy and a command line into a command line that runs inside a sandbox.
Called by `hub/sandbox`, which makes the policies. Must not fall back to no sandbox.
"""

import sys

from bullpen.sandboxes.base import Git, Network, Policy, Sandbox, WrappedCommand
from bullpen.sandboxes.bubblewrap import BUBBLEWRAP
from bullpen.sandboxes.none import NONE
from bullpen.sandboxes.seatbelt import SEATBELT

SANDBOXES: dict[str, Sandbox] = {
    "bubblewrap": BUBBLEWRAP,
    "seatbelt": SEATBELT,
    "none": NONE,
}

__all__ = ["SANDBOXES", "Git", "Network", "Policy", "Sandbox", "WrappedCommand", "get_sandbox"]


def get_sandbox(platform: str = sys.platform) -> Sandbox:
    """The one of this system. Whether it works here is what `unavailable` tells."""
    return SANDBOXES["seatbelt" if platform == "darwin" else "bubblewrap"]
