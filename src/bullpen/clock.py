"""Wall-clock time, always aware and UTC. Durations come from `time.monotonic`."""

from datetime import UTC, datetime


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
