"""Looks after agents that run: keeps a connection to each holder, reads what their programs write
about themselves, and finds out what is true when a connection breaks.

`start` and `adopt` hand agents over. Ends nobody, except what a killed holder left behind; what
ends a run is said once, here. No answer is not death.
"""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

from bullpen.engines import ENGINES, StateFile, get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.hub import held, holders, sessions, walls
from bullpen.hub.beside import Beside
from bullpen.hub.doors import Doors
from bullpen.hub.launch import Ground
from bullpen.hub.record import Record, draft, observe_now, started, state_draft
from bullpen.hub.registry import Live, Registry
from bullpen.hub.state_files import StateFiles, is_alive
from bullpen.hub.trees import unlock_tree
from bullpen.hub.tunnels import Tunnels
from bullpen.model.agent import Agent
from bullpen.model.state import Gone, Held, Ran, Silent

log = logging.getLogger("bullpen.hub")

END_SECONDS = 15.0  # beyond the grace: killing and reaping what a program left
NEVER_STARTED = "the hub was killed before it could start"
# A holder that is not proved gone is asked again, a few times and then rarely.
ASK_AGAIN_SECONDS = (0.05, 0.2, 1.0, 5.0, 30.0)


class Watch:
    """One for all agents; what it knows of each is in its `Live`."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        record: Record,
        doors: Doors,
        tunnels: Tunnels,
        beside: Beside,
    ) -> None:
        self.ground = ground
        self.registry = registry
        self.record = record
        self.doors = doors
        self.tunnels = tunnels
        self.beside = beside
        self.state_files = StateFiles(self._take_state_file)

    # ── holders ──

    async def settle(self, live: Live, seconds: float = holders.ANSWER_SECONDS) -> bool:
        """Ask everything that can be asked about a run; True when it is connected or over. A
        holder has so many seconds to answer."""
        async with live.settling:
            if live.link is not None or not live.is_running or live.agent.kind == "headless":
                return True
            return await self._settle(live, seconds)

    async def _settle(self, live: Live, seconds: float) -> bool:
        agent = live.agent
        record = await asyncio.to_thread(held.find_exit, *self.held(agent))
        if record is not None:
            await self.ended(live, record)
            return True
        try:
            greeting = await self._connect(live, seconds)
        except (OSError, TimeoutError, BullpenError) as error:
            return await self._settle_unreachable(live, str(error) or type(error).__name__)
        drafts = [started(agent, greeting["pid"], greeting["child"])]
        if observe_now(live, holds(agent, greeting["pid"], greeting["child"])):
            drafts.append(state_draft(live))
        await self.record.store.append(*drafts)
        return live.link is not None or not live.is_running  # it may be gone again

    async def _connect(self, live: Live, seconds: float) -> holders.Record:
        """Connect to the agent's holder, and be told of its end. Its greeting."""
        link = await holders.connect(self.ground.home.socket(live.agent.name), seconds)
        if link.greeting.result().get("tag") != live.agent.run:
            link.close()
            raise BullpenError(
                f"another program is held under the name {live.agent.name}", kind=Kind.CONFLICT
            )
        live.link = link

        def over(record: dict[str, Any]) -> None:
            self.beside.begin(self.ended(live, record))

        link.follow(over, lambda: self._lost(live, link))
        return link.greeting.result()

    async def _settle_unreachable(self, live: Live, why: str) -> bool:
        agent = live.agent
        if not await asyncio.to_thread(held.is_held, self.ground.home.session(agent.name)):
            # The holder writes its record before it lets go of the directory.
            record = await asyncio.to_thread(held.find_exit, *self.held(agent))
            if record is not None:
                await self.ended(live, record)
                return True
            found = await asyncio.to_thread(held.find_holder, *self.held(agent))
            if found:
                held.end_orphan(found)
            reason = "its holder was killed" if found else NEVER_STARTED
            observe_now(live, Gone(at=time.time(), reason=reason))
            await self._conclude(live, {"lost": reason})
            return True
        await asyncio.to_thread(
            held.ask_to_listen, *self.held(agent), self.ground.home.socket(agent.name)
        )
        await self.note_silence(live, why)
        return False

    async def note_silence(self, live: Live, why: str) -> None:
        """It lives, and nothing more is known of it."""
        reason = f"its holder lives but does not answer: {why}"
        if observe_now(live, Silent(at=time.time(), reason=reason)):
            await self.record.store.append(state_draft(live))

    def _lost(self, live: Live, link: holders.Link) -> None:
        if live.link is link:
            live.link = None
            self.look_again_later(live)

    def look_again_later(self, live: Live) -> None:
        """Ask on, beside everything else."""
        if not live.is_asked:
            live.is_asked = True
            self.beside.begin(self._look_again(live))

    async def _look_again(self, live: Live) -> None:
        """The connection broke without an end: find out what is true. No answer is not death."""
        try:
            for wait in (*ASK_AGAIN_SECONDS, *(ASK_AGAIN_SECONDS[-1:] * 10_000)):
                try:
                    if await self.settle(live):
                        return
                except (OSError, BullpenError) as error:  # no descriptor is free, no disk
                    extra = {"agent": live.agent.name, "reason": str(error)}
                    log.warning("cannot look after an agent yet", extra=extra)
                await asyncio.sleep(wait)
        finally:
            live.is_asked = False

    def keep_reachable(self, live: Live) -> None:
        """Its socket may have been deleted; that of one that has ended may."""
        socket = self.ground.home.socket(live.agent.name)
        if live.is_running and live.link is not None and not socket.exists():
            self.beside.begin(asyncio.to_thread(held.ask_to_listen, *self.held(live.agent), socket))

    def held(self, agent: Agent) -> tuple[Path, str]:
        """Where the holder of its present run leaves its records, and their tag."""
        return self.ground.home.session(agent.name), agent.run

    # ── the end ──

    async def ended(self, live: Live, record: dict[str, Any]) -> None:
        """Its program is over, as that record says."""
        live.link = None
        ended = held.parse_exit(record)
        observe_now(live, Ran(at=ended.at, code=ended.code, signal=ended.signal))
        await self._conclude(live, {"code": ended.code, "signal": ended.signal})

    async def _conclude(self, live: Live, data: dict[str, Any]) -> None:
        """The run is over: said once, whoever finds out."""
        if live.over.is_set():
            return
        self.doors.close(live.agent)
        self.tunnels.close(live.agent.name)
        try:
            await asyncio.to_thread(unlock_tree, self.ground.home, self.ground.settings, live.agent)
            if live.agent.is_sandboxed:
                running = [each.agent.name for each in self.registry if each.is_running]
                await asyncio.to_thread(walls.tidy_agent, self.ground.home, live.agent, running)
            found = await asyncio.to_thread(held.find_holder, *self.held(live.agent))
            # A hub that was killed may not have come to say that it began.
            began = [started(live.agent, found["pid"], found["child"])] if found else []
            stopped = draft("agent.stopped", live.agent, data, key="stopped")
            drafts = (*began, stopped, state_draft(live))
            try:
                await self.record.store.append(*drafts)
            except BullpenError:
                self.record.surely(*drafts)
        finally:
            live.over.set()

    # ── what programs write about themselves ──

    async def _take_state_file(self, directory: str, text: bytes) -> None:
        for live in self.registry:
            if live.is_running and live.agent.state_files == directory:
                found = get_engine(live.agent.engine).read_state_file(text)
                if found is not None and await self._is_its_own(live, found) and found.told:
                    await self.record.observe(live, found.told)

    async def _is_its_own(self, live: Live, found: StateFile) -> bool:
        """By its conversation. Of a program that is held as it is we do not know that yet: it is
        told by the process that we hold."""
        if not live.agent.engine_session and not live.agent.role:
            holder = await asyncio.to_thread(held.find_holder, *self.held(live.agent))
            if holder is not None and found.pid == holder["child"] and is_alive(found):
                await self.converse(live, found.conversation)
        return bool(found.conversation) and found.conversation == live.agent.engine_session

    async def converse(self, live: Live, conversation: str) -> None:
        """Its program has begun another conversation: that is the one to be resumed."""
        if not conversation or conversation == live.agent.engine_session:
            return
        live.agent = live.agent.model_copy(update={"engine_session": conversation})
        await asyncio.to_thread(sessions.rewrite, self.ground.home, live.agent)
        await self.record.store.append(
            draft("agent.conversation", live.agent, {"id": conversation})
        )
        self.state_files.look(live)


def holds(agent: Agent, holder: int, child: int) -> Held:
    """The observation that its program runs, held by that process."""
    engine = ENGINES.get(agent.engine)  # of a later version's, perhaps
    missing = engine.missing if engine else f"this version does not know {agent.engine}"
    return Held(at=time.time(), holder=holder, child=child, missing=missing)


async def wait_over(live: Live, seconds: float) -> None:
    """Until the run is over and recorded."""
    try:
        async with asyncio.timeout(seconds):
            await live.over.wait()
    except TimeoutError as error:
        raise BullpenError(
            f"{live.agent.name} did not end within {seconds:g} s",
            hint=f"bullpen kill {live.agent.name}",
            kind=Kind.UNAVAILABLE,
        ) from error


def does_not_answer(name: str) -> BullpenError:
    """Whether its program runs cannot be said."""
    return BullpenError(
        f"the holder of {name} does not answer",
        hint=f"bullpen explain {name}",
        kind=Kind.UNAVAILABLE,
    )
