"""When an agent is started again by itself: by which end, and how often. Pure.

Asked by `hub/revive.py`. The rule is the role's `restart`.
"""

from collections.abc import Iterable

from bullpen.model.role import RestartRule
from bullpen.model.state import Exited, Interrupted, Lost, State

MOST = 5
WINDOW_SECONDS = 600.0


def is_wanted(rule: RestartRule, end: State) -> bool:
    """Whether an agent of that rule is to come back after that end, if nobody stopped it."""
    match end:
        case Interrupted(reason=reason):
            return rule != "never" and reason != "killed"  # which a person did
        case Exited(code=0):
            return rule == "always"
        case Exited() | Lost():
            return rule != "never"
        case _:
            return False


def add_restart(times: Iterable[float], now: float) -> tuple[float, ...] | None:
    """The restarts of the last ten minutes, with one more; None if there were too many."""
    recent = tuple(time for time in times if now - WINDOW_SECONDS < time <= now)
    return (*recent, now) if len(recent) < MOST else None
