"""What a hub does first: find every agent again, and finish what ended while nobody looked.

Session directories say who there is, holders' sockets and records say what is true, the
event log says what was already told. Everything here can be repeated.
"""

import asyncio
import logging
import os
import time

from pydantic import ValidationError

from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hub.agents import sessions
from bullpen.hub.agents.hooks import Hooks
from bullpen.hub.agents.intent import LaunchUndo
from bullpen.hub.agents.kinds import Kinds
from bullpen.hub.agents.observe import observe_now, state_draft
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.watch import Watch
from bullpen.hub.holders.files import find_holder
from bullpen.hub.holders.link import is_dead
from bullpen.hub.sandbox.agent_sockets import AgentSockets
from bullpen.hub.sandbox.tunnels import Tunnels
from bullpen.hub.store.events import list_last_states
from bullpen.hub.store.store import Store
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.fold import fold
from bullpen.model.state import VIEW, Interrupted, Launched, RunCut, View

log = logging.getLogger("bullpen.hub")

AT_ONCE = 64


class Adopter:
    """Fills the registry. The first part that is loaded."""

    def __init__(
        self,
        home: Home,
        store: Store,
        registry: Registry,
        watch: Watch,
        kinds: Kinds,
        hooks: Hooks,
        agent_sockets: AgentSockets,
        tunnels: Tunnels,
        undo: LaunchUndo,
    ) -> None:
        self._home = home
        self._store = store
        self._registry = registry
        self._watch = watch
        self._kinds = kinds
        self._hooks = hooks
        self._agent_sockets = agent_sockets
        self._tunnels = tunnels
        self._undo = undo

    async def load(self) -> None:
        """Fill the registry; returns when each agent has been asked for once."""
        home, registry = self._home, self._registry
        await asyncio.to_thread(sessions.delete_half_made, home)
        states = await self._store.read(list_last_states)
        for name in await asyncio.to_thread(sessions.names, home):
            try:
                agent = await asyncio.to_thread(sessions.load, home, name)
            except BullpenError as error:
                # Whatever bytes somebody named a directory with: it has to be shown.
                shown = os.fsencode(name).decode("utf-8", "backslashreplace")
                registry.mark_broken(shown, error.message)
                log.error("cannot read a session", extra={"agent": shown, "reason": error.message})
                continue
            live = LiveAgent(agent, _last_view(agent, states.get(name)))
            live.has_tools.set()  # its program asked an earlier hub for them
            live.has_tools.set()  # whether it does or not: nobody waits for that any more
            if live.view.is_over:
                live.over.set()
                await self._explain_end(live)
            registry.put(live)
        await asyncio.to_thread(self._note_strays)
        several = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for live in registry:
                if live.is_running:
                    group.create_task(self._adopt_safely(live, several))
        await self._undo.recover()

    async def _explain_end(self, live: LiveAgent) -> None:
        """An earlier hub saw that its holder was told to end, and could not know why."""
        if live.view.state == Interrupted(reason="terminated"):
            holder = await asyncio.to_thread(find_holder, *self._watch.holder_ref(live.agent))
            if self._watch.is_of_earlier_boot(holder):
                observe_now(live, RunCut(at=time.time(), reason="reboot"))
                await self._store.append(state_draft(live))

    def _note_strays(self) -> None:
        """Holders that live but whose session directory somebody removed: shown, not ended."""
        registry = self._registry
        for path in self._home.sockets.glob("agent.*.sock"):
            name = path.name.removeprefix("agent.").removesuffix(".sock")
            if registry.find(name) is None and name not in registry.broken:
                socket = self._home.socket(name)  # the same, perhaps by a shorter path
                if not is_dead(socket):
                    why = "its session directory is gone, but its program runs"
                    registry.mark_broken(name, f"{why} · bullpen attach {name}")

    async def _adopt_safely(self, live: LiveAgent, several: asyncio.Semaphore) -> None:
        """Top of a task: what is wrong with one agent must not keep the hub from the others."""
        async with several:
            try:
                await self._adopt_one(live)
            except Exception:
                log.exception("cannot adopt an agent", extra={"agent": live.agent.name})

    async def _adopt_one(self, live: LiveAgent) -> None:
        try:
            # What was said while nobody listened comes before what is true now.
            await self._hooks.take_spooled(live)
            await self._open_sockets(live.agent)  # closed again at once if it has ended
        finally:
            if await asyncio.to_thread(sessions.was_killed, self._home, live.agent):
                await self._watch.cut(live, "killed")
            else:
                await self._kinds[live.agent.kind].adopt(live)

    async def _open_sockets(self, agent: Agent) -> None:
        try:
            await self._agent_sockets.open(agent)
            await self._tunnels.open(agent.name, agent.tunnel)
        except (BullpenError, OSError) as error:
            # The agent has itself to blame, and goes on without.
            log.error(
                "cannot open an agent's sockets", extra={"agent": agent.name, "reason": str(error)}
            )


def _last_view(agent: Agent, event: Event | None) -> View:
    """The view that was recorded last for this run; for a run that nothing is known of, its
    beginning."""
    if event is not None and event.data.get("run") == agent.run:
        try:
            return VIEW.validate_python(event.data)
        except ValidationError:
            log.warning("cannot read a recorded state", extra={"agent": agent.name})
    return fold(None, Launched(at=time.time(), run=agent.run))
