"""A component: a process beside the hub that serves, and told the hub where. Pure."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field

from bullpen.model.names import NAME
from bullpen.model.state import Value

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def check_url(text: str) -> str:
    """Of this machine, and with nothing in it but the place: no user, no query."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_plain = not (parts.query or parts.fragment or "@" in text or "?" in text or "#" in text)
    if (
        re.fullmatch(r"[!-~]+", text) is None
        or parts.scheme != "http"
        or parts.hostname not in LOOPBACK
        or not port
        or not is_plain
    ):
        raise ValueError("is no http address of this machine · e.g. http://127.0.0.1:9100")
    return text


class Registration(Value):
    """What a component says of itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=f"^{NAME.pattern}$", examples=["telegram"])]
    kind: Literal["director", "view", "bridge"]
    url: Annotated[
        str,
        Field(
            max_length=200,
            description="where it serves: http, of this machine, with its port",
            examples=["http://127.0.0.1:9100"],
        ),
        AfterValidator(check_url),
    ]
    pid: Annotated[int, Field(ge=1, le=1 << 22, description="of its process, which has to live")]
    version: Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[!-~]+$")]


class Component(Registration):
    """One that is known. `start_time` tells its process from a later one with the same pid."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    start_time: str
    registered: float  # seconds since 1970
