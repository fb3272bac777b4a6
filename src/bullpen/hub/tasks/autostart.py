"""Starts the task agents whose file says `autostart`, when the hub begins to serve.

Run once by `parts`. Whoever cannot start is noted in the hub's journal, and stays stopped. Whom a
person has stopped or killed stays so until somebody starts it, also after a reboot.
"""

import asyncio
import os

from bullpen.component.journal import Journal
from bullpen.errors import BullpenError
from bullpen.home.agent_files import list_agent_files, load_agent_file
from bullpen.home.paths import Home
from bullpen.hub.agents.launch import Launcher
from bullpen.hub.agents.registry import Registry
from bullpen.hub.store.events import find_last
from bullpen.hub.store.store import Store
from bullpen.model.launch import Launch
from bullpen.model.state import Interrupted

KILLED = Interrupted(reason="killed")


class Autostart:
    """The starts at the beginning of one hub."""

    def __init__(
        self,
        home: Home,
        store: Store,
        registry: Registry,
        launcher: Launcher,
        journal: Journal,
    ) -> None:
        self._home = home
        self._store = store
        self._registry = registry
        self._launcher = launcher
        self._journal = journal

    async def _is_left(self, name: str) -> bool:
        """Whether it runs, or was ended by somebody."""
        live = self._registry.find(name)
        if live is not None and (live.is_running or live.view.state == KILLED):
            return True
        # By the log, not by the session: that may have been cleared since.
        stopped = await self._store.read(find_last(name, "agent.stopping"))
        begun = await self._store.read(find_last(name, "agent.starting"))
        return stopped is not None and (begun is None or begun.id < stopped.id)

    async def run(self) -> None:
        for name in await asyncio.to_thread(list_agent_files, self._home):
            if await self._is_left(name):
                continue
            try:
                file = await asyncio.to_thread(load_agent_file, self._home, name)
                if file.autostart:
                    request = Launch(kind="headless", name=name, cwd="/", env=dict(os.environ))
                    await self._launcher.launch(request)
            except BullpenError as error:
                self._journal.note("error", "cannot start an agent", agent=name, why=error.message)
