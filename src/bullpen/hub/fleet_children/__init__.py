"""Children whose parents are on another machine. Loaded by every hub; all of it that needs
`bullpen.fleet` runs only while this machine is in a fleet (`hub/fleet_mail`).

An order to start one goes to the other hub as a letter, and so does everything that is said of it
afterwards: once, in order, whatever dies. Commits go as bundles, by way of the server.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bullpen.hub.fleet_children.asked import AskedChildren
from bullpen.hub.fleet_children.spawn import FleetSpawner
from bullpen.hub.fleet_children.taken import TakenChildren
from bullpen.model.child_letter import AboutChild, Birth, Born, Merged, Orphaned, Told
from bullpen.model.event import Event
from bullpen.model.letter import Letter

if TYPE_CHECKING:
    from bullpen.fleet.parcels import ParcelConnection


class FleetChildren:
    """Both kinds: of agents of this machine elsewhere, and of others here."""

    def __init__(self, asked: AskedChildren, spawner: FleetSpawner, taken: TakenChildren) -> None:
        self.asked = asked
        self.spawner = spawner
        self._taken = taken

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        self._taken.notice(events)

    async def run(self, server: "ParcelConnection") -> None:
        """While that connection is kept, until it is cancelled."""
        self.spawner.server = self.asked.server = server
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.asked.fetch_all_late())
                group.create_task(self._taken.run(server))
        finally:
            self.spawner.server = self.asked.server = None

    async def take(
        self, host: str, letter: Letter, about: AboutChild, server: "ParcelConnection"
    ) -> None:
        """What that host's hub has written. NotNextError if it is not the letter's turn."""
        match about:
            case Birth():
                await self._taken.take_birth(host, letter, about)
            case Born():
                await self.asked.take_born(host, letter, about)
            case Told():
                await self.asked.take_told(host, letter, about, server)
            case Orphaned():
                await self._taken.take_orphaned(host, letter, about)
            case Merged():
                await self._taken.take_merged(host, letter, about)
