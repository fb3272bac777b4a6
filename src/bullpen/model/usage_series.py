"""What was used over time: tokens and cost by step of time, for each agent, pod or role. Pure.

`hub/usage/rows.py` reads the amounts, the page draws them.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from bullpen.model.value import Value

Step = Literal["15m", "1h", "1d"]
SeriesBy = Literal["agent", "pod", "role"]

QUARTER_SECONDS = 900
MINUTES: dict[Step, int] = {"15m": 15, "1h": 60}
# So many columns can be told apart on a screen; quarters of an hour are kept for eight days.
MOST_DAYS: dict[Step, int] = {"15m": 2, "1h": 8, "1d": 400}
MOST_NAMES = 7  # so many colours can be told apart, too


class UsageLine(Value):
    """What one of them used in each step of time."""

    name: str
    tokens: tuple[int, ...]
    usd: tuple[float, ...]


class UsageSeries(Value):
    """Usage over time. `starts` are the hub's local times at which the steps begin, without gaps up
    to the end of today; `lines` those that used most, `rest` all others together."""

    by: SeriesBy
    step: Step
    starts: tuple[str, ...]
    lines: tuple[UsageLine, ...]
    rest: UsageLine | None


@dataclass(frozen=True)
class UsagePoint:
    """What was used in one step of time, by its start."""

    name: str
    start: str
    tokens: int
    usd: float


def start_of(at: datetime, step: Step) -> str:
    """The start of the step that a local time is in: `2026-11-17`, `2026-11-17T14:15+01:00`."""
    if step == "1d":
        return at.date().isoformat()
    minute = at.minute - at.minute % MINUTES[step]
    return at.replace(minute=minute, second=0, microsecond=0).isoformat(timespec="minutes")


def starts_between(first: str, now: datetime, step: Step) -> tuple[str, ...]:
    """The starts of all steps from that day to the end of today; of the last days, if it is long
    ago. `now` is local."""
    oldest = now.date() - timedelta(days=MOST_DAYS[step] - 1)
    day = max(datetime.fromisoformat(first).date() if first else oldest, oldest)
    if step == "1d":
        days = range((now.date() - day).days + 1)
        return tuple((day + timedelta(days=each)).isoformat() for each in days)
    begin = datetime(day.year, day.month, day.day).astimezone()
    tomorrow = now.date() + timedelta(days=1)
    end = datetime(tomorrow.year, tomorrow.month, tomorrow.day).astimezone()
    seconds = MINUTES[step] * 60
    # By the seconds that pass: a day on which the clock is set has 23 or 25 hours.
    times = range(int(begin.timestamp()), int(end.timestamp()), seconds)
    return tuple(
        dict.fromkeys(start_of(datetime.fromtimestamp(at).astimezone(), step) for at in times)
    )


def make_series(
    by: SeriesBy, step: Step, starts: Sequence[str], points: Iterable[UsagePoint]
) -> UsageSeries:
    """The series of those that used most, and of the rest."""
    position = {start: at for at, start in enumerate(starts)}
    tokens: dict[str, list[int]] = defaultdict(lambda: [0] * len(starts))
    usd: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(starts))
    for point in points:
        at = position.get(point.start)
        if at is not None:
            tokens[point.name][at] += point.tokens
            usd[point.name][at] += point.usd
    names = sorted(tokens, key=lambda name: (-sum(usd[name]), -sum(tokens[name]), name))
    lines = [
        UsageLine(name=name, tokens=tuple(tokens[name]), usd=tuple(usd[name])) for name in names
    ]
    shown, others = lines[:MOST_NAMES], lines[MOST_NAMES:]
    return UsageSeries(
        by=by, step=step, starts=tuple(starts), lines=tuple(shown), rest=_together(others)
    )


def _together(lines: Sequence[UsageLine]) -> UsageLine | None:
    if not lines:
        return None
    tokens = zip(*(line.tokens for line in lines), strict=True)
    usd = zip(*(line.usd for line in lines), strict=True)
    return UsageLine(
        name=f"{len(lines)} others", tokens=tuple(map(sum, tokens)), usd=tuple(map(sum, usd))
    )
