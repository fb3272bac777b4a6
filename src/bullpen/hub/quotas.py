"""What each agent may write into the hub: messages, hooks, questions, telemetry.

Called by the routes that an agent's token may write through, before anything is stored. An agent
that floods is refused with words and a time (429); nobody else notices. The owner has no quota.
Kept in memory: a restart gives everybody a new beginning, and costs as much as a burst.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Literal

from bullpen.errors import BullpenError, Kind
from bullpen.model.quota import Limit, left_after, wait_for

Thing = Literal["messages", "message_bytes", "hooks", "questions", "telemetry"]

# Far above what an agent does that works, and little enough that a month of it fits on a disk.
LIMITS: Mapping[Thing, Limit] = {
    "messages": Limit(at_once=200, per_second=1.0),
    "message_bytes": Limit(at_once=4 << 20, per_second=1 << 10),
    "hooks": Limit(at_once=3000, per_second=10.0),
    "questions": Limit(at_once=300, per_second=0.5),
    "telemetry": Limit(at_once=600, per_second=2.0),
}
WORDS: Mapping[Thing, str] = {
    "messages": "messages",
    "message_bytes": "bytes of messages",
    "hooks": "hooks",
    "questions": "questions for permission",
    "telemetry": "telemetry exports",
}


class Quotas:
    """What is left to each agent of each thing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[tuple[str, Thing], tuple[float, float]] = {}  # how much, and when

    def spend(self, agent: str, amounts: Mapping[Thing, float]) -> None:
        """Count all of it, or refuse it. An empty name is the owner."""
        if not agent:
            return
        now = self._clock()
        left = {thing: self._left_of(agent, thing, now) for thing in amounts}
        for thing, amount in amounts.items():
            seconds = wait_for(LIMITS[thing], left[thing], amount)
            if seconds:
                raise _refusal(agent, thing, math.ceil(seconds))
        for thing, amount in amounts.items():
            self._left[agent, thing] = (left[thing] - amount, now)

    def _left_of(self, agent: str, thing: Thing, now: float) -> float:
        left, at = self._left.get((agent, thing), (LIMITS[thing].at_once, now))
        return left_after(LIMITS[thing], left, now - at)


def _refusal(agent: str, thing: Thing, seconds: int) -> BullpenError:
    return BullpenError(
        f"{agent} has sent too many {WORDS[thing]}",
        hint=f"again in {seconds} s",
        kind=Kind.UNAVAILABLE,
        details={"error": "rate_limited", "retry_after": seconds},
    )
