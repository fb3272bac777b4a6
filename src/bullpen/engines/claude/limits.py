"""Rate limits of the model's API, as Claude Code speaks of them. Pure.

While it tries again by itself it says nothing, neither by hook nor by telemetry. When it gives up
(2.1.325), the hook StopFailure has the error `rate_limit` and the words on its screen. With a
subscription these name the reset (`resets 6:14am (UTC)`, `resets Nov 19, 4am (Europe/Berlin)`,
the minute rounded down); with an API key they name none.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from bullpen.engines.base import RateLimited

LONGEST_SECONDS = 40 * 86400.0  # what no limit lasts: a text that was misread
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
RESET = re.compile(
    r"resets (?:([A-Z][a-z]{2}) ([0-9]{1,2}),(?: ([0-9]{4}),)? )?"
    r"([0-9]{1,2})(?::([0-9]{2}))?(am|pm) \(([A-Za-z0-9_+/-]{1,60})\)"
)


def limited(hook: Mapping[str, Any], now: float) -> RateLimited | None:
    """Whether a turn ended at a limit, and when that will be reset."""
    if hook.get("hook_event_name") != "StopFailure" or hook.get("error") != "rate_limit":
        return None
    return RateLimited(find_reset(str(hook.get("last_assistant_message") or "")[:2000], now))


def find_reset(text: str, now: float) -> float | None:
    """The moment that the words name, the next one after now; None if they name none."""
    parts = RESET.search(text)
    if parts is None:
        return None
    month, day, year, hour, minute, half, zone_name = parts.groups()
    try:
        zone = UTC if zone_name == "UTC" else ZoneInfo(zone_name)
        here = datetime.fromtimestamp(now, zone)
        moment = here.replace(
            hour=int(hour) % 12 + (12 if half == "pm" else 0),
            minute=int(minute or 0),
            second=0,
            microsecond=0,
        )
        if month:
            which = MONTHS.index(month) + 1
            moment = moment.replace(year=int(year or here.year), month=which, day=int(day))
            if not year and moment < here - timedelta(days=1):
                moment = moment.replace(year=here.year + 1)
    except (ValueError, KeyError, OSError, OverflowError):  # also a zone that is not known here
        return None
    # Rounded down to the minute: the one that is just running is meant, not that of tomorrow.
    at = moment.timestamp() + 60
    if at < now and not month:
        at = (moment + timedelta(days=1)).timestamp() + 60
    return at if now <= at <= now + LONGEST_SECONDS else None
