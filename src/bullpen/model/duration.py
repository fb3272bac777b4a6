"""Durations as people write them: `90s`, `10m`, `1h30m`, `7d`."""

import re
from datetime import timedelta

FORM = re.compile(r"(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,9})s)?")
EXAMPLES = "e.g. 90s, 10m, 1h30m, 7d"


def parse(text: str) -> timedelta:
    """The duration; ValueError with examples for anything else, a bare number included."""
    match = FORM.fullmatch(text)
    if not text or match is None:
        raise ValueError(f'"{text[:40]}" is no duration · {EXAMPLES}')
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def to_text(duration: timedelta) -> str:
    """The shortest form that `parse` reads back; whole seconds."""
    minutes, seconds = divmod(int(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"
