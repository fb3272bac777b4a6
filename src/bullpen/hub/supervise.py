"""Starts and stops agents when somebody asks: which start a request means (one that is sent twice
is one start), under which name, and what has to be over before.

Called by routes, `pods` and `seats`. Wires those who do the work and touches nothing that they
own: `start` carries plans out, `watch` looks after what runs, `record` writes down what happens.
"""

import asyncio
import hashlib
import time
import uuid
from weakref import WeakValueDictionary

from bullpen.agent_files import list_agent_files
from bullpen.errors import BullpenError
from bullpen.hub import held, holders, sessions
from bullpen.hub.beside import Beside
from bullpen.hub.doors import Doors
from bullpen.hub.factory import Factory
from bullpen.hub.launch import (
    Ground,
    Plan,
    plan_headless,
    plan_launch,
    plan_restart,
    wanted_name,
)
from bullpen.hub.record import Record, draft
from bullpen.hub.registry import Live, Registry
from bullpen.hub.start import Starter
from bullpen.hub.store import Store
from bullpen.hub.tunnels import Tunnels
from bullpen.hub.watch import END_SECONDS, Watch, does_not_answer, wait_over
from bullpen.model.agent import Agent
from bullpen.model.launch import Launch
from bullpen.ssh_link import point_ssh_agent

NEVER_BEGAN = 8  # runs in a row whose hub was killed before they could start


