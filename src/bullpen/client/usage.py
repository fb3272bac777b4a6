"""Calls of `/usage` and `/metrics`: what agents have used. No I/O."""

from typing import TYPE_CHECKING, Literal

from bullpen.client.call import Call, Model, path

if TYPE_CHECKING:
    from bullpen.model.usage import UsageReport
    from bullpen.model.usage_series import UsageSeries


def get_usage(
    by: Literal["agent", "pod", "role", "day"] | None = None, since_seconds: float | None = None
) -> "Call[UsageReport]":
    """What agents have used, those that are gone too; of whole days, from that of so long ago."""
    return Call(
        "GET",
        path("usage"),
        {"by": by, "since_seconds": since_seconds},
        read=Model("usage.UsageReport"),
    )


def get_usage_series(
    by: Literal["agent", "pod", "role"] | None = None,
    step: Literal["15m", "1h", "1d"] | None = None,
    since_seconds: float | None = None,
) -> "Call[UsageSeries]":
    """Tokens and cost over time, of those that used most and of the rest together."""
    return Call(
        "GET",
        path("usage", "series"),
        {"by": by, "step": step, "since_seconds": since_seconds},
        read=Model("usage_series.UsageSeries"),
    )


def get_metrics() -> Call[str]:
    """The same and more in the format of Prometheus."""
    return Call("GET", path("metrics"), read=bytes.decode)
