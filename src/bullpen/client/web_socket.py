"""What both transports say when they open a WebSocket, and what its failures mean. No I/O."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bullpen.client.failures import hub_is_down, refusal

OPEN_SECONDS = 20.0


def options(headers: Mapping[str, str]) -> dict[str, Any]:
    """Of `connect`, of either kind."""
    return {
        "additional_headers": headers,
        "compression": None,
        "max_size": None,
        "open_timeout": OPEN_SECONDS,
        "close_timeout": 1.0,
    }


@contextmanager
def opening_errors() -> Iterator[None]:
    """Those of the library as the hub's refusal, or as its absence."""
    from websockets.exceptions import InvalidHandshake, InvalidStatus

    try:
        yield
    except InvalidStatus as error:
        raise refusal(error.response.status_code, bytes(error.response.body or b"")) from error
    except (OSError, InvalidHandshake, TimeoutError) as error:
        raise hub_is_down() from error
