"""Starts agents when somebody asks: which start a request means (one that is sent twice is one
start), under which name, and what has to be over before.

Called by the routes, and by `tasks/autostart` for agents that start with the hub. `plan` decides
what is started, `start` carries it out. Pods have their own way to `start`.
"""

import asyncio
import hashlib
import uuid
from weakref import WeakValueDictionary

from bullpen.home.paths import Home
from bullpen.home.ssh_link import point_ssh_agent
from bullpen.hub.agents import sessions
from bullpen.hub.agents.kinds import Kinds
from bullpen.hub.agents.observe import draft
from bullpen.hub.agents.plan import Plan, wanted_name
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.start import Starter
from bullpen.hub.agents.stop import Stopper
from bullpen.hub.agents.watch import Watch
from bullpen.hub.holders import files as holder_files
from bullpen.hub.holders import link as holder_link
from bullpen.hub.store.events import find_by_key
from bullpen.hub.store.store import Store
from bullpen.model.launch import Launch
from bullpen.model.state import View

NEVER_BEGAN = 8  # runs in a row whose hub was killed before they could start


class Launcher:
    """The starts that somebody asked for."""

    def __init__(
        self,
        home: Home,
        store: Store,
        registry: Registry,
        watch: Watch,
        starter: Starter,
        stopper: Stopper,
        kinds: Kinds,
    ) -> None:
        self._home = home
        self._store = store
        self._registry = registry
        self._watch = watch
        self._starter = starter
        self._stopper = stopper
        self._kinds = kinds
        self._runs: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def launch(self, request: Launch) -> LiveAgent:
        """Start the agent that was asked for; the one that already runs if asked twice."""
        run = request.run or uuid.uuid4().hex
        async with self._runs.setdefault(run, asyncio.Lock()):
            return await self._launch(request.model_copy(update={"run": run}), run)

    async def _launch(self, request: Launch, run: str) -> LiveAgent:
        again = self._find_run(run)
        if again is not None:
            async with again.lock:
                if again.is_running or holder_files.find_holder(
                    *self._watch.holder_ref(again.agent)
                ):
                    await self._kinds[again.agent.kind].asked_again(request, again)
                    return again
            # An earlier hub was killed before it could start it: now, as a run of its own.
            request = request.model_copy(update={"run": _next_run(again.agent.run)})
            return await self.launch_as(request, again.agent.name)
        while await self._store.read(find_by_key(f"stopped:{run}")):
            run = _next_run(run)  # that one was taken back, and its caller not told
        request = request.model_copy(update={"run": run})
        wanted = wanted_name(request)
        if request.name is not None:
            return await self.launch_as(request, wanted)
        name = self._registry.free_name(wanted)
        with self._registry.claim(name, run):  # others look for a free one meanwhile
            return await self.launch_as(request, name)

    async def launch_as(self, request: Launch, name: str) -> LiveAgent:
        """Start under exactly that name."""
        if name in self._registry.broken:
            await asyncio.to_thread(self._forget_stray, name)
        # `Starter.start` does both again, and decides: others may start it meanwhile. Here it
        # spares a plan, and the plan does not read a session that is being removed.
        await self._registry.wait_cleared(name)
        self._starter.refuse_taken(name, request.run or "")
        live = self._registry.find(name)
        last = live.agent if live else None
        plan = await asyncio.to_thread(self._kinds[request.kind].plan, request, name, last)
        point_ssh_agent(self._home, request.env)
        return await self._starter.start(plan, last)

    async def restart(self, name: str, grace: float | None) -> LiveAgent:
        """The same agent once more; stopped first if it runs, and if it could start again."""
        live = self._registry.get(name)
        if live.is_running:
            await self._plan_again(live)
            live.is_returning = True
            await self._stopper.stop(name, grace)
        try:
            return await self._start_again(live)
        finally:
            live.is_returning = False

    async def resume(self, name: str) -> LiveAgent:
        """The same agent once more, with its conversation. One that runs is refused."""
        live = self._registry.get(name)
        self._starter.refuse_taken(name, "")
        return await self._start_again(live)

    async def _start_again(self, live: LiveAgent) -> LiveAgent:
        """Goes on with its conversation; one whose transcript is gone is told."""
        started = await self._starter.start(await self._plan_again(live), live.agent)
        if not _was_used(live.view):
            started.left_conversation = ""
        if lost := started.left_conversation:
            data = {"conversation": lost}
            await self._store.append(draft("agent.conversation_lost", started.agent, data))
        return started

    async def _plan_again(self, live: LiveAgent) -> Plan:
        """Raises if its role, its environment or its engine does not allow a start now."""
        agent = live.agent
        launch_env = await asyncio.to_thread(sessions.load_launch_env, self._home, agent.name)
        return await asyncio.to_thread(self._kinds[agent.kind].plan_again, agent, launch_env)

    def _find_run(self, run: str) -> LiveAgent | None:
        """The agent of that run, or of the one that was begun in place of it."""
        runs = [run]
        while len(runs) < NEVER_BEGAN:
            runs.append(_next_run(runs[-1]))
        return next((live for live in self._registry if live.agent.run in runs), None)

    def _forget_stray(self, name: str) -> None:
        """A program without a session directory may have ended since it was noticed."""
        home = self._home
        if not home.session(name).exists() and holder_link.is_dead(home.socket(name)):
            self._registry.forget_broken(name)


def _next_run(run: str) -> str:
    """The run in place of one that never began. It follows from that one: whoever asks for the
    first a third time is led to it, also by another hub."""
    return hashlib.sha256(run.encode()).hexdigest()[:32]


def _was_used(view: View) -> bool:
    """Whether anything can have been said in its conversation: its program told of more than of a
    new start and an end."""
    hooks = [piece for piece in view.evidence if piece.source.startswith("hook ")]
    pieces = {(piece.source, piece.says) for piece in hooks if piece.source != "hook SessionEnd"}
    return pieces != {("hook SessionStart", "startup")}
