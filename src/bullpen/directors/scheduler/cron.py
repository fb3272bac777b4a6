"""Times of a schedule: five fields as Debian's cron has them, in a time zone. Pure.

Called by `config`, `plan` and `bullpen schedule next`. The rules are cronsim's, which are Debian's:
a fixed time that a clock change leaves out runs right after the gap, one that comes
twice runs once; what runs every hour or minute runs in both passes.
"""

import functools
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FORM = "five fields: minute hour day month weekday, e.g. 30 2 * * MON-FRI"
SECOND = timedelta(seconds=1)
# A clock change is over after that. Who begins to count in the middle of one gets it wrong.
BEFORE = timedelta(hours=4)


def check_cron(text: str) -> str:
    """The text, if it is a time that ever comes. ValueError says what to write instead."""
    words = text.split()
    first = words[0] if words else ""
    if first.startswith("@"):
        if text.strip().lower() not in ALIASES:
            raise ValueError(_about_alias(first))
        return text
    if first.upper().startswith(("CRON_TZ=", "TZ=")):
        raise ValueError("a time zone has a key of its own · timezone: Europe/Berlin")
    if len(words) == 6:
        raise ValueError(f"six fields: seconds are not known · {FORM}")
    if len(words) != 5:
        raise ValueError(f'"{text[:60]}" has {len(words)} fields · {FORM}')
    try:
        next(CronSim(text, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        if _has_right_fields(words):
            raise ValueError(f'"{text[:60]}" never comes: no such month has that day') from error
        raise ValueError(f'"{text[:60]}": {str(error).lower()} · {FORM}') from error
    except StopIteration as error:
        raise ValueError(f'"{text[:60]}" never comes') from error
    return text


def _has_right_fields(words: list[str]) -> bool:
    """Whether only the day and the month do not go together: cronsim calls that a bad day."""
    minute, hour, day, month, weekday = words
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    try:
        CronSim(f"{minute} {hour} {day} * {weekday}", begin)
        CronSim(f"0 0 * {month} *", begin)
    except CronSimError:
        return False
    return True


def _about_alias(alias: str) -> str:
    known = ", ".join(ALIASES)
    if alias.lower() == "@every":
        return "@every is not known · every 15 minutes is */15 * * * *"
    if alias.lower() == "@reboot":
        return f"@reboot is no time · one of {known}"
    return f'"{alias[:40]}" is not known · one of {known}'


def check_zone(name: str) -> str:
    """The name, if it is a time zone of this machine."""
    _zone(name)
    return name


def is_zone(name: str) -> bool:
    """Whether this machine knows a time zone of that name."""
    try:
        _zone(name)
    except ValueError:
        return False
    return True


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f'"{name[:60]}" is no time zone · e.g. Europe/Berlin, UTC') from error


def occurrences(cron: str, zone: str, after: float) -> Iterator[float]:
    """The times after that one, in seconds since 1970. The same however often it is begun anew."""
    fields = ALIASES.get(cron.strip().lower(), cron)
    minute, hour, *_ = fields.split()
    if minute.startswith("*") or hour.startswith("*"):
        return _by_offset(fields, _zone(zone), after)
    return _by_wall(fields, _zone(zone), after)


def _by_wall(fields: str, zone: ZoneInfo, after: float) -> Iterator[float]:
    """Of a fixed time of the day."""
    begin = datetime.fromtimestamp(after, UTC) - BEFORE
    last = after
    for moment in CronSim(fields, begin.astimezone(zone)):
        due = moment.timestamp()
        if due > last:
            last = due
            yield due


def _by_offset(fields: str, zone: ZoneInfo, after: float) -> Iterator[float]:
    """Of what comes every hour or minute: in each stretch of time between two changes of the clock
    by itself. cronsim 2.8 gets out of step where a clock changes by half an hour."""
    moment = datetime.fromtimestamp(after, UTC)
    while True:
        last, change = moment, None
        offset = _offset(zone, moment + SECOND)
        for wall in CronSim(fields, moment + offset):
            due = wall - offset
            if _offset(zone, due) != offset:
                change = _find_change(zone, last + SECOND, due)
                break
            last = due
            yield due.timestamp()
        if change is None:
            return  # it never comes again
        moment = change - SECOND


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def _find_change(zone: ZoneInfo, early: datetime, late: datetime) -> datetime:
    """The first second with another offset than `early` has; `late` has another one."""
    offset = _offset(zone, early)
    low, high = int(early.timestamp()), int(late.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, datetime.fromtimestamp(middle, UTC)) == offset:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, UTC)


def last_occurrences(cron: str, zone: str, until: float, count: int) -> list[float]:
    """The last ones up to that time, oldest first."""
    fields = ALIASES.get(cron.strip().lower(), cron)
    moment = datetime.fromtimestamp(until, UTC).astimezone(_zone(zone)) + timedelta(seconds=1)
    moments = islice(CronSim(fields, moment, reverse=True), count)
    return sorted({each.timestamp() for each in moments})


@functools.lru_cache(1024)
def next_occurrence(cron: str, zone: str, after: float) -> float | None:
    """The first of them; None: it never comes again."""
    return next(occurrences(cron, zone, after), None)


class NextRuns:
    """The next times of entries, found anew only when the first of them has passed: a schedule of
    a thousand entries is looked at every few seconds."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._known: dict[tuple[str, str], tuple[float, tuple[float, ...]]] = {}

    def of(self, cron: str, zone: str, now: float) -> tuple[float, ...]:
        """So many after now, or as many as there are."""
        found_at, runs = self._known.get((cron, zone), (now, ()))
        if not runs or not found_at <= now < runs[0]:  # a clock may also have been set back
            runs = tuple(islice(occurrences(cron, zone, now), self._count))
            self._known[cron, zone] = now, runs
        return runs

    def forget_others(self, wanted: Collection[tuple[str, str]]) -> None:
        """Those of entries that are no more."""
        self._known = {key: each for key, each in self._known.items() if key in wanted}
