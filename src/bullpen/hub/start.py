"""Carries one plan out, wholly or not at all: an agent starts, or everything is as it was.

Each step is recorded before it is taken and after: the session directory and
`agent.starting` come before the worktree and the holder, `agent.started` after, and only
then is the caller answered. Killed anywhere in between, `adopt` finds what is true.

Called by `supervise` and `pods`, who decide what is started; looking after it is `watch`'s.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bullpen.errors import BullpenError, Kind
from bullpen.hub import held, holders, sessions, walls
from bullpen.hub.beside import Beside
from bullpen.hub.doors import Doors
from bullpen.hub.factory import Factory
from bullpen.hub.launch import Ground, Plan
from bullpen.hub.record import Record, draft, observe_now, started, state_draft
from bullpen.hub.registry import Live, Registry
from bullpen.hub.state_files import find_process
from bullpen.hub.trees import Tree, ensure_tree, take_back_tree
from bullpen.hub.tunnels import Tunnels
from bullpen.hub.watch import END_SECONDS, Watch, does_not_answer, holds, wait_over
from bullpen.model.agent import Agent
from bullpen.model.state import Gone, Idle, Launched, Told, fold
from bullpen.paths import Home

log = logging.getLogger("bullpen.hub")

T = TypeVar("T")

RELEASE_SECONDS = 0.01


class Seating(Protocol):
    """What happens when an agent that takes tasks starts and stops."""

    async def open(self, agent: Agent) -> None:
        """Before it is said to have started; raises if it cannot."""
        ...

    async def reopen(self, agent: Agent) -> None:
        """One that an earlier hub started."""
        ...

    async def close(self, name: str, grace: float) -> None:
        """Its task is cancelled, and over when this returns."""
        ...

    def take_back(self, name: str) -> None:
        """Its start has failed."""
        ...

    def is_waited_for(self, name: str) -> bool:
        """Whether a task waits that only this agent can do."""
        ...

    def is_leaving(self, name: str) -> bool:
        """Whether it was told to leave, and is still there."""
        ...


@dataclass
class Starter:
    """What a start needs."""

    ground: Ground
    registry: Registry
    factory: Factory
    record: Record
    watch: Watch
    doors: Doors
    tunnels: Tunnels
    beside: Beside
    seating: Seating | None = None  # set by who knows of tasks

    async def start(self, plan: Plan, last: Agent | None) -> Live:
        """Carry one plan out, wholly or not at all."""
        agent = plan.agent
        live = Live(agent, fold(None, Launched(at=time.time(), run=agent.run)))
        await self.wait_cleared(agent.name)
        found = self.registry.find(agent.name)
        if found is not None and not found.is_running:
            # What the last run's end leads to must not happen to this one.
            await wait_over(found, END_SECONDS)
            found = self.registry.find(agent.name)
        if found is None:
            last = None  # removed since the plan was made
        # No await between the look and the claim: of two starts under one name, one gets it.
        self.refuse_taken(agent.name, agent.run)
        self.registry.put(live)
        with self.beside.unfinished_here():
            async with live.lock:
                before = await asyncio.to_thread(_find_settled, self.ground.home, agent.name)
                try:
                    await self._start(plan, live, last)
                except BaseException as error:
                    await asyncio.shield(self._undo(plan, live, last, found, before, error))
                    raise _start_failure(agent.name, error) from error
        return live

    async def wait_cleared(self, name: str) -> None:
        """A clean-up may just be at what the last run of that name left."""
        while (live := self.registry.find(name)) and not live.is_running and live.lock.locked():
            async with live.lock:
                pass

    def refuse_taken(self, name: str, run: str) -> None:
        """Raises if that run may not have the name."""
        if name in self.registry.broken:
            raise BullpenError(self.registry.broken[name], kind=Kind.CONFLICT)
        if self.registry.is_taken(name, run):
            live = self.registry.find(name)
            takes_tasks = live is not None and live.agent.kind == "headless"
            what, hint = f"{name} is running", f"bullpen attach {name}"
            if takes_tasks:
                hint = f'bullpen task {name} "…"'
            if self.seating is not None and self.seating.is_leaving(name):
                what = f"{name} leaves, and has not left yet"
                hint = f"wait for its task, or end it: bullpen agent stop {name} --force"
            raise BullpenError(what, hint=f"{hint} · or another name", kind=Kind.CONFLICT)

    # ── the steps ──

    async def _start(self, plan: Plan, live: Live, last: Agent | None) -> None:
        agent = plan.agent
        if last is None:
            await _wholly(asyncio.to_thread(sessions.create, self.ground.home, agent, plan.settled))
        else:
            await self._wait_released(agent.name)
            await _wholly(
                asyncio.to_thread(sessions.rewrite, self.ground.home, agent, plan.settled)
            )
        await self.record.store.append(
            draft("agent.starting", agent, {"engine": agent.engine, "role": agent.role}),
            state_draft(live),
        )
        if agent.kind == "headless":
            assert self.seating is not None
            await self.seating.open(agent)
            await self.seat(live)
            return
        if plan.tree is not None:
            await self._make_tree(plan.tree, agent)
        await _wholly(asyncio.to_thread(_make_ready, self.ground.home, plan))
        self.watch.state_files.follow(live)
        await self.doors.open(agent)  # a sandbox mounts its directory
        await self.tunnels.open(agent.name, agent.tunnel)
        request = await _wholly(asyncio.to_thread(self._request, plan))
        answer = await _wholly(self.factory.hold(request))
        observe_now(live, holds(agent, answer["pid"], answer["child"]))
        await self.record.store.append(
            started(agent, answer["pid"], answer["child"]), state_draft(live)
        )
        if not await self.watch.settle(live):  # it may have ended already
            self.watch.look_again_later(live)
        await self.type_first(live, plan.prepared.first_input)

    async def _wait_released(self, name: str) -> None:
        """The holder of the last run says goodbye to its clients before it leaves."""
        deadline = time.monotonic() + END_SECONDS
        while await asyncio.to_thread(held.is_held, self.ground.home.session(name)):
            if time.monotonic() > deadline:
                raise BullpenError(
                    f"the holder of {name}'s last run does not leave",
                    hint=f"bullpen explain {name}",
                    kind=Kind.CONFLICT,
                )
            await asyncio.sleep(RELEASE_SECONDS)

    async def _make_tree(self, tree: Tree, agent: Agent) -> None:
        assert agent.worktree is not None
        if await _wholly(asyncio.to_thread(ensure_tree, tree, agent)):
            data = {"path": agent.worktree.path, "branch": agent.birth_branch}
            await self.record.store.append(draft("worktree.created", agent, data))
        if not Path(agent.cwd).is_dir():
            raise BullpenError(
                f"{agent.cwd} is not in the worktree: the directory has no committed files",
                hint="commit it, or start from the repository's root",
                kind=Kind.NOT_FOUND,
            )

    def _request(self, plan: Plan) -> dict[str, Any]:
        """What the factory is asked for. Walls are built at the last moment: the directory is
        there by then."""
        agent, settled = plan.agent, plan.settled
        argv, env = agent.command, settled.whole
        if agent.is_sandboxed:
            wrapped = walls.raise_wall(walls.of_plan(self.ground, plan), argv, env)
            argv, env = wrapped.argv, dict(wrapped.env)
        return {
            "name": agent.name,
            "tag": agent.run,
            "socket": str(self.ground.home.socket(agent.name)),
            "session": str(self.ground.home.session(agent.name)),
            "argv": list(argv),
            "env": env,
            "cwd": agent.cwd,
            "mode": "pty" if agent.kind == "interactive" else "pipe",
            "rows": settled.rows,
            "cols": settled.cols,
            "umask": settled.umask,
        }

    async def type_first(self, live: Live, text: bytes) -> None:
        """What it is given to do before anybody else talks to it."""
        if not text or not live.is_running:
            return
        try:
            await holders.type_into(self.ground.home.socket(live.agent.name), text)
        except (OSError, TimeoutError) as error:
            if not await self.watch.settle(live) or live.is_running:
                raise does_not_answer(live.agent.name) from error

    async def seat(self, live: Live) -> None:
        """It runs nothing until it gets a task. May be repeated."""
        await self.doors.open(live.agent)
        waits = Told(at=time.time(), source="hub", says="waits for tasks", state=Idle())
        observe_now(live, waits)
        began = draft("agent.started", live.agent, {"cwd": live.agent.cwd})
        await self.record.store.append(began, state_draft(live))

    # ── taking back ──

    async def _undo(
        self,
        plan: Plan,
        live: Live,
        last: Agent | None,
        before: Live | None,
        settled: sessions.Settled | None,
        error: BaseException,
    ) -> None:
        """A start that failed leaves what was there before, and an event that says why."""
        agent = live.agent
        self.doors.close(agent)
        self.tunnels.close(agent.name)
        if self.seating is not None:
            self.seating.take_back(agent.name)
        if live.link is not None:
            live.link.close()
        found = await asyncio.to_thread(held.find_holder, *self.watch.held(agent))
        if found:
            await self._end_held(agent)  # the program runs, but the rest failed
        if plan.tree is not None:
            site, new = plan.tree.site, plan.tree.new_branch
            await asyncio.to_thread(
                take_back_tree, site, agent.name, agent.run, new_branch=new, ran=bool(found)
            )
        reason = error.message if isinstance(error, BullpenError) else type(error).__name__
        drafts = [draft("agent.stopped", agent, {"failed": reason}, key="stopped")]
        # For those who wait for it: this run is over, whatever the name is used for next.
        observe_now(live, Gone(at=time.time(), reason=f"could not start: {reason}"))
        live.over.set()
        try:
            if last is None:
                # Not what lay there before: then it is why the start failed.
                run = agent.run
                await asyncio.to_thread(sessions.take_back, self.ground.home, agent.name, run, run)
            else:
                await asyncio.to_thread(sessions.rewrite, self.ground.home, last, settled)
        except OSError as failed:  # a full disk, perhaps the reason for all this
            log.error(
                "cannot restore a session", extra={"agent": agent.name, "reason": str(failed)}
            )
        if before is None:
            self.registry.drop(agent.name)
        else:
            self.registry.put(before)
            drafts.append(state_draft(before))  # the last word on it is of its last run
        self.record.surely(*drafts)

    async def _end_held(self, agent: Agent) -> None:
        """End the program of a start that failed; fine if it has ended by itself."""
        over = asyncio.Event()
        try:
            link = await holders.connect(self.ground.home.socket(agent.name))
            link.follow(lambda _record: over.set(), over.set)
            await link.ask(b"X", {"grace": 0})
            async with asyncio.timeout(END_SECONDS):
                await over.wait()
        except (OSError, TimeoutError) as error:
            log.warning("after a failed start", extra={"agent": agent.name, "why": str(error)})


async def _wholly(work: Awaitable[T]) -> T:
    """Threads and other processes go on when a wait for them is cancelled: what is taken back
    then has to be there as a whole before."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _make_ready(home: Home, plan: Plan) -> None:
    """The engine's files, and its own configuration; nobody may have the conversation open."""
    agent = plan.agent
    pid = find_process(plan.engine, agent.state_files, agent.engine_session)
    if pid is not None:
        raise BullpenError(
            f"the conversation of {agent.name} is open in process {pid}",
            hint="end that one first; two at once would mix it up",
            kind=Kind.CONFLICT,
        )
    sessions.write_files(home, agent.name, plan.prepared.files)
    plan.engine.make_ready(plan.start, plan.prepared)


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


def _find_settled(home: Home, name: str) -> sessions.Settled | None:
    """Environment, umask and size of the last start, if they can be read."""
    try:
        return sessions.load_settled(home, name)
    except BullpenError:
        return None
