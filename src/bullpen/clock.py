"""Wall-clock time, always aware and UTC. Durations come from `time.monotonic`."""

from datetime import UTC, datetime
from typing import Any

NEAR_SECONDS = 12 * 3600


def now() -> datetime:
    """The current time."""
    return datetime.now(UTC)


def to_text(moment: datetime) -> str:
    """ISO 8601 to the second, as files, JSON and ref names hold it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_exact_text(moment: datetime) -> str:
    """The same to the microsecond, for what may happen twice in a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime:
    """The inverse of `to_text`; raises ValueError for anything else."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def local_time(at: float) -> str:
    """A moment to come, as people here say it: with the day if it is more than half a day away."""
    local = datetime.fromtimestamp(at).astimezone()
    is_near = abs(at - now().timestamp()) < NEAR_SECONDS
    return local.strftime("%H:%M" if is_near else "%a %Y-%m-%d %H:%M")


# Fields of models that hold a time in seconds since 1970, as programs get them by HTTP. A test
# knows all numbers of the models, and asks of a new one whether it belongs here.
TIME_FIELDS = frozenset(
    {
        *("asked", "at", "began", "created", "created_at", "completed_at", "delivered", "ended"),
        *(
            "idle_since",
            "last_heard",
            "limited_until",
            "read",
            "refused",
            "registered",
            "reported_at",
            "sent",
            "since",
            "again_at",
            "gone_at",
            "started",
            "started_at",
            "time",
            "until",
        ),
    }
)


# What is in these is somebody else's: a program's request, a configuration.
OPAQUE_FIELDS = frozenset({"config", "input"})


def with_iso_times(data: Any) -> Any:
    """JSON for people and scripts: its times as text with their zone."""
    if isinstance(data, list):
        return [with_iso_times(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {name: _as_time(name, value) for name, value in data.items()}


def _as_time(name: str, value: Any) -> Any:
    if name in OPAQUE_FIELDS:
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in TIME_FIELDS and is_number:
        # Where a time is not known, some write 0.
        return to_exact_text(datetime.fromtimestamp(value, UTC)) if value else None
    return with_iso_times(value)
