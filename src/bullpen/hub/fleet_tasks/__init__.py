"""Tasks that wait for agents of all machines: those that were asked for here (`outgoing`), and
those that agents of this machine have taken (`incoming`). Run by `hub/fleet` while this machine is
in a fleet; all else is loaded then only. One end of each is recorded, by a compare-and-set at the
server (`fleet/task_server`); all else may happen twice. Must not run a task: `local` gives it to
the queue in `tasks`, as any caller does.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import Registry
from bullpen.hub.context import HubContext
from bullpen.hub.store.store import Store
from bullpen.hub.tasks.agents import TaskAgents
from bullpen.hub.tasks.queue import TaskQueue

if TYPE_CHECKING:
    from bullpen.fleet.link import Link
    from bullpen.fleet.task_server import TaskServer
    from bullpen.hub.fleet_tasks.incoming import IncomingTasks

log = logging.getLogger("bullpen.hub")

AGAIN_SECONDS = 2.0


class FleetTasks:
    """Both, of one hub."""

    def __init__(
        self,
        context: HubContext,
        store: Store,
        registry: Registry,
        tasks: TaskQueue,
        task_agents: TaskAgents,
        private_gits: PrivateGits,
    ) -> None:
        self._context = context
        self._store = store
        self._registry = registry
        self._tasks = tasks
        self._task_agents = task_agents
        self._private_gits = private_gits
        self._taken: IncomingTasks | None = None
        self._server: TaskServer | None = None

    @property
    def trouble(self) -> str:
        """Why tasks do not get to the server, as far as one knows."""
        return self._server.trouble if self._server is not None else ""

    def notice(self) -> None:
        """Something has happened: an agent may be free."""
        if self._taken is not None:
            self._taken.changed.set()

    async def run(self, link: "Link") -> None:
        """Once that connection is there, until it is cancelled."""
        await link.joined.wait()
        while True:
            try:
                await self._run(link)
            except Exception:
                log.exception("tasks of the fleet failed")
            await asyncio.sleep(AGAIN_SECONDS)

    async def _run(self, link: "Link") -> None:
        from bullpen.fleet.link import first_to_end
        from bullpen.fleet.task_records import Signed
        from bullpen.fleet.task_server import TaskServer
        from bullpen.hub.fleet_tasks.incoming import IncomingTasks
        from bullpen.hub.fleet_tasks.leases import LeaseRows
        from bullpen.hub.fleet_tasks.local import LocalTasks
        from bullpen.hub.fleet_tasks.outgoing import OutgoingTasks

        context = self._context
        server, signed = TaskServer(link.url, link.credential), Signed(link.credential)
        self._server = server
        rows = LeaseRows(self._store)
        local = LocalTasks(
            context,
            self._registry,
            self._tasks,
            self._task_agents,
            self._private_gits,
            rows,
            server,
        )
        outgoing = OutgoingTasks(self._tasks, context.person, server, signed)
        self._taken = IncomingTasks(rows, local, context.settings.fleet.labels, server, signed)
        try:
            await first_to_end(server.run(), outgoing.run(), self._taken.run())
        finally:
            self._taken = None
