"""What every route can reach: the parts of the running hub."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from bullpen.hub.components import Components
from bullpen.hub.feed import Feed
from bullpen.hub.pods import Pods
from bullpen.hub.registry import Registry
from bullpen.hub.store import Store
from bullpen.hub.supervise import Supervisor
from bullpen.paths import Home
from bullpen.settings import Settings


@dataclass
class Hub:
    """The running hub."""

    home: Home
    settings: Settings
    port: int
    store: Store
    feed: Feed
    registry: Registry
    supervisor: Supervisor
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    started: float = field(default_factory=time.monotonic)
    components: Components = field(init=False)
    pods: Pods = field(init=False)

    def __post_init__(self) -> None:
        self.components = Components(self.store)
        self.pods = Pods(self.supervisor)


def hub_of(connection: HTTPConnection) -> Hub:
    """The hub that serves this request."""
    found: Hub = connection.app.state.hub
    return found


HubPart = Annotated[Hub, Depends(hub_of)]
