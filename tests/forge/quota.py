"""GitHub's limits in force: so many requests in an hour, so many points and changes in a minute.

forge.quota = Quota(now=office.now, pass_seconds=office.pass_seconds)

Times are those of the director's clock, which every request moves on. A 304 is free of the hourly
limit, as on GitHub; that of points counts it here, on which GitHub says nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

REQUEST_SECONDS = 0.1
CHANGE_POINTS = 5
MINUTE, HOUR = 60.0, 3600.0
# The end of an hour is told as a time of this machine, on which more than that of the director's
# clock may pass until the director reads it: it is told later than it is.
MARGIN_SECONDS = 300


@dataclass(frozen=True)
class Limit:
    """A refusal of the next request: "primary" or "secondary", with GitHub's headers."""

    kind: str
    seconds: int
    status: int = 403


@dataclass
class Quota:
    """See the module. `impatient`: requests that came before the time that a limit named."""

    now: Callable[[], float]
    pass_seconds: Callable[[float], None]
    hourly: int = 5000
    minutes_points: int = 900
    minutes_changes: int = 80
    hours_changes: int = 500
    counted: list[float] = field(default_factory=list)
    points: list[tuple[float, int]] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)
    refused: list[Limit] = field(default_factory=list)
    impatient: int = 0
    _hour: float = 0.0  # when the present one began
    _closed_until: float = 0.0

    def find_limit(self, method: str) -> Limit | None:
        """That the request hits; None: it may pass."""
        self.pass_seconds(REQUEST_SECONDS)
        now = self.now()
        self.impatient += now < self._closed_until
        if now >= self._hour + HOUR:
            self._hour = now
        limit = self._limit(now, method)
        if limit is not None:
            self.refused.append(limit)
            is_primary = limit.kind == "primary"
            self._closed_until = self._hour + HOUR if is_primary else now + limit.seconds
            return limit
        self.points.append((now, 1 if method == "GET" else CHANGE_POINTS))
        if method != "GET":
            self.changes.append(now)
        return None

    def _limit(self, now: float, method: str) -> Limit | None:
        if sum(at >= self._hour for at in self.counted) >= self.hourly:
            return Limit("primary", int(self._hour + HOUR - now) + MARGIN_SECONDS)
        self.points = [each for each in self.points if each[0] > now - MINUTE]
        if sum(points for _, points in self.points) >= self.minutes_points:
            return Limit("secondary", int(MINUTE))
        if method == "GET":
            return None
        if sum(at > now - MINUTE for at in self.changes) >= self.minutes_changes:
            return Limit("secondary", int(MINUTE))
        if sum(at > now - HOUR for at in self.changes) >= self.hours_changes:
            return Limit("secondary", int(HOUR / 6), 429)
        return None

    def count(self, status: int) -> None:
        """What was answered."""
        if status != 304:
            self.counted.append(self.now())

    def most_in_an_hour(self) -> int:
        """Of requests that count, in any hour."""
        return max(
            (
                sum(1 for each in self.counted[index:] if each < at + HOUR)
                for index, at in list(enumerate(self.counted))[:: max(1, len(self.counted) // 200)]
            ),
            default=0,
        )
