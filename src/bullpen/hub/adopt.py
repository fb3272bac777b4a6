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
from bullpen.hub import hooks, pod_intent, sessions
from bullpen.hub.holders import is_dead
from bullpen.hub.registry import Live
from bullpen.hub.supervise import Supervisor
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.state import VIEW, Launched, View, fold

log = logging.getLogger("bullpen.hub")

AT_ONCE = 64
GREETING_SECONDS = 2.0


async def adopt(supervisor: Supervisor) -> None:
    """Fill the registry; returns when each agent has been asked for once."""
    home, registry = supervisor.home, supervisor.registry
    await asyncio.to_thread(sessions.sweep, home)
    states = await asyncio.to_thread(supervisor.store.last_states)
    for name in await asyncio.to_thread(sessions.names, home):
        try:
            agent = await asyncio.to_thread(sessions.load, home, name)
        except BullpenError as error:
            # Whatever bytes somebody named a directory with: it has to be shown.
            shown = os.fsencode(name).decode("utf-8", "backslashreplace")
            registry.broken[shown] = error.message
            log.error("cannot read a session", extra={"agent": shown, "reason": error.message})
            continue
        live = Live(agent, _last_view(agent, states.get(name)))
        if live.view.is_over:
            live.over.set()
        registry.put(live)
    await asyncio.to_thread(_note_strays, supervisor)
    several = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for live in registry:
            if live.is_running:
                group.create_task(_adopt_safely(supervisor, live, several))
    await pod_intent.recover(supervisor)


def _note_strays(supervisor: Supervisor) -> None:
    """Holders that live but whose session directory somebody removed: shown, not ended."""
    registry = supervisor.registry
    for path in supervisor.home.sockets.glob("agent.*.sock"):
        name = path.name.removeprefix("agent.").removesuffix(".sock")
        if registry.find(name) is None and name not in registry.broken:
            socket = supervisor.home.socket(name)  # the same, perhaps by a shorter path
            if not is_dead(socket):
                registry.broken[name] = (
                    f"its session directory is gone, but its program runs · bullpen attach {name}"
                )


async def _adopt_safely(supervisor: Supervisor, live: Live, several: asyncio.Semaphore) -> None:
    """Top of a task: what is wrong with one agent must not keep the hub from the others."""
    async with several:
        try:
            await _adopt_one(supervisor, live)
        except Exception:
            log.exception("cannot adopt an agent", extra={"agent": live.agent.name})
            supervisor.watch.look_again_later(live)


async def _adopt_one(supervisor: Supervisor, live: Live) -> None:
    # What was said while nobody listened comes before what is true now.
    await hooks.take_spooled(supervisor, live)
    if live.agent.kind == "headless":
        assert supervisor.starter.seating is not None
        await supervisor.starter.seating.reopen(live.agent)
        await supervisor.starter.seat(live)
        await _open_door(supervisor, live.agent)
        return
    await _open_door(supervisor, live.agent)  # closed again at once if it has ended
    supervisor.watch.state_files.follow(live)
    # A holder that is stopped holds nobody else up.
    if not await supervisor.watch.settle(live, GREETING_SECONDS):
        supervisor.watch.look_again_later(live)


async def _open_door(supervisor: Supervisor, agent: Agent) -> None:
    try:
        await supervisor.doors.open(agent)
        await supervisor.tunnels.open(agent.name, agent.tunnel)
    except (BullpenError, OSError) as error:
        # The agent has itself to blame, and goes on without.
        log.error("cannot open a door", extra={"agent": agent.name, "reason": str(error)})


def _last_view(agent: Agent, event: Event | None) -> View:
    """The view that was recorded last for this run; for a run that nothing is known of, its
    beginning."""
    if event is not None and event.data.get("run") == agent.run:
        try:
            return VIEW.validate_python(event.data)
        except ValidationError:
            log.warning("cannot read a recorded state", extra={"agent": agent.name})
    return fold(None, Launched(at=time.time(), run=agent.run))
