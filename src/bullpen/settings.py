"""`config.yaml`: the settings of one home, their types and their defaults.

The starter `config.yaml` documents each of them; a test holds the two together.
"""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Strict, ValidationInfo, field_validator

from bullpen.check import check, raise_if_any
from bullpen.model.fields import (
    Block,
    Branch,
    Duration,
    Labels,
    PositiveDuration,
    Text,
    Texts,
    matching,
)
from bullpen.yamlfile import Document, Problem, read

Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=0, le=1000)]


def _check_port_range(text: str) -> str:
    found = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]) <= 65535:
        raise ValueError(f'"{text}" is no range of ports · e.g. 9000-9199')
    return text


def _check_quiet_hours(text: str) -> str:
    clock = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
    if re.fullmatch(f"{clock}-{clock}", text) is None:
        raise ValueError(f'"{text}" are no hours · e.g. 22:00-07:00')
    return text


def _check_fleet_url(text: str) -> str:
    if re.fullmatch(r"(?:nats|tls|ws|wss)://\S+", text) is None:
        raise ValueError("is no address of a NATS server · e.g. nats://host:4222")
    if "@" in text:
        raise ValueError("holds a credential · use fleet.token or fleet.creds")
    return text


class Worktrees(Block):
    """Where worktrees lie, how their branches are called, how many there may be."""

    base: Text | None = None
    branch_prefix: Branch = "swarm"
    pool: Count = 0
    max_depth: Count = 2
    auto_cleanup_age: PositiveDuration | None = None


class Discovery(Block):
    """How components of this machine are found."""

    method: Literal["scan", "mdns"] = "scan"
    port_range: Annotated[str, AfterValidator(_check_port_range)] = "9000-9199"
    refresh_interval: PositiveDuration = timedelta(seconds=30)

    @property
    def ports(self) -> range:
        first, last = map(int, self.port_range.split("-"))
        return range(first, last + 1)


class Notifications(Block):
    """Who is told about what outside the terminal."""

    to: Texts = ()
    on: Annotated[tuple[Literal["blocked", "finished", "failed", "budget"], ...], Strict(False)] = (
        "blocked",
        "failed",
        "budget",
    )
    quiet_hours: Annotated[str, AfterValidator(_check_quiet_hours)] | None = None


class Fleet(Block):
    """The NATS server through which this home meets others; no url: alone."""

    url: Annotated[str, AfterValidator(_check_fleet_url)] | None = None
    name: (
        Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", "letters, digits, _ and -")]
        | None
    ) = None
    token: Text | None = None
    creds: Text | None = None
    labels: Labels = Field(default_factory=dict)

    @field_validator("creds")
    @classmethod
    def _one_credential(cls, creds: str | None, info: ValidationInfo) -> str | None:
        if creds and info.data.get("token"):
            raise ValueError("only one of fleet.token and fleet.creds")
        return creds


class Settings(Block):
    """The whole file."""

    port: Port | None = None
    worktrees: Worktrees = Worktrees()
    discovery: Discovery = Discovery()
    workdirs: Texts = ()
    history_limit: Annotated[int, Field(ge=1)] = 100
    ask_timeout: PositiveDuration | None = None
    detach_key: Annotated[
        str, matching(r"ctrl-[a-z@\[\]\\^_]", "ctrl- and a letter or one of @ [ \\ ] ^ _")
    ] = "ctrl-\\"
    stop_grace: Duration = timedelta(seconds=10)
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    notifications: Notifications = Notifications()
    fleet: Fleet = Fleet()


def check_settings(document: Document) -> tuple[Settings | None, list[Problem]]:
    """As `check`, but a file with nothing in it means the defaults."""
    if document.data is None and not document.problems:
        return Settings(), []
    return check(Settings, document)


def load_settings(config_file: Path) -> Settings:
    """The home's settings; without a file the defaults."""
    if not config_file.exists():
        return Settings()
    settings, problems = check_settings(read(config_file))
    raise_if_any("config.yaml", problems)
    assert settings is not None
    return settings