class Supervisor:
    """Everything that agents of one hub need, wired here; made by `main`."""

    def __init__(self, ground: Ground, store: Store, registry: Registry, factory: Factory) -> None:
        self.ground = ground
        self.home = ground.home
        self.settings = ground.settings
        self.store = store
        self.registry = registry
        self.factory = factory
        self.doors = doors = Doors(ground.home)
        self.tunnels = tunnels = Tunnels(ground.home)
        self.beside = beside = Beside()
        self.record = record = Record(store, beside)
        self.watch = watch = Watch(ground, registry, record, doors, tunnels, beside)
        self.starter = Starter(ground, registry, factory, record, watch, doors, tunnels, beside)
        self._runs: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # ── starting ──

    async def launch(self, asked: Launch) -> Live:
        """Start the agent that was asked for; the one that already runs if asked twice."""
        run = asked.run or uuid.uuid4().hex
        async with self._runs.setdefault(run, asyncio.Lock()):
            return await self._launch(asked.model_copy(update={"run": run}), run)

    async def _launch(self, asked: Launch, run: str) -> Live:
        again = self._find_run(run)
        if again is not None:
            async with again.lock:
                if again.is_running or held.find_holder(*self.watch.held(again.agent)):
                    await self._prompt_again(asked, again)
                    return again
            # An earlier hub was killed before it could start it: now, as a run of its own.
            asked = asked.model_copy(update={"run": _next_run(again.agent.run)})
            return await self.launch_as(asked, again.agent.name)
        while await asyncio.to_thread(self.store.find_key, f"stopped:{run}"):
            run = _next_run(run)  # that one was taken back, and its caller not told
        asked = asked.model_copy(update={"run": run})
        wanted = wanted_name(asked)
        if asked.name is not None:
            return await self.launch_as(asked, wanted)
        name = self.registry.free_name(wanted)
        with self.registry.claim(name, run):  # others look for a free one meanwhile
            return await self.launch_as(asked, name)

    async def launch_as(self, asked: Launch, name: str) -> Live:
        """Start under exactly that name."""
        if name in self.registry.broken:
            await asyncio.to_thread(self._forget_stray, name)
        await self.starter.wait_cleared(name)
        self.starter.refuse_taken(name, asked.run or "")
        live = self.registry.find(name)
        last = live.agent if live else None
        planned = plan_headless if asked.kind == "headless" else plan_launch
        plan = await asyncio.to_thread(planned, self.ground, asked, name, last)
        point_ssh_agent(self.home, asked.env)
        return await self.starter.start(plan, last)

    async def restart(self, name: str, grace: float | None) -> Live:
        """The same agent once more; stopped first if it runs."""
        live = self.registry.get(name)
        if live.is_running:
            await self.stop(name, grace)
        settled = await asyncio.to_thread(sessions.load_settled, self.home, name)
        if live.agent.kind == "headless":
            plan = await asyncio.to_thread(_plan_again, self.ground, live.agent, settled)
        else:
            plan = await asyncio.to_thread(plan_restart, self.ground, live.agent, settled)
        return await self.starter.start(plan, live.agent)

    async def _prompt_again(self, asked: Launch, live: Live) -> None:
        """The hub was killed between the start and the prompt: nothing was typed at all."""
        if asked.prompt and live.is_running and live.link is not None:
            try:
                status = await live.link.ask(b"S")
            except (OSError, TimeoutError) as error:
                raise does_not_answer(live.agent.name) from error
            if not status.get("last_input"):
                name = live.agent.name
                plan = await asyncio.to_thread(plan_launch, self.ground, asked, name, None)
                await self.starter.type_first(live, plan.prepared.first_input)

    def _find_run(self, run: str) -> Live | None:
        """The agent of that run, or of the one that was begun in place of it."""
        runs = [run]
        while len(runs) < NEVER_BEGAN:
            runs.append(_next_run(runs[-1]))
        return next((live for live in self.registry if live.agent.run in runs), None)

    def _forget_stray(self, name: str) -> None:
        """A program without a session directory may have ended since it was noticed."""
        if not self.home.session(name).exists() and holders.is_dead(self.home.socket(name)):
            self.registry.broken.pop(name, None)

    # ── while it runs ──

    async def lead(self, live: Live, hosts: tuple[str, ...]) -> None:
        """Let an agent without network reach these and no others, from now on and after a restart
        of the hub, too."""
        if hosts != live.agent.tunnel:
            live.agent = live.agent.model_copy(update={"tunnel": hosts})
            await asyncio.to_thread(sessions.rewrite, self.home, live.agent)
        await self.tunnels.open(live.agent.name, hosts)

    # ── stopping ──

    async def stop(self, name: str, grace: float | None) -> Live:
        """End the agent's program; returns when it is over and recorded."""
        live = self.registry.get(name)
        async with live.lock:  # a start under way comes first; a stop under way does not:
            pass  # a second one may shorten the grace of the first
        if not live.is_running:
            return live
        seconds = self.settings.stop_grace.total_seconds() if grace is None else grace
        intent = draft("agent.stopping", live.agent, {"grace": seconds})
        try:
            await self.store.append(intent)
        except BullpenError:  # a full disk is a reason to stop somebody, not to go on
            self.record.surely(intent)
        if live.agent.kind == "headless":
            assert self.starter.seating is not None
            await self.starter.seating.close(name, seconds)
            await self.watch.ended(live, {"code": 0, "ended": time.time()})
            return live
        if not await self.watch.settle(live):
            raise does_not_answer(name)
        if live.link is not None:
            await self._ask_to_stop(live, live.link, seconds)
        await wait_over(live, seconds + END_SECONDS)
        return live

    async def _ask_to_stop(self, live: Live, link: holders.Link, seconds: float) -> None:
        try:
            await link.ask(b"X", {"grace": seconds})
        except TimeoutError as error:  # which is an OSError
            # Stopped itself, perhaps: then it stops the program when it goes on.
            link.close()
            live.link = None
            await self.watch.note_silence(
                live, f"it was asked to stop {holders.ANSWER_SECONDS:g} s ago"
            )
            self.watch.look_again_later(live)
            raise does_not_answer(live.agent.name) from error
        except OSError:
            return  # it ended in that moment, which the link has noticed


def _plan_again(ground: Ground, last: Agent, settled: sessions.Settled) -> Plan:
    """An agent that takes tasks once more: as its file says now, or with the role it had."""
    has_file = last.name in list_agent_files(ground.home)
    asked = Launch(
        kind="headless",
        name=last.name,
        role=None if has_file else last.role,
        overrides=last.overrides,
        cwd="/",
        env=settled.env,
        umask=settled.umask,
    )
    return plan_headless(ground, asked, last.name, last)


def _next_run(run: str) -> str:
    """The run in place of one that never began. It follows from that one: whoever asks for the
    first a third time is led to it, also by another hub."""
    return hashlib.sha256(run.encode()).hexdigest()[:32]
