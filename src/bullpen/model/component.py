"""A component: a process that serves `/status`, what it reports, how it is asked to end. Pure.

Components are the hub, agents' own ports, directors, views and bridges. Directors, views and
bridges register with the hub.
"""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field

from bullpen.model.names import NAME
from bullpen.model.value import Value

Type = Literal["hub", "agent", "director", "view", "bridge"]
Interface = Literal["statusable", "taskable", "observable", "configurable"]
Phase = Literal["starting", "idle", "working", "draining", "error"]
Level = Literal["debug", "info", "warn", "error"]

PREVIEW_CHARACTERS = 80
PROBLEM_CHARACTERS = 300
DRAIN_SECONDS = 30.0
LONGEST_DRAIN_SECONDS = 86400.0
GONE_SECONDS = 24 * 3600.0  # for so long one that died is shown

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
    state: Phase | None = None  # None: it does not say
    problem: Annotated[
        str, Field(max_length=PROBLEM_CHARACTERS, description="what holds it up, for a person")
    ] = ""


class Component(Registration):
    """One that is known. `start_time` tells its process from a later one with the same pid."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    start_time: str
    registered: float  # that process, in seconds since 1970
    gone_at: float | None = None  # since when its process is known to have died, unless it lives


# ── what it says of itself ──


class CurrentTask(Value):
    """What it works on."""

    id: str
    started_at: float  # seconds since 1970
    prompt_preview: Annotated[str, Field(description="the beginning of the prompt")]


def preview(prompt: str) -> str:
    """The beginning of a prompt, in one line."""
    return " ".join(prompt.split())[:PREVIEW_CHARACTERS]


class JournalEntry(Value):
    """Something in its life; more keys than these may come. Never what a model wrote."""

    model_config = ConfigDict(frozen=True, extra="allow")

    time: float  # seconds since 1970
    level: Level
    message: str


class PublicStatus(Value):
    """What anybody on this machine may know."""

    type: Type
    interfaces: tuple[Interface, ...]
    name: str
    version: str
    state: Phase
    uptime_seconds: float
    home_id: str


class Status(PublicStatus):
    """What the owner may know."""

    pid: int
    current_task: CurrentTask | None
    config: dict[str, Any]
    sandbox: Annotated[dict[str, Any] | None, Field(description="none: it has no sandbox")]
    log: Annotated[tuple[JournalEntry, ...], Field(description="the last 1,000, oldest first")]

    def public(self) -> PublicStatus:
        """The part for everybody."""
        return PublicStatus(**{name: getattr(self, name) for name in PublicStatus.model_fields})


class HubStatus(Status):
    """The hub as a component, and in a few figures."""

    port: int
    home: str
    agents: int
    running: int
    components: int
    settings_note: str = ""  # why config.yaml does not count as it is now


# ── how a task agent is set up ──


class AgentConfig(Value):
    """An agent's file; of its variables the names only, of its sandbox what the file says."""

    config: dict[str, Any]
    has_file: bool


class AgentConfigured(AgentConfig):
    """The same after a change: what holds from the next task on, and what from the next start."""

    live: tuple[str, ...]
    restart: tuple[str, ...]
    comments_dropped: Annotated[
        bool, Field(description="the file had comments; it is written anew, without them")
    ]


# ── how it is told to leave ──


class Shutdown(Value):
    """How it is asked to leave."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    timeout_seconds: Annotated[
        float | None,
        Field(
            ge=0,
            le=LONGEST_DRAIN_SECONDS,
            allow_inf_nan=False,
            description="how long a running task is waited for; 30 if it is not said",
        ),
    ] = None
    force: Annotated[bool, Field(description="cancel what runs at the end of that")] = False


class Leaving(Value):
    """It leaves; answered before it has left."""

    message: str
    drain_timeout: float
    pid: int
