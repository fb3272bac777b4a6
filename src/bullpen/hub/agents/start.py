"""Carries one plan out, wholly or not at all: an agent starts, or everything is as it was.

Each step is recorded before it is taken and after: the session directory and `agent.starting` come
first, then the start itself, which its kind does (`kinds`), then `agent.started`, and only then is
the caller answered. Killed anywhere in between, `adopt` finds what is true.

Called by `launch` and by pods, who decide what is started. What runs is looked after by `watch`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.hub.agents import sessions
from bullpen.hub.agents.kinds import Kinds
from bullpen.hub.agents.observe import Observer, draft, observe_now, state_draft
from bullpen.hub.agents.plan import Plan, TerminalPlan
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.watch import END_SECONDS, wait_over
from bullpen.hub.background import Background, wholly
from bullpen.hub.holders import files as holder_files
from bullpen.hub.sandbox.agent_sockets import AgentSockets
from bullpen.hub.sandbox.tunnels import Tunnels
from bullpen.model.agent import Agent
from bullpen.model.fold import fold
from bullpen.model.state import HolderGone, Launched

log = logging.getLogger("bullpen.hub")

RELEASE_SECONDS = 0.01


class Starter:
    """Carries plans out, of either kind."""

    def __init__(
        self,
        home: Home,
        registry: Registry,
        observer: Observer,
        agent_sockets: AgentSockets,
        tunnels: Tunnels,
        kinds: Kinds,
        background: Background,
        end_messages: Callable[[str], Awaitable[None]],
    ) -> None:
        self._home = home
        self._registry = registry
        self._observer = observer
        self._agent_sockets = agent_sockets
        self._tunnels = tunnels
        self._kinds = kinds
        self._background = background
        self._end_messages = end_messages

    async def start(self, plan: Plan, last: Agent | None) -> LiveAgent:
        """Carry one plan out, wholly or not at all. Every start of an agent comes through here: of
        `launch`, `restart` and pods. A limit on running agents belongs beside `refuse_taken`."""
        agent = plan.agent
        launched = Launched(at=time.time(), run=agent.run, has_prompt=_begins_a_turn(plan))
        live = LiveAgent(agent, fold(None, launched))
        await self._registry.wait_cleared(agent.name)
        if self._registry.find(agent.name) is None:
            # What came in the moment in which the last of that name was removed.
            await self._end_messages(agent.name)
        before = self._registry.find(agent.name)
        if before is not None and not before.is_running:
            # What the last run's end leads to must not happen to this one.
            await wait_over(before, END_SECONDS)
            before = self._registry.find(agent.name)
        if before is None:
            last = None  # removed since the plan was made
        # No await between the look and the claim: of two starts under one name, one gets it.
        self.refuse_taken(agent.name, agent.run)
        is_left = last is not None and last.conversation != agent.conversation
        if last is not None and is_left and not agent.takes_tasks:  # those of tasks stay resumable
            live.left_conversation = last.conversation
        self._registry.put(live)
        with self._background.unfinished_here():
            async with live.lock:
                launch_env = await asyncio.to_thread(_find_launch_env, self._home, agent.name)
                try:
                    await self._start(plan, live, last)
                except BaseException as error:
                    await asyncio.shield(self._undo(plan, live, last, before, launch_env, error))
                    raise _start_failure(agent.name, error) from error
        return live

    def refuse_taken(self, name: str, run: str) -> None:
        """Raises if that run may not have the name."""
        if name in self._registry.broken:
            raise BullpenError(self._registry.broken[name], kind=Kind.CONFLICT)
        if not self._registry.is_taken(name, run):
            return
        message, hint = f"{name} is running", f"bullpen attach {name}"
        live = self._registry.find(name)
        if live is not None:
            running = self._kinds[live.agent.kind].describe(live)
            message, hint = running.message, running.hint
        raise BullpenError(message, hint=f"{hint} · or another name", kind=Kind.CONFLICT)

    async def _start(self, plan: Plan, live: LiveAgent, last: Agent | None) -> None:
        agent = plan.agent
        if last is None:
            await wholly(asyncio.to_thread(sessions.create, self._home, agent, plan.launch_env))
        else:
            await self._wait_released(agent.name)
            await wholly(asyncio.to_thread(sessions.rewrite, self._home, agent, plan.launch_env))
        await self._observer.record(
            draft("agent.starting", agent, {"engine": agent.engine, "role": agent.role}),
            state_draft(live),
        )
        await self._kinds[agent.kind].start(plan, live)

    async def _wait_released(self, name: str) -> None:
        """The holder of the last run says goodbye to its clients before it leaves."""
        deadline = time.monotonic() + END_SECONDS
        while await asyncio.to_thread(holder_files.is_held, self._home.session(name)):
            if time.monotonic() > deadline:
                raise BullpenError(
                    f"the holder of {name}'s last run does not leave",
                    hint=f"bullpen explain {name}",
                    kind=Kind.CONFLICT,
                )
            await asyncio.sleep(RELEASE_SECONDS)

    async def _undo(
        self,
        plan: Plan,
        live: LiveAgent,
        last: Agent | None,
        before: LiveAgent | None,
        launch_env: sessions.LaunchEnv | None,
        error: BaseException,
    ) -> None:
        """A start that failed leaves what was there before, and an event that says why."""
        agent = live.agent
        self._agent_sockets.close(agent)
        self._tunnels.close(agent.name)
        await self._kinds[agent.kind].take_back(plan, live)
        reason = error.message if isinstance(error, BullpenError) else type(error).__name__
        drafts = [draft("agent.stopped", agent, {"failed": reason}, key="stopped")]
        # For those who wait for it: this run is over, whatever the name is used for next.
        observe_now(live, HolderGone(at=time.time(), reason=f"could not start: {reason}"))
        live.over.set()
        try:
            if last is None:
                # Not what lay there before: then it is why the start failed.
                run = agent.run
                await asyncio.to_thread(sessions.take_back, self._home, agent.name, run, run)
            else:
                await asyncio.to_thread(sessions.rewrite, self._home, last, launch_env)
        except OSError as failed:  # a full disk, perhaps the reason for all this
            log.error(
                "cannot restore a session", extra={"agent": agent.name, "reason": str(failed)}
            )
        if before is None:
            self._registry.drop(agent.name)
        else:
            self._registry.put(before)
            drafts.append(state_draft(before))  # the last word on it is of its last run
        self._observer.surely(*drafts)


def _begins_a_turn(plan: Plan) -> bool:
    """Whether its program begins to work by itself. A command of the program's own (/help) may be
    over without a turn."""
    prompt = plan.start.prompt if isinstance(plan, TerminalPlan) else ""
    return bool(prompt) and not prompt.startswith("/")


def _start_failure(name: str, error: BaseException) -> BaseException:
    """What the caller is told of a start that was taken back."""
    if isinstance(error, asyncio.CancelledError):
        return BullpenError(
            f"the hub was told to stop: {name} was not started",
            hint="try again",
            kind=Kind.UNAVAILABLE,
        )
    if isinstance(error, OSError):  # a full disk, most often
        reason = error.strerror or str(error) or type(error).__name__
        what = ": ".join(filter(None, (reason, error.filename)))
        return BullpenError(f"cannot start {name}: {what}", kind=Kind.UNAVAILABLE)
    return error


def _find_launch_env(home: Home, name: str) -> sessions.LaunchEnv | None:
    """Environment, umask and size of the last start, if they can be read."""
    try:
        return sessions.load_launch_env(home, name)
    except BullpenError:
        return None
