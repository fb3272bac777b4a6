"""The agent's file and role that a task is run with, and how long a turn of it may take.

Called by `driver`, `run_start` and `run_watch`. Keeps what was read on the `LiveTask`.
"""

import asyncio

from bullpen.home.paths import Home
from bullpen.hub.agents.registry import Registry
from bullpen.hub.tasks import run_plan
from bullpen.hub.tasks.board import LiveTask
from bullpen.hub.tasks.run_plan import Worker
from bullpen.model.agent import Agent


class Workers:
    """Of all tasks."""

    def __init__(self, home: Home, registry: Registry) -> None:
        self._home = home
        self._registry = registry

    def agent(self, live: LiveTask) -> Agent:
        """Whose task it is."""
        return self._registry.get(live.task.agent).agent

    async def load(self, live: LiveTask) -> Worker:
        """The agent's file and role as they are now; what is wrong with them is raised."""
        live.worker = await asyncio.to_thread(run_plan.load_worker, self._home, self.agent(live))
        return live.worker

    async def get(self, live: LiveTask) -> Worker:
        """As they were when its run began; after a restart of the hub, as they are now."""
        agent = self.agent(live)
        if live.worker is None:
            live.worker = await asyncio.to_thread(run_plan.find_worker, self._home, agent)
        return live.worker or run_plan.plain_worker(agent)

    async def turn_seconds(self, live: LiveTask) -> float:
        """How long a turn of it may take."""
        if live.task.wish.timeout_seconds:
            return live.task.wish.timeout_seconds
        return (await self.get(live)).file.claude.timeout.total_seconds()
