"""How fast one address may try tokens: after a few wrong ones it waits, longer each time. Pure.

Called by `web/guard` and `web/login`. Who is logged in by a cookie does not wait.
"""

from collections import OrderedDict
from dataclasses import dataclass

from bullpen.component.network import network_of

FREE = 5  # wrong ones without a wait
LONGEST_SECONDS = 300.0
MOST_ADDRESSES = 4096
FORGOTTEN_SECONDS = 3600.0


@dataclass(frozen=True)
class Wrong:
    """What is known of one address."""

    count: int = 0
    until: float = 0.0  # no try counts before
    last: float = float("-inf")


class Tries:
    """Wrong tries by address. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, Wrong] = OrderedDict()

    def wait_seconds(self, address: str, now: float) -> float:
        """How long that address has to wait; 0: it may try."""
        known = self._wrong.get(network_of(address), Wrong())
        return max(0.0, known.until - now)

    def failed(self, address: str, now: float) -> None:
        """A wrong token came from there."""
        key = network_of(address)
        known = self._wrong.pop(key, Wrong())
        count = 1 if now - known.last > FORGOTTEN_SECONDS else known.count + 1
        over = count - FREE
        wait = min(LONGEST_SECONDS, 2.0 ** min(over, 20)) if over >= 0 else 0.0
        self._wrong[key] = Wrong(count, now + wait, now)
        while len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)

    def succeeded(self, address: str) -> None:
        self._wrong.pop(network_of(address), None)
