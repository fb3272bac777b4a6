"""`config.yaml`: the settings of one home, their types and their defaults.

The hub's port is `port` here; `hub/listen` binds it, and chooses one where it is not set. The
starter `config.yaml` documents each setting; a test compares the two.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from bullpen.home.check import check, raise_if_any
from bullpen.home.yamlfile import Document, FileProblem, read
from bullpen.model.fields import (
    Block,
    Branch,
    Duration,
    PositiveDuration,
    Text,
    Texts,
    matching,
    refuse,
)
from bullpen.model.fleet import WORD_CHARACTERS
from bullpen.model.landing_rules import LandingSettings

Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=0, le=1000)]


# Offered by an earlier version, and never of any use: files that set them still load.
EARLIER = (("notifications",), ("discovery", "refresh_interval"))
HOST_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")  # of a machine in a fleet
PORTS = range(9000, 9200)  # of the components of this machine; `hub/listen` takes the highest


def _check_port_range(text: str) -> str:
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) <= 65535:
        raise ValueError(f'"{text}" is no range of ports · e.g. 9000-9199')
    return text


def _ports_of(text: str) -> range:
    first, last = map(int, text.split("-"))
    return range(first, last + 1)


PortRange = Annotated[str, AfterValidator(_check_port_range)]


class Worktrees(Block):
    """Where worktrees lie, how their branches are called, how many there may be."""

    base: Text | None = None
    branch_prefix: Branch = "swarm"
    pool: Count = 0
    max_depth: Count = 2
    auto_cleanup_age: PositiveDuration | None = None
    port_range: PortRange = "20000-29999"

    @property
    def ports(self) -> range:
        return _ports_of(self.port_range)


class Discovery(Block):
    """How components of this machine are found."""

    method: Literal["scan", "mdns"] = "scan"
    port_range: PortRange = f"{PORTS[0]}-{PORTS[-1]}"

    @property
    def ports(self) -> range:
        return _ports_of(self.port_range)


def _check_label(text: str) -> str:
    """What is longer, other hosts would not read."""
    if len(text) > WORD_CHARACTERS:
        raise ValueError(f"a label has at most {WORD_CHARACTERS} characters")
    return text


Label = Annotated[Text, AfterValidator(_check_label)]


def _check_fleet_urls(text: str) -> str:
    """One, or those of a cluster with commas between them."""
    return ",".join(_check_fleet_url(each.strip()) for each in text.split(","))


def _check_fleet_url(text: str) -> str:
    try:
        url = urlsplit(text)
        is_address = url.scheme in ("nats", "tls") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError(f'"{text}" is no address of a NATS server · e.g. nats://10.0.0.5:4222')
    if "@" in url.netloc:
        raise ValueError("a key or password does not belong here · bullpen fleet join FILE")
    return text


class Fleet(Block):
    """The other machines; without `url` this one is alone."""

    url: Annotated[Text, AfterValidator(_check_fleet_urls)] | None = None
    name: (
        Annotated[str, matching(HOST_NAME.pattern, "small letters, digits and -, at most 32")]
        | None
    ) = None
    creds: Text = "credentials/fleet.json"
    labels: dict[Label, Label] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_whole(self) -> "Fleet":
        if self.url is not None and self.name is None:
            refuse([(("name",), "is missing: this machine's name in the fleet")])
        return self


class Settings(Block):
    """The whole file."""

    port: Port | None = None
    worktrees: Worktrees = Worktrees()
    landing: LandingSettings = LandingSettings()
    discovery: Discovery = Discovery()
    fleet: Fleet = Fleet()
    workdirs: Texts = ()
    max_children: Count = 8
    max_agents: Annotated[int, Field(ge=0, le=10_000)] = 64
    history_limit: Annotated[int, Field(ge=1)] = 100
    ask_timeout: PositiveDuration | None = None
    detach_key: Annotated[
        str, matching(r"ctrl-[a-z@\[\]\\^_]", "ctrl- and a letter or one of @ [ \\ ] ^ _")
    ] = "ctrl-\\"
    status_row: bool = False
    bell: bool = True
    stop_grace: Duration = timedelta(seconds=10)
    log_level: Literal["debug", "info", "warn", "error"] = "info"


def check_settings(document: Document) -> tuple[Settings | None, list[FileProblem]]:
    """As `check`, but a file with nothing in it means the defaults, and what an earlier version
    offered is left out."""
    if document.data is None and not document.problems:
        return Settings(), []
    return check(Settings, replace(document, data=_without(document.data, EARLIER)))


def find_unused(document: Document) -> list[str]:
    """The keys in the file that do nothing in this version. Pure."""
    return [".".join(path) for path in EARLIER if _holds(document.data, path)]


def _holds(data: Any, path: tuple[str, ...]) -> bool:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


def _without(data: Any, paths: Iterable[tuple[str, ...]]) -> Any:
    if not isinstance(data, dict):
        return data
    gone = {path[0] for path in paths if len(path) == 1}
    inner = {key: [path[1:] for path in paths if path[0] == key and path[1:]] for key in data}
    return {
        key: _without(value, inner[key]) if inner[key] else value
        for key, value in data.items()
        if key not in gone
    }


def load_settings(config_file: Path) -> Settings:
    """The home's settings; without a file the defaults."""
    if not config_file.exists():
        return Settings()
    settings, problems = check_settings(read(config_file))
    raise_if_any("config.yaml", problems)
    assert settings is not None
    return settings
