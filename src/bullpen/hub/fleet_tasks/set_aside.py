"""Agents that could not begin a task of the fleet: each gets none for a while, twice as long each
time. By agent and not by task: what hinders it is its own, and others may have the task at once."""

import time
from collections.abc import Callable

FIRST_SECONDS, LONGEST_SECONDS = 5.0, 60.0


class SetAside:
    """All of this machine."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pauses: dict[str, tuple[float, float]] = {}  # its seconds, and its end

    def __contains__(self, name: object) -> bool:
        return name in self._pauses and self._clock() < self._pauses[str(name)][1]

    def add(self, name: str) -> None:
        """It could not, again perhaps."""
        last, _ = self._pauses.get(name, (FIRST_SECONDS / 2, 0.0))
        seconds = min(2 * last, LONGEST_SECONDS)
        self._pauses[name] = seconds, self._clock() + seconds

    def forget(self, name: str) -> None:
        """It could."""
        self._pauses.pop(name, None)
