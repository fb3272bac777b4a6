"""Debian cron's rules, minute by minute, as its manual and its daemon have them: a second opinion.

Every minute of real time is looked at. A job whose minute or hour is a wildcard runs whenever the
wall clock fits. Any other runs when the wall clock reads its time for the first time, and right
after a gap if its time was left out.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
MINUTE = timedelta(minutes=1)


class Job:
    """Five fields with numbers, lists, ranges and steps; names of weekdays."""

    def __init__(self, cron: str) -> None:
        self.words = cron.upper().split()
        self.fields = [
            _values(word, *bounds) for word, bounds in zip(self.words, RANGES, strict=True)
        ]
        self.is_wild = self.words[0].startswith("*") or self.words[1].startswith("*")

    def fits(self, wall: datetime) -> bool:
        minutes, hours, days, months, weekdays = self.fields
        is_day = wall.day in days
        is_weekday = bool(weekdays & {wall.isoweekday(), wall.isoweekday() % 7})
        either = not (self.words[2].startswith("*") or self.words[4].startswith("*"))
        return (
            wall.minute in minutes
            and wall.hour in hours
            and wall.month in months
            and (is_day or is_weekday if either else is_day and is_weekday)
        )


def _values(word: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, _, step = part.partition("/")
        first, _, last = ("", "", "") if span == "*" else span.partition("-")
        begin = low if span == "*" else _number(first)
        end = high if span == "*" or (step and not last) else _number(last or first)
        found |= set(range(begin, end + 1, int(step or 1)))
    return found


def _number(word: str) -> int:
    return DAYS.index(word) if word in DAYS else int(word)


def runs(crons: Sequence[str], zone: str, begin: datetime, end: datetime) -> dict[str, list[float]]:
    """The times of jobs between two whole minutes of UTC, the first excluded."""
    jobs, info = {cron: Job(cron) for cron in crons}, ZoneInfo(zone)
    found: dict[str, list[float]] = {cron: [] for cron in crons}
    moment = begin
    last = moment.astimezone(info).replace(tzinfo=None)  # the furthest that the clock has read
    while moment < end:
        moment += MINUTE
        wall = moment.astimezone(info).replace(tzinfo=None)
        left_out = _between(last, wall)
        for cron, job in jobs.items():
            is_due = job.fits(wall)
            if not job.is_wild:
                is_due = wall > last and (is_due or any(map(job.fits, left_out)))
            if is_due:
                found[cron].append(moment.astimezone(UTC).timestamp())
        last = max(last, wall)
    return found


def _between(last: datetime, wall: datetime) -> list[datetime]:
    """The minutes that the clock left out."""
    count = int((wall - last) / MINUTE) - 1
    return [last + MINUTE * (number + 1) for number in range(max(0, count))]
