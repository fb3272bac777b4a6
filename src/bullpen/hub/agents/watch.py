"""Looks after agents that run: keeps a connection to each holder, reads what their programs write
about themselves, and finds out what is true when a connection breaks.

`terminals` hands agents over, those that it starts and those that it adopts. Ends no program,
except what a killed holder left behind. Records the end of a run, once. A holder that does not
answer counts as running.
"""

import asyncio
import logging
import time
from functools import partial
from pathlib import Path
from typing import Any

from bullpen.engines import ENGINES, StateFile, get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.home.hub_file import boot_id
from bullpen.hub.agents import sessions
from bullpen.hub.agents.observe import Observer, draft, observe_now, started_draft, state_draft
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.state_files import StateFiles, is_alive
from bullpen.hub.agents.worktrees import unlock_tree
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.hub.holders import files as holder_files
from bullpen.hub.holders import link as holder_link
from bullpen.hub.sandbox import policy as sandbox_policy
from bullpen.hub.sandbox.agent_sockets import AgentSockets
from bullpen.hub.sandbox.tunnels import Tunnels
from bullpen.model.agent import Agent
from bullpen.model.state import CutBy, HolderGone, HolderRunning, HolderSilent, ProgramEnded, RunCut
from bullpen.text import seconds_text

log = logging.getLogger("bullpen.hub")

END_SECONDS = 15.0  # beyond the grace: killing and reaping what a program left
NEVER_STARTED = "the hub was killed before it could start"
# A holder that is not proved gone is asked again, a few times and then rarely.
ASK_AGAIN_SECONDS = (0.05, 0.2, 1.0, 5.0, 30.0)


