"""How much an actor may write: so much at once, and then so much per second. Pure.

Used by `hub/quotas`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """`at_once` may be used after a long silence; `per_second` comes back."""

    at_once: float
    per_second: float


def left_after(limit: Limit, left: float, seconds: float) -> float:
    """How much may be used, so many seconds after so much was left."""
    return min(limit.at_once, left + max(0.0, seconds) * limit.per_second)


def wait_for(limit: Limit, left: float, amount: float) -> float:
    """After how many seconds so much may be used; 0: now."""
    return max(0.0, min(amount, limit.at_once) - left) / limit.per_second
