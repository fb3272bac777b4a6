"""Times of schedules (D1): what is refused, and when the others come, also when clocks change."""

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

import pytest

from bullpen.directors.scheduler.cron import (
    ALIASES,
    NextRuns,
    check_cron,
    check_zone,
    last_occurrences,
    next_occurrence,
    occurrences,
)
from tests.directors import debian

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour
    "Africa/Cairo",  # at midnight
    "Asia/Kolkata",  # never
    "America/Santiago",  # at midnight, in the south
)
CRONS = (
    *("0 0 * * *", "30 2 * * *", "15,45 1 * * *", "30 1 * * MON-FRI", "0 2 13 * FRI", "5 0 1 * *"),
    *("0 * * * *", "*/30 * * * *", "*/20 1-3 * * *", "10 * * * SUN", "0 */2 * * *"),
)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def texts(cron: str, zone: str, after: str, count: int) -> list[str]:
    found = islice(occurrences(cron, zone, at(after)), count)
    return [datetime.fromtimestamp(due, UTC).strftime("%m-%d %H:%M") for due in found]


@pytest.mark.parametrize("cron", [*CRONS, *ALIASES, "@Daily", "0 9 * JAN MON", "0 0 L * *"])
def test_d1_a_time_is_taken(cron: str) -> None:
    assert check_cron(cron) == cron
    assert next_occurrence(cron, "UTC", 0.0)


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("", "has 0 fields · five fields"),
        ("* * * *", "has 4 fields · five fields"),
        ("0 30 2 * * *", "six fields: seconds are not known · five fields"),
        ("* * * * * * *", "has 7 fields"),
        ("@every 15m", r"@every is not known · every 15 minutes is \*/15 \* \* \* \*"),
        ("@reboot", "@reboot is no time · one of @hourly"),
        ("@dayly", '"@dayly" is not known · one of @hourly'),
        ("CRON_TZ=UTC 0 0 * * *", "a key of its own · timezone: Europe/Berlin"),
        ("TZ=UTC 0 0 * * *", "a key of its own"),
        ("60 * * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 31 2 *", '"0 0 31 2 \\*" never comes'),
        ("0 0 30,31 FEB *", "never comes: no such month has that day$"),
        ("0 0 32 2 *", "bad day-of-month"),
        ("0 0 31 13 *", "bad month"),
        ("a b c d e", "bad minute"),
    ],
)
def test_d1_what_is_no_time_is_refused_with_the_form_to_use(cron: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_cron(cron)


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "", "../etc/passwd", "/etc/passwd", "a\0b", "CET "]
)
def test_d1_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no time zone"):
        check_zone(name)


# Debian's cron itself did this: in Berlin 2026-03-29 has no 02:00, and 2026-10-25 has it twice.
@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("30 2 * * *", "2026-03-28T12:00Z", ["03-29 01:00", "03-30 00:30"]),  # once, right after
        ("10,40 2 * * *", "2026-03-28T12:00Z", ["03-29 01:00", "03-30 00:10"]),
        ("30 2 * * *", "2026-10-24T12:00Z", ["10-25 00:30", "10-26 01:30"]),  # once, the first time
        ("0 * * * *", "2026-10-24T23:30Z", ["10-25 00:00", "10-25 01:00", "10-25 02:00"]),
        ("*/30 * * * *", "2026-10-25T00:15Z", ["10-25 00:30", "10-25 01:00", "10-25 01:30"]),
        ("0 * * * *", "2026-03-29T00:30Z", ["03-29 01:00", "03-29 02:00"]),
    ],
)
def test_d1_clock_changes_are_debian_crons(cron: str, after: str, expected: list[str]) -> None:
    assert texts(cron, "Europe/Berlin", after, len(expected)) == expected


@pytest.mark.parametrize("cron", CRONS)
def test_d1_it_is_the_same_from_wherever_it_is_counted(cron: str) -> None:
    begin, end = at("2026-10-24T20:00Z"), at("2026-10-25T06:00Z")
    whole = list(takewhile(lambda due: due <= end, occurrences(cron, "Europe/Berlin", begin)))
    for minute in range(0, 600, 7):  # also in the middle of the hour that comes twice
        since = begin + minute * 60
        rest = takewhile(lambda due: due <= end, occurrences(cron, "Europe/Berlin", since))
        assert list(rest) == [due for due in whole if due > since]


def test_d1_the_last_ones_are_those_that_were() -> None:
    begin, end = at("2026-05-01T00:00Z"), at("2026-05-03T00:00Z")
    for cron in ("*/7 * * * *", "0 */3 * * *"):
        all_of_them = list(takewhile(lambda due: due <= end, occurrences(cron, "UTC", begin)))
        assert last_occurrences(cron, "UTC", end, 5) == all_of_them[-5:]


def compare(zone: str, begin: datetime, end: datetime) -> None:
    for cron, expected in debian.runs(CRONS, zone, begin, end).items():
        ours = occurrences(cron, zone, begin.timestamp())
        assert list(takewhile(lambda due: due <= end.timestamp(), ours)) == expected, cron


@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        ("Europe/Berlin", "2026-03-28T12:00Z"),
        ("Europe/Berlin", "2026-10-24T12:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T00:00Z"),
        ("Africa/Cairo", "2026-04-23T12:00Z"),
    ],
)
def test_d1_a_clock_change_is_as_debian_cron_has_it(zone: str, begin: str) -> None:
    moment = datetime.fromisoformat(begin)
    compare(zone, moment, moment + timedelta(days=1, hours=12))


@pytest.mark.storm
@pytest.mark.parametrize("zone", ZONES)
def test_d1_a_year_is_as_debian_cron_has_it(zone: str) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    compare(zone, begin, begin.replace(year=2027))


def test_d1_next_runs_are_found_anew_only_when_the_first_has_passed() -> None:
    runs, now = NextRuns(3), 1_800_000_000.0  # a whole hour
    first = runs.of("0 * * * *", "UTC", now)
    assert first == (now + 3600, now + 7200, now + 10800)
    assert runs.of("0 * * * *", "UTC", now + 3599) is first
    assert runs.of("0 * * * *", "UTC", now + 3600) == (now + 7200, now + 10800, now + 14400)
    assert runs.of("0 * * * *", "UTC", now - 1) == (now, now + 3600, now + 7200)  # set back
    again = runs.of("0 * * * *", "UTC", now)
    runs.forget_others(())
    assert (runs.of("0 * * * *", "UTC", now), runs.of("0 * * * *", "UTC", now) is again) == (
        again,
        False,
    )
