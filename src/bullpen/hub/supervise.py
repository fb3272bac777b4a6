"""Carries plans out: starts, watches and stops agents. The one place that does.

Each step is recorded before it is taken and after: the session directory and
`agent.starting` come before the worktree and the holder, `agent.started` after, and only
then is the caller answered. Killed anywhere in between, `adopt` finds what is true.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from bullpen import proc, worktrees
from bullpen.engines import get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.hub import holders, sessions
from bullpen.hub.doors import Doors
from bullpen.hub.factory import Factory
from bullpen.hub.launch import Plan, Tree, open_site, plan_launch, plan_restart, wanted_name
from bullpen.hub.registry import Live, Registry
from bullpen.hub.store import Store
from bullpen.model.agent import Agent
from bullpen.model.event import Draft, Event
from bullpen.model.launch import Launch
from bullpen.model.state import Gone, Held, Launched, Observation, Ran, Silent, fold
from bullpen.paths import Home
from bullpen.settings import Settings
from bullpen.ssh_link import point_ssh_agent
from bullpen.worktrees import WorktreeError

log = logging.getLogger("bullpen.hub")

END_SECONDS = 15.0  # beyond the grace: killing and reaping what a program left
RECORD_AGAIN_SECONDS = 2.0
# A holder that is not proved gone is asked again, a few times and then rarely.
ASK_AGAIN_SECONDS = (0.05, 0.2, 1.0, 5.0, 30.0)
LOCK_REASON = "its agent is running · bullpen stop {}"


class Supervisor:
    """Everything a start or a stop needs, wired by `main`."""

    def __init__(
        self, home: Home, settings: Settings, store: Store, registry: Registry, factory: Factory
    ) -> None:
        self.home = home
        self.settings = settings
        self.store = store
        self.registry = registry
        self.factory = factory
        self.doors = Doors(home)
        self.tasks: set[asyncio.Task[None]] = set()

    # ── starting ──

    async def launch(self, asked: Launch) -> Live:
        """Start the agent that was asked for; the one that already runs if asked twice."""
        again = self._find_run(asked.run)
        if again is not None:
            async with again.lock:
                if again.is_running or sessions.find_holder(self.home, again.agent):
                    return again
            # An earlier hub was killed before it could start it: now, as a run of its own.
            return await self.launch_as(asked.model_copy(update={"run": None}), again.agent.name)
        wanted = wanted_name(asked)
        name = wanted if asked.name is not None else self.registry.free_name(wanted)
        return await self.launch_as(asked, name)

    async def launch_as(self, asked: Launch, name: str) -> Live:
        """Start under exactly that name."""
        live = self.registry.find(name)
        if live is not None and (live.is_running or live.lock.locked()):
            raise _already_runs(name)
        last = live.agent if live else None
        plan = await asyncio.to_thread(plan_launch, self.home, self.settings, asked, name, last)
        point_ssh_agent(self.home, asked.env)
        return await self.start(plan, last)

    async def restart(self, name: str, grace: float | None) -> Live:
        """The same agent once more; stopped first if it runs."""
        live = self.registry.get(name)
        if live.is_running:
            await self.stop(name, grace)
        settled = await asyncio.to_thread(sessions.load_settled, self.home, name)
        plan = await asyncio.to_thread(plan_restart, self.home, self.settings, live.agent, settled)
        return await self.start(plan, live.agent)

    async def start(self, plan: Plan, last: Agent | None) -> Live:
        """Carry one plan out, wholly or not at all."""
        agent = plan.agent
        live = Live(agent, fold(None, Launched(at=time.time(), run=agent.run)))
        found = self.registry.find(agent.name)
        # No await between the look and the claim: of two starts under one name, one gets it.
        if found is not None and (found.is_running or found.lock.locked()):
            raise _already_runs(agent.name)
        self.registry.put(live)
        async with live.lock:
            try:
                await self._start(plan, live, last)
            except BaseException as error:
                await asyncio.shield(self._undo(plan, live, last, found, error))
                raise
        return live

    async def _start(self, plan: Plan, live: Live, last: Agent | None) -> None:
        agent = plan.agent
        if last is None:
            await asyncio.to_thread(sessions.create, self.home, agent, plan.settled)
        else:
            await asyncio.to_thread(sessions.rewrite, self.home, agent, plan.settled)
        await self.store.append(
            _draft("agent.starting", agent, {"engine": agent.engine, "role": agent.role}),
            _state_draft(live),
        )
        if plan.tree is not None:
            live.agent = agent = await self._make_tree(plan.tree, agent)
        await self.doors.open(agent)  # a sandbox mounts its directory
        answer = await self.factory.hold(self._request(agent, plan.settled))
        self.observe_now(live, _held(agent, answer["pid"], answer["child"]))
        data = {"holder": answer["pid"], "child": answer["child"], "cwd": agent.cwd}
        await self.store.append(_draft("agent.started", agent, data), _state_draft(live))
        if not await self.settle(live):  # it may have ended already
            self.look_again_later(live)
        first = plan.engine.first_input(plan.start)
        if first and live.is_running:
            await holders.type_into(self.home.socket(agent.name), first)

    async def _make_tree(self, tree: Tree, agent: Agent) -> Agent:
        assert agent.worktree is not None
        root = agent.worktree.path
        there = await asyncio.to_thread(worktrees.exists, tree.site, tree.spec.name)
        await asyncio.to_thread(worktrees.ensure, tree.site, tree.spec)
        await asyncio.to_thread(_lock_tree, tree, agent.name)
        if not there:
            agent = agent.model_copy(
                update={"worktree": agent.worktree.model_copy(update={"made": True})}
            )
            await asyncio.to_thread(sessions.rewrite, self.home, agent)
            data = {"path": root, "branch": agent.birth_branch}
            await self.store.append(_draft("worktree.created", agent, data))
        if not Path(agent.cwd).is_dir():
            raise BullpenError(
                f"{agent.cwd} is not in the worktree: the directory has no committed files",
                hint="commit it, or start from the repository's root",
                kind=Kind.NOT_FOUND,
            )
        return agent

    def _request(self, agent: Agent, settled: sessions.Settled) -> dict[str, Any]:
        return {
            "name": agent.name,
            "tag": agent.run,
            "socket": str(self.home.socket(agent.name)),
            "session": str(self.home.session(agent.name)),
            "argv": list(agent.command),
            "env": settled.env,
            "cwd": agent.cwd,
            "mode": "pty" if agent.kind == "interactive" else "pipe",
            "rows": settled.rows,
            "cols": settled.cols,
            "umask": settled.umask,
        }

    async def _undo(
        self, plan: Plan, live: Live, last: Agent | None, before: Live | None, error: BaseException
    ) -> None:
        """A start that failed leaves what was there before, and an event that says why."""
        agent = live.agent
        self.doors.close(agent)
        if live.link is not None:
            live.link.close()
        if await asyncio.to_thread(sessions.find_holder, self.home, agent):
            await self._end_held(agent)  # the program runs, but the rest failed
        if plan.tree is not None and agent.worktree is not None:
            await asyncio.to_thread(_undo_tree, plan.tree, agent)
        if last is None:
            await asyncio.to_thread(sessions.remove, self.home, agent.name)
            self.registry.drop(agent.name)
        else:
            await asyncio.to_thread(sessions.rewrite, self.home, last)
            if before is not None:
                self.registry.put(before)
        reason = error.message if isinstance(error, BullpenError) else type(error).__name__
        self.record_surely(_draft("agent.stopped", agent, {"failed": reason}, key="stopped"))

    async def _end_held(self, agent: Agent) -> None:
        """End the program of a start that failed; fine if it has ended by itself."""
        over = asyncio.Event()
        try:
            link = await holders.connect(self.home.socket(agent.name))
            link.on_end = lambda _record: over.set()
            link.on_lost = over.set
            await link.ask(b"X", {"grace": 0})
            async with asyncio.timeout(END_SECONDS):
                await over.wait()
        except (OSError, TimeoutError) as error:
            log.warning("after a failed start", extra={"agent": agent.name, "why": str(error)})

    # ── watching ──

    async def watch(self, live: Live) -> None:
        """Connect to the agent's holder, and be told of its end."""
        link = await holders.connect(self.home.socket(live.agent.name))
        if link.greeting.result().get("tag") != live.agent.run:
            link.close()
            raise BullpenError(
                f"another program is held under the name {live.agent.name}", kind=Kind.CONFLICT
            )
        live.link = link
        link.on_end = lambda record: self._later(self._ended(live, record))
        link.on_lost = lambda: self.look_again_later(live)

    async def _ended(self, live: Live, record: dict[str, Any]) -> None:
        live.link = None
        seen = Ran(at=record["ended"], code=record["code"], signal=record["signal"])
        self.observe_now(live, seen)
        data = {"code": record["code"], "signal": record["signal"]}
        await self._conclude(live, data)

    async def _conclude(self, live: Live, data: dict[str, Any]) -> None:
        """The run is over: said once, whoever finds out."""
        self.doors.close(live.agent)
        await asyncio.to_thread(_unlock_tree, self.home, self.settings, live.agent)
        drafts = (_draft("agent.stopped", live.agent, data, key="stopped"), _state_draft(live))
        try:
            await self.store.append(*drafts)
        except BullpenError:
            self.record_surely(*drafts)
        live.over.set()

    def look_again_later(self, live: Live) -> None:
        """Ask on, beside everything else."""
        self._later(self._look_again(live))

    async def _look_again(self, live: Live) -> None:
        """The connection broke without an end: find out what is true. No answer is not death."""
        live.link = None
        for wait in (*ASK_AGAIN_SECONDS, *(ASK_AGAIN_SECONDS[-1:] * 10_000)):
            if await self.settle(live):
                return
            await asyncio.sleep(wait)

    async def settle(self, live: Live) -> bool:
        """Ask everything that can be asked about a run; True when it is connected or over."""
        agent = live.agent
        record = await asyncio.to_thread(sessions.find_exit, self.home, agent)
        if record is not None:
            await self._ended(live, record)
            return True
        try:
            await self.watch(live)
        except (OSError, TimeoutError, BullpenError) as error:
            return await self._settle_unreachable(live, str(error) or type(error).__name__)
        assert live.link is not None
        greeting = live.link.greeting.result()
        if self.observe_now(live, _held(agent, greeting["pid"], greeting["child"])):
            await self.store.append(_state_draft(live))
        return True

    async def _settle_unreachable(self, live: Live, why: str) -> bool:
        agent = live.agent
        if not await asyncio.to_thread(sessions.is_held, self.home, agent.name):
            # The holder writes its record before it lets go of the directory.
            record = await asyncio.to_thread(sessions.find_exit, self.home, agent)
            if record is not None:
                await self._ended(live, record)
                return True
            held = await asyncio.to_thread(sessions.find_holder, self.home, agent)
            reason = "its holder was killed" if held else "the hub was killed before it could start"
            self.observe_now(live, Gone(at=time.time(), reason=reason))
            await self._conclude(live, {"lost": reason})
            return True
        await asyncio.to_thread(_ask_to_listen, self.home, agent)
        if self.observe_now(
            live, Silent(at=time.time(), reason=f"its holder lives but does not answer: {why}")
        ):
            await self.store.append(_state_draft(live))
        return False

    def observe_now(self, live: Live, seen: Observation) -> bool:
        """Fold an observation in; whether the state is another one now."""
        before = live.view
        live.view = fold(before, seen)
        return live.view.state != before.state

    async def observe(self, live: Live, seen: Observation | None, *notes: Draft) -> list[Event]:
        """Record what was received and, in the same transaction, the state it leads to."""
        before = live.view
        drafts = list(notes)
        if seen is not None:
            live.view = fold(before, seen)
            if live.view != before:
                drafts.append(_state_draft(live))
        return await self.store.append(*drafts) if drafts else []

    # ── stopping ──

    async def stop(self, name: str, grace: float | None) -> Live:
        """End the agent's program; returns when it is over and recorded."""
        live = self.registry.get(name)
        async with live.lock:
            if not live.is_running:
                return live
            seconds = self.settings.stop_grace.total_seconds() if grace is None else grace
            await self.store.append(_draft("agent.stopping", live.agent, {"grace": seconds}))
            if live.link is None and not await self.settle(live):
                raise BullpenError(
                    f"the holder of {name} does not answer",
                    hint=f"bullpen explain {name}",
                    kind=Kind.UNAVAILABLE,
                )
            if live.is_running and live.link is not None:
                await self._stop_held(live, seconds)
        return live

    async def _stop_held(self, live: Live, seconds: float) -> None:
        assert live.link is not None
        try:
            await live.link.ask(b"X", {"grace": seconds})
        except OSError:
            pass  # it ended in that moment, which the link has noticed
        except TimeoutError as error:
            raise BullpenError(
                f"the holder of {live.agent.name} does not answer",
                hint=f"bullpen explain {live.agent.name}",
                kind=Kind.UNAVAILABLE,
            ) from error
        try:
            async with asyncio.timeout(seconds + END_SECONDS):
                await live.over.wait()
        except TimeoutError as error:
            raise BullpenError(
                f"{live.agent.name} did not end within {seconds + END_SECONDS:g} s",
                hint=f"bullpen kill {live.agent.name}",
                kind=Kind.UNAVAILABLE,
            ) from error

    # ── what goes on beside ──

    def record_surely(self, *drafts: Draft) -> None:
        """Record what has happened as soon as it can be: a full disk must not hide an end."""

        async def record() -> None:
            while True:
                try:
                    await self.store.append(*drafts)
                except BullpenError as error:
                    log.error("cannot record an event yet", extra={"reason": error.message})
                    await asyncio.sleep(RECORD_AGAIN_SECONDS)
                else:
                    return

        self._later(record())

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(_logged(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _find_run(self, run: str | None) -> Live | None:
        return next((live for live in self.registry if run and live.agent.run == run), None)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    """Top of a task beside: whatever fails there is said, and goes no further."""
    try:
        await work
    except Exception:
        log.exception("a task failed")


def _already_runs(name: str) -> BullpenError:
    return BullpenError(
        f"{name} is running", hint=f"bullpen attach {name} · or another --name", kind=Kind.CONFLICT
    )


def _held(agent: Agent, holder: int, child: int) -> Held:
    missing = get_engine(agent.engine).missing
    return Held(at=time.time(), holder=holder, child=child, missing=missing)


def _draft(kind: str, agent: Agent, data: dict[str, Any], key: str = "") -> Draft:
    name = kind.partition(".")[2]
    unique = f"{key or name}:{agent.run}" if kind != "agent.stopping" else ""
    fields = {"run": agent.run, "pod": agent.pod, **data}
    return Draft(time=time.time(), kind=kind, agent=agent.name, data=fields, key=unique)


def _state_draft(live: Live) -> Draft:
    data = live.view.model_dump(mode="json")
    return Draft(time=time.time(), kind="agent.state", agent=live.agent.name, data=data)


def _ask_to_listen(home: Home, agent: Agent) -> None:
    """A holder whose socket somebody deleted makes a new one when it is told to."""
    held = sessions.find_holder(home, agent)
    if (
        held is not None
        and not home.socket(agent.name).exists()
        and proc.start_time(held["pid"]) == held["start_time"]
    ):
        os.kill(held["pid"], signal.SIGUSR1)


# ── worktrees; in threads ──


def _lock_tree(tree: Tree, name: str) -> None:
    """Protect it while the agent runs. A lock that a person set before stays theirs."""
    try:
        worktrees.lock(tree.site, name, LOCK_REASON.format(name))
    except WorktreeError as error:
        if error.code != worktrees.Code.LOCKED:
            raise


def _unlock_tree(home: Home, settings: Settings, agent: Agent) -> None:
    if agent.worktree is None:
        return
    try:
        site = open_site(home, settings, Path(agent.worktree.repo))
        if worktrees.lock_reason(site, agent.worktree.name) == LOCK_REASON.format(agent.name):
            worktrees.unlock(site, agent.worktree.name)
    except BullpenError as error:  # the repository may be gone; the agent has ended all the same
        log.warning("cannot unlock a worktree", extra={"agent": agent.name, "why": error.message})


def _undo_tree(tree: Tree, agent: Agent) -> None:
    """A worktree made for a start that failed goes again; one that was there stays."""
    try:
        worktrees.unlock(tree.site, agent.name)
        if agent.worktree is not None and agent.worktree.made:
            worktrees.remove(tree.site, agent.name)
    except WorktreeError as error:
        log.warning("kept a worktree", extra={"agent": agent.name, "why": error.message})
