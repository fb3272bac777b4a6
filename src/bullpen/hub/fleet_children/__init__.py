"""Children whose parents are on another machine: those of our agents elsewhere (`remote`), those of
others here (`guests`). Loaded by every hub; what needs `bullpen.fleet` runs only in a fleet. Orders
to start one, and all that is said of it, go to the other hub as letters (`hub/fleet_mail`): once,
in order, whatever dies. Commits go as bundles, by way of the server. Must not start or merge one
itself: that is `tree` and `landing`, as for a child of this machine.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bullpen.hub.fleet_children.guests import GuestChildren
from bullpen.hub.fleet_children.remote import RemoteChildren
from bullpen.hub.fleet_children.spawn import FleetSpawner
from bullpen.model.child_letter import AboutChild, Birth, Born, ChildUpdate, Merged, Orphaned
from bullpen.model.event import Event
from bullpen.model.letter import Letter

if TYPE_CHECKING:
    from bullpen.fleet.parcels import ParcelConnection


class FleetChildren:
    """Both kinds: of agents of this machine elsewhere, and of others here."""

    def __init__(self, remote: RemoteChildren, spawner: FleetSpawner, taken: GuestChildren) -> None:
        self.remote = remote
        self.spawner = spawner
        self._taken = taken

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        self._taken.notice(events)

    async def run(self, server: "ParcelConnection") -> None:
        """While that connection is kept, until it is cancelled."""
        self.spawner.server = self.remote.server = server
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.remote.fetch_all_late())
                group.create_task(self._taken.run(server))
        finally:
            self.spawner.server = self.remote.server = None

    async def take(
        self, host: str, letter: Letter, about: AboutChild, server: "ParcelConnection"
    ) -> None:
        """What that host's hub has written. NotNextError if it is not the letter's turn."""
        match about:
            case Birth():
                await self._taken.take_birth(host, letter, about)
            case Born():
                await self.remote.take_born(host, letter, about)
            case ChildUpdate():
                await self.remote.take_update(host, letter, about, server)
            case Orphaned():
                await self._taken.take_orphaned(host, letter, about)
            case Merged():
                await self._taken.take_merged(host, letter, about)