class Watch:
    """One for all agents; what it knows of each is in its `LiveAgent`."""

    def __init__(
        self,
        context: HubContext,
        registry: Registry,
        observer: Observer,
        agent_sockets: AgentSockets,
        tunnels: Tunnels,
        background: Background,
        private_gits: PrivateGits,
    ) -> None:
        self.context = context
        self.private_gits = private_gits
        self.registry = registry
        self.observer = observer
        self.agent_sockets = agent_sockets
        self.tunnels = tunnels
        self.background = background
        self.state_files = StateFiles(self._take_state_file)
        self._reading: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """From now on what programs write about themselves is read: before agents are adopted, so
        that nobody is shown a state that is older than its file."""
        self._reading = self.background.begin(self.state_files.run(), "read state files")

    def leave(self) -> None:
        """The hub stops. What programs write from now on is read by the next hub."""
        if self._reading is not None:
            self._reading.cancel()

    # ── holders ──

    async def reconcile(self, live: LiveAgent, seconds: float = holder_link.ANSWER_SECONDS) -> bool:
        """Ask everything that can be asked about a run; True when it is connected or over. A
        holder has so many seconds to answer."""
        async with live.reconciling:
            if live.link is not None or not live.is_running:
                return True
            return await self._reconcile(live, seconds)

    async def _reconcile(self, live: LiveAgent, seconds: float) -> bool:
        agent = live.agent
        record = await asyncio.to_thread(holder_files.find_exit, *self.holder_ref(agent))
        if record is not None:
            await self.ended(live, record)
            return True
        try:
            greeting = await self._connect(live, seconds)
        except (OSError, TimeoutError, BullpenError) as error:
            return await self._reconcile_unreachable(live, str(error) or type(error).__name__)
        await self.started(live, greeting["pid"], greeting["child"])
        return live.link is not None or not live.is_running  # it may be gone again

    async def started(self, live: LiveAgent, holder: int, child: int) -> None:
        """Its program runs, held by that process. The event of it is recorded once per run."""
        drafts = [started_draft(live.agent, holder, child)]
        if observe_now(live, holds(live.agent, holder, child)):
            drafts.append(state_draft(live))
        await self.observer.record(*drafts)

    async def _connect(self, live: LiveAgent, seconds: float) -> holder_link.Record:
        """Connect to the agent's holder, and be told of its end. Its greeting."""
        link = await holder_link.connect(self.context.home.socket(live.agent.name), seconds)
        if link.greeting.result().get("tag") != live.agent.run:
            link.close()
            raise BullpenError(
                f"another program is held under the name {live.agent.name}", kind=Kind.CONFLICT
            )
        live.link = link

        def over(record: dict[str, Any]) -> None:
            self.background.begin(self.ended(live, record), f"end of {live.agent.name}")

        link.follow(over, lambda: self._lost(live, link))
        return link.greeting.result()

    async def _reconcile_unreachable(self, live: LiveAgent, why: str) -> bool:
        agent = live.agent
        if not await asyncio.to_thread(holder_files.is_held, self.context.home.session(agent.name)):
            # The holder writes its record before it lets go of the directory.
            record = await asyncio.to_thread(holder_files.find_exit, *self.holder_ref(agent))
            if record is not None:
                await self.ended(live, record)
                return True
            holder = await asyncio.to_thread(holder_files.find_holder, *self.holder_ref(agent))
            if holder:
                holder_files.end_orphan(holder)
            await self._gone(live, holder)
            return True
        await asyncio.to_thread(
            holder_files.ask_to_listen,
            *self.holder_ref(agent),
            self.context.home.socket(agent.name),
        )
        await self.note_silence(live, why)
        return False

    async def _gone(self, live: LiveAgent, holder: dict[str, Any] | None) -> None:
        """Its holder is proved gone, and left no record."""
        if self.is_of_earlier_boot(holder):
            await self.cut(live, "reboot")
            return
        reason = "its holder was killed" if holder else NEVER_STARTED
        observe_now(live, HolderGone(at=time.time(), reason=reason))
        await self._conclude(live, {"lost": reason})

    def is_of_earlier_boot(self, holder: dict[str, Any] | None) -> bool:
        """Whether the machine was restarted since that holder began. The record of a holder may not
        have come to the disk before the machine went down: the last hub's has."""
        boot = holder_files.boot_of(holder) if holder else self.context.last_boot
        return boot is not None and boot != boot_id()

    async def cut(self, live: LiveAgent, reason: CutBy) -> None:
        """The run is over, by nothing that its program did."""
        observe_now(live, RunCut(at=time.time(), reason=reason))
        await self._conclude(live, {"ended": reason})

    async def note_silence(self, live: LiveAgent, why: str) -> None:
        """Record that the holder lives but does not answer."""
        reason = f"its holder lives but does not answer: {why}"
        if observe_now(live, HolderSilent(at=time.time(), reason=reason)):
            await self.observer.record(state_draft(live))

    def _lost(self, live: LiveAgent, link: holder_link.Link) -> None:
        if live.link is link:
            live.link = None
            self.look_again_later(live)

    def look_again_later(self, live: LiveAgent) -> None:
        """Ask the holder again in the background, until it answers or is gone."""
        if not live.is_polling_holder:
            live.is_polling_holder = True
            self.background.begin(self._look_again(live), f"look again at {live.agent.name}")

    async def _look_again(self, live: LiveAgent) -> None:
        """The connection broke, and no end was reported: ask again until the holder answers or is
        known to be gone. One that does not answer counts as running."""
        try:
            for wait in (*ASK_AGAIN_SECONDS, *(ASK_AGAIN_SECONDS[-1:] * 10_000)):
                try:
                    if await self.reconcile(live):
                        return
                except (OSError, BullpenError) as error:  # no descriptor is free, no disk
                    extra = {"agent": live.agent.name, "reason": str(error)}
                    log.warning("cannot look after an agent yet", extra=extra)
                await asyncio.sleep(wait)
        finally:
            live.is_polling_holder = False

    def keep_reachable(self, live: LiveAgent) -> None:
        """Have the holder of a running agent listen again if its socket was deleted. The socket of
        an ended agent may be missing."""
        socket = self.context.home.socket(live.agent.name)
        if live.is_running and live.link is not None and not socket.exists():
            self.background.begin(
                asyncio.to_thread(holder_files.ask_to_listen, *self.holder_ref(live.agent), socket),
                f"socket of {live.agent.name}",
            )

    def holder_ref(self, agent: Agent) -> tuple[Path, str]:
        """Where the holder of its present run leaves its records, and their tag."""
        return self.context.home.session(agent.name), agent.run

    # ── the end ──

    async def ended(self, live: LiveAgent, record: dict[str, Any]) -> None:
        """The program of an agent has ended, as that record says."""
        live.link = None
        program_exit = holder_files.parse_exit(record)
        if program_exit.is_terminated:
            holder = await asyncio.to_thread(holder_files.find_holder, *self.holder_ref(live.agent))
            await self.cut(live, "reboot" if self.is_of_earlier_boot(holder) else "terminated")
            return
        code, signal = program_exit.code, program_exit.signal
        unasked = signal is not None and not await self.observer.is_stopping(live)
        end = ProgramEnded(at=program_exit.at, code=code, signal=signal, unasked=unasked)
        observe_now(live, end)
        await self._conclude(live, {"code": code, "signal": signal})

    async def _conclude(self, live: LiveAgent, data: dict[str, Any]) -> None:
        """The run is over: record it once, whoever finds out. Every end of a run that was started
        comes through here; a start that failed is recorded by `start`. To act on it, add a part to
        `hub/parts.py` whose `notice` sees `agent.stopped`: nothing is started from here."""
        if live.over.is_set():
            return
        self.agent_sockets.close(live.agent)
        self.tunnels.close(live.agent.name)
        try:
            await self.private_gits.finish(live)  # while its worktree is locked
            home, settings, trees = self.context.home, self.context.settings, self.context.trees
            await trees.run_to_end(partial(unlock_tree, home, settings, live.agent))
            if live.agent.is_sandboxed:
                running = [each.agent.name for each in self.registry if each.is_running]
                tidy = partial(sandbox_policy.tidy_agent, home, live.agent, running)
                self.private_gits.tell(live, await trees.run_to_end(tidy))
            holder = await asyncio.to_thread(holder_files.find_holder, *self.holder_ref(live.agent))
            # A hub that was killed may not have recorded that it began.
            began = [started_draft(live.agent, holder["pid"], holder["child"])] if holder else []
            stopped = draft("agent.stopped", live.agent, data, key="stopped")
            drafts = (*began, stopped, state_draft(live))
            try:
                await self.observer.record(*drafts)
            except BullpenError:
                self.observer.surely(*drafts)
        finally:
            live.over.set()

    # ── what programs write about themselves ──

    async def _take_state_file(self, directory: str, text: bytes) -> None:
        for live in self.registry:
            if live.is_running and live.agent.state_files == directory:
                state_file = get_engine(live.agent.engine).read_state_file(text)
                if (
                    state_file is not None
                    and await self._is_its_own(live, state_file)
                    and state_file.told
                ):
                    await self.observer.observe(live, state_file.told)

    async def _is_its_own(self, live: LiveAgent, state_file: StateFile) -> bool:
        """By its conversation. Of a program that is held as it is we do not know that yet: it is
        told by the process that we hold."""
        if not live.agent.conversation and not live.agent.role:
            holder = await asyncio.to_thread(holder_files.find_holder, *self.holder_ref(live.agent))
            if holder is not None and state_file.pid == holder["child"] and is_alive(state_file):
                await self.converse(live, state_file.conversation)
        return bool(state_file.conversation) and state_file.conversation == live.agent.conversation

    async def converse(self, live: LiveAgent, conversation: str) -> None:
        """Its program has begun another conversation: that is the one to be resumed."""
        if not conversation or conversation == live.agent.conversation:
            return
        live.agent = live.agent.model_copy(update={"conversation": conversation})
        await asyncio.to_thread(sessions.rewrite, self.context.home, live.agent)
        await self.observer.record(draft("agent.conversation", live.agent, {"id": conversation}))
        self.state_files.look(live)


def holds(agent: Agent, holder: int, child: int) -> HolderRunning:
    """The observation that its program runs, held by that process."""
    engine = ENGINES.get(agent.engine)  # of a later version's, perhaps
    missing = engine.missing if engine else f"this version does not know {agent.engine}"
    return HolderRunning(at=time.time(), holder=holder, child=child, missing=missing)


async def wait_over(live: LiveAgent, seconds: float) -> None:
    """Until the run is over and recorded."""
    try:
        async with asyncio.timeout(seconds):
            await live.over.wait()
    except TimeoutError as error:
        raise BullpenError(
            f"{live.agent.name} did not end within {seconds_text(seconds)}",
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
