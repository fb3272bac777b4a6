"""`web/config.yaml`: where the view is served, and by which certificate. Also its directory.

Read by `web/view`, `bullpen web` and `bullpen validate`. The first start writes the file with every
key as a comment (`STARTER`; a test compares the two).
"""

import re
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from bullpen.component.config import ComponentConfig, load_config
from bullpen.errors import BullpenError
from bullpen.files import create_once
from bullpen.home.check import check
from bullpen.home.paths import Home
from bullpen.home.settings import Discovery
from bullpen.home.yamlfile import Document, FileProblem
from bullpen.model import names
from bullpen.model.fields import Block, PositiveDuration, Text

HOST_NAME = re.compile(
    r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?(\.[a-z0-9-]{1,63})*", re.I
)

STARTER = """\
# The web view (bullpen web start). Changes count after a restart; bullpen validate --all checks.
# name: web             # in lists of components
# bind: 0.0.0.0         # 127.0.0.1: for this machine alone
# port: 8443
# hosts: []             # further names that people reach it by, e.g. [shop.example.org]
# tls:
#   auto_generate: true # a certificate of this home's own, signed by web/ca.pem
#   cert: /etc/ssl/shop.pem      # or your own, with auto_generate: false
#   key: /etc/ssl/shop-key.pem
# discovery:            # which other components of this machine are shown
#   method: scan        # or mdns
#   port_range: 9000-9199
#   refresh_interval: 30s
# log_level: info
# autostart: false      # true: bullpen up starts it
"""


def _check_bind(text: str) -> str:
    try:
        ip_address(text)
    except ValueError as error:
        raise ValueError(f'"{text}" is no address · e.g. 0.0.0.0, 127.0.0.1, ::') from error
    return text


def _check_host(text: str) -> str:
    if HOST_NAME.fullmatch(text) is None:
        raise ValueError(f'"{text}" is no host name · e.g. shop.example.org, without a port')
    return text.lower()


def _check_component_name(text: str) -> str:
    try:
        return names.check_worktree_name(text)
    except BullpenError as error:
        raise ValueError(error.message) from error


class Tls(Block):
    """Whose certificate it shows."""

    cert: Text | None = None
    key: Text | None = None
    auto_generate: bool = True

    @model_validator(mode="after")
    def _is_whole(self) -> "Tls":
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together")
        if self.cert is None and not self.auto_generate:
            raise ValueError("without auto_generate it needs cert and key")
        return self


class WebDiscovery(Discovery):
    """Which components are looked for, and how often."""

    refresh_interval: PositiveDuration = timedelta(seconds=30)


class WebConfig(ComponentConfig):
    """The whole file. `port` is that of the page; its `/status` for this machine has another."""

    port: Annotated[int, Field(ge=1, le=65535)] = 8443
    name: Annotated[str, AfterValidator(_check_component_name)] = "web"
    bind: Annotated[str, AfterValidator(_check_bind)] = "0.0.0.0"
    hosts: tuple[Annotated[str, AfterValidator(_check_host)], ...] = Field(default=(), strict=False)
    tls: Tls = Tls()
    autostart: bool = False
    discovery: WebDiscovery = WebDiscovery()


def web_directory(home: Home) -> Path:
    """Config, certificates, what `web open` shows to a browser, and nothing else."""
    return home.root / "web"


def config_file(home: Home) -> Path:
    """What a person writes."""
    return web_directory(home) / "config.yaml"


def load_web_config(home: Home) -> WebConfig:
    """The view's config; its file is written if there is none."""
    path = config_file(home)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    create_once(path, STARTER.encode())
    return load_config(WebConfig, path)[0]


def check_web_document(document: Document) -> tuple[WebConfig | None, list[FileProblem]]:
    """As `check`; a file with nothing in it means the defaults."""
    if document.data is None and not document.problems:
        return WebConfig(), []
    return check(WebConfig, document)


def own_files(config: WebConfig, home: Home) -> tuple[Path, Path] | None:
    """The person's own certificate and key; relative paths are below `web/`."""
    if config.tls.cert is None or config.tls.key is None:
        return None
    base = web_directory(home)
    return base / config.tls.cert, base / config.tls.key


def shown_address(config: WebConfig, host: str) -> str:
    """Where people find the page."""
    shown = f"[{host}]" if ":" in host else host
    return f"https://{shown}" + ("" if config.port == 443 else f":{config.port}")
