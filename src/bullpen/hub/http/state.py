"""What every route can reach: the parts of the running hub."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from bullpen.hub.budgets import Budgets
from bullpen.hub.components import Components
from bullpen.hub.deliver import Delivery
from bullpen.hub.feed import Feed
from bullpen.hub.heartbeat import Heartbeats
from bullpen.hub.messages import Messages
from bullpen.hub.parking import Parking
from bullpen.hub.permissions import Permissions
from bullpen.hub.pods import Pods
from bullpen.hub.registry import Registry
from bullpen.hub.seats import Seats
from bullpen.hub.store import Store
from bullpen.hub.supervise import Supervisor
from bullpen.hub.tasks import Tasks
from bullpen.hub.usage import Usage
from bullpen.model.event import Event
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
    permissions: Permissions = field(init=False)
    usage: Usage = field(init=False)
    budgets: Budgets = field(init=False)
    parking: Parking = field(init=False)
    messages: Messages = field(init=False)
    delivery: Delivery = field(init=False)
    heartbeats: Heartbeats = field(init=False)
    tasks: Tasks = field(init=False)
    seats: Seats = field(init=False)

    def __post_init__(self) -> None:
        self.components = Components(self.store)
        self.pods = Pods(self.supervisor)
        self.permissions = Permissions(self.supervisor)
        self.messages = Messages(self.store)
        self.delivery = Delivery(self.supervisor, self.messages)
        self.heartbeats = Heartbeats(self.supervisor, self.delivery)
        self.usage = Usage(self.store, self.registry)
        self.budgets = Budgets(self.supervisor, self.usage, self.delivery)
        self.parking = Parking(self.supervisor, self.delivery)
        self.tasks = Tasks(self.supervisor, self.messages, self.budgets)
        self.seats = Seats(self.supervisor, self.tasks)

    async def load(self) -> None:
        """What earlier hubs knew; after the agents were found again."""
        await self.components.load()
        await self.permissions.approvals.load()
        await self.usage.load()
        await self.messages.load()
        await self.parking.load()
        self.delivery.load()
        self.heartbeats.load()
        await self.tasks.load()

    def leave(self) -> None:
        """The hub stops: streams would otherwise be waited for."""
        self.feed.close()
        self.permissions.left.set()
        self.delivery.close()
        self.tasks.close()
        self.supervisor.doors.leave()
        self.supervisor.tunnels.leave()
        self.seats.ports.leave()

    def notice(self, events: list[Event]) -> None:
        """Told of every committed event, in their order, on the loop."""
        self.permissions.approvals.notice(events)
        self.usage.notice(events)
        self.parking.notice(events)
        self.delivery.notice(events)
        self.heartbeats.notice(events)


def hub_of(connection: HTTPConnection) -> Hub:
    """The hub that serves this request."""
    found: Hub = connection.app.state.hub
    return found


HubPart = Annotated[Hub, Depends(hub_of)]
