"""Carries plans out: starts, watches and stops agents. The one place that does.

Each step is recorded before it is taken and after: the session directory and
`agent.starting` come before the worktree and the holder, `agent.started` after, and only
then is the caller answered. Killed anywhere in between, `adopt` finds what is true.
"""

import asyncio
import contextlib
import hashlib
import logging
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from bullpen.agent_files import list_agent_files
from bullpen.engines import ENGINES, StateFile, get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.hub import held, holders, sessions, walls
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
from bullpen.hub.registry import Live, Registry
from bullpen.hub.state_files import StateFiles, find_process, is_alive
from bullpen.hub.store import Store
from bullpen.hub.trees import Tree, ensure_tree, take_back_tree, unlock_tree
from bullpen.hub.tunnels import Tunnels
from bullpen.model.agent import Agent
from bullpen.model.event import Draft, Event
from bullpen.model.launch import Launch
from bullpen.model.state import Gone, Held, Idle, Launched, Observation, Ran, Silent, Told, fold
from bullpen.paths import Home
from bullpen.ssh_link import point_ssh_agent

log = logging.getLogger("bullpen.hub")

T = TypeVar("T")

END_SECONDS = 15.0  # beyond the grace: killing and reaping what a program left
LEAVE_SECONDS = 10.0
RECORD_AGAIN_SECONDS = 2.0
RELEASE_SECONDS = 0.01
NEVER_STARTED = "the hub was killed before it could start"
NEVER_BEGAN = 8  # runs in a row whose hub was killed before they could start
# A holder that is not proved gone is asked again, a few times and then rarely.
ASK_AGAIN_SECONDS = (0.05, 0.2, 1.0, 5.0, 30.0)


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


class Supervisor:
    """Everything a start or a stop needs, wired by `main`."""

    def __init__(self, ground: Ground, store: Store, registry: Registry, factory: Factory) -> None:
        self.ground = ground
        self.home = ground.home
        self.settings = ground.settings
        self.store = store
        self.registry = registry
        self.factory = factory
        self.doors = Doors(ground.home)
        self.tunnels = Tunnels(ground.home)
        self.state_files = StateFiles(self._take_state_file)
        self.tasks: set[asyncio.Task[None]] = set()
        self.unfinished: set[asyncio.Task[Any]] = set()  # what a hub that leaves waits for
        self.seating: Seating | None = None  # set by who knows of tasks
        self._unrecorded: deque[tuple[Draft, ...]] = deque()
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
                if again.is_running or held.find_holder(*self._held(again.agent)):
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
        await self.wait_cleared(name)
        self._refuse_taken(name, asked.run or "")
        live = self.registry.find(name)
        last = live.agent if live else None
        planned = plan_headless if asked.kind == "headless" else plan_launch
        plan = await asyncio.to_thread(planned, self.ground, asked, name, last)
        point_ssh_agent(self.home, asked.env)
        return await self.start(plan, last)

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
        return await self.start(plan, live.agent)

    async def start(self, plan: Plan, last: Agent | None) -> Live:
        """Carry one plan out, wholly or not at all."""
        agent = plan.agent
        live = Live(agent, fold(None, Launched(at=time.time(), run=agent.run)))
        await self.wait_cleared(agent.name)
        found = self.registry.find(agent.name)
        if found is not None and not found.is_running:
            # What the last run's end leads to must not happen to this one.
            await _wait_over(found, END_SECONDS)
            found = self.registry.find(agent.name)
        if found is None:
            last = None  # removed since the plan was made
        # No await between the look and the claim: of two starts under one name, one gets it.
        self._refuse_taken(agent.name, agent.run)
        self.registry.put(live)
        with self._unfinished():
            async with live.lock:
                before = await asyncio.to_thread(_find_settled, self.home, agent.name)
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

    def _refuse_taken(self, name: str, run: str) -> None:
        if name in self.registry.broken:
            raise BullpenError(self.registry.broken[name], kind=Kind.CONFLICT)
        if self.registry.is_taken(name, run):
            raise BullpenError(
                f"{name} is running",
                hint=f"bullpen attach {name} · or another --name",
                kind=Kind.CONFLICT,
            )

    def _forget_stray(self, name: str) -> None:
        """A program without a session directory may have ended since it was noticed."""
        if not self.home.session(name).exists() and holders.is_dead(self.home.socket(name)):
            self.registry.broken.pop(name, None)

    @contextlib.contextmanager
    def _unfinished(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self.unfinished.add(task)
        try:
            yield
        finally:
            self.unfinished.discard(task)

    async def leave(self) -> bool:
        """The hub stops: what is being taken back or recorded comes to its end before; False
        if that would take too long."""
        if not self.unfinished:
            return True
        return not (await asyncio.wait(self.unfinished, timeout=LEAVE_SECONDS))[1]

    async def _start(self, plan: Plan, live: Live, last: Agent | None) -> None:
        agent = plan.agent
        if last is None:
            await _wholly(asyncio.to_thread(sessions.create, self.home, agent, plan.settled))
        else:
            await self._wait_released(agent.name)
            await _wholly(asyncio.to_thread(sessions.rewrite, self.home, agent, plan.settled))
        await self.store.append(
            _draft("agent.starting", agent, {"engine": agent.engine, "role": agent.role}),
            _state_draft(live),
        )
        if agent.kind == "headless":
            assert self.seating is not None
            await self.seating.open(agent)
            await self.seat(live)
            return
        if plan.tree is not None:
            await self._make_tree(plan.tree, agent)
        await _wholly(asyncio.to_thread(_make_ready, self.home, plan))
        self.state_files.follow(live)
        await self.doors.open(agent)  # a sandbox mounts its directory
        await self.tunnels.open(agent.name, agent.tunnel)
        request = await _wholly(asyncio.to_thread(self._request, plan))
        answer = await _wholly(self.factory.hold(request))
        self.observe_now(live, _held(agent, answer["pid"], answer["child"]))
        await self.store.append(_started(agent, answer["pid"], answer["child"]), _state_draft(live))
        if not await self.settle(live):  # it may have ended already
            self.look_again_later(live)
        await self._type_first(live, plan.prepared.first_input)

    async def seat(self, live: Live) -> None:
        """It runs nothing until it gets a task. May be repeated."""
        await self.doors.open(live.agent)
        waits = Told(at=time.time(), source="hub", says="waits for tasks", state=Idle())
        self.observe_now(live, waits)
        began = _draft("agent.started", live.agent, {"cwd": live.agent.cwd})
        await self.store.append(began, _state_draft(live))

    async def _wait_released(self, name: str) -> None:
        """The holder of the last run says goodbye to its clients before it leaves."""
        deadline = time.monotonic() + END_SECONDS
        while await asyncio.to_thread(held.is_held, self.home.session(name)):
            if time.monotonic() > deadline:
                raise BullpenError(
                    f"the holder of {name}'s last run does not leave",
                    hint=f"bullpen explain {name}",
                    kind=Kind.CONFLICT,
                )
            await asyncio.sleep(RELEASE_SECONDS)

    async def _type_first(self, live: Live, text: bytes) -> None:
        if not text or not live.is_running:
            return
        try:
            await holders.type_into(self.home.socket(live.agent.name), text)
        except (OSError, TimeoutError) as error:
            if not await self.settle(live) or live.is_running:
                raise _does_not_answer(live.agent.name) from error

    async def _prompt_again(self, asked: Launch, live: Live) -> None:
        """The hub was killed between the start and the prompt: nothing was typed at all."""
        if asked.prompt and live.is_running and live.link is not None:
            try:
                status = await live.link.ask(b"S")
            except (OSError, TimeoutError) as error:
                raise _does_not_answer(live.agent.name) from error
            if not status.get("last_input"):
                name = live.agent.name
                plan = await asyncio.to_thread(plan_launch, self.ground, asked, name, None)
                await self._type_first(live, plan.prepared.first_input)

    async def _make_tree(self, tree: Tree, agent: Agent) -> None:
        assert agent.worktree is not None
        if await _wholly(asyncio.to_thread(ensure_tree, tree, agent)):
            data = {"path": agent.worktree.path, "branch": agent.birth_branch}
            await self.store.append(_draft("worktree.created", agent, data))
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
            "socket": str(self.home.socket(agent.name)),
            "session": str(self.home.session(agent.name)),
            "argv": list(argv),
            "env": env,
            "cwd": agent.cwd,
            "mode": "pty" if agent.kind == "interactive" else "pipe",
            "rows": settled.rows,
            "cols": settled.cols,
            "umask": settled.umask,
        }

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
        found = await asyncio.to_thread(held.find_holder, *self._held(agent))
        if found:
            await self._end_held(agent)  # the program runs, but the rest failed
        if plan.tree is not None:
            site, new = plan.tree.site, plan.tree.new_branch
            await asyncio.to_thread(
                take_back_tree, site, agent.name, agent.run, new_branch=new, ran=bool(found)
            )
        reason = error.message if isinstance(error, BullpenError) else type(error).__name__
        drafts = [_draft("agent.stopped", agent, {"failed": reason}, key="stopped")]
        # For those who wait for it: this run is over, whatever the name is used for next.
        self.observe_now(live, Gone(at=time.time(), reason=f"could not start: {reason}"))
        live.over.set()
        try:
            if last is None:
                # Not what lay there before: then it is why the start failed.
                run = agent.run
                await asyncio.to_thread(sessions.take_back, self.home, agent.name, run, run)
            else:
                await asyncio.to_thread(sessions.rewrite, self.home, last, settled)
        except OSError as failed:  # a full disk, perhaps the reason for all this
            log.error(
                "cannot restore a session", extra={"agent": agent.name, "reason": str(failed)}
            )
        if before is None:
            self.registry.drop(agent.name)
        else:
            self.registry.put(before)
            drafts.append(_state_draft(before))  # the last word on it is of its last run
        self.record_surely(*drafts)

    async def _end_held(self, agent: Agent) -> None:
        """End the program of a start that failed; fine if it has ended by itself."""
        over = asyncio.Event()
        try:
            link = await holders.connect(self.home.socket(agent.name))
            link.follow(lambda _record: over.set(), over.set)
            await link.ask(b"X", {"grace": 0})
            async with asyncio.timeout(END_SECONDS):
                await over.wait()
        except (OSError, TimeoutError) as error:
            log.warning("after a failed start", extra={"agent": agent.name, "why": str(error)})

    # ── watching ──

    async def watch(self, live: Live, seconds: float) -> holders.Record:
        """Connect to the agent's holder, and be told of its end. Its greeting."""
        link = await holders.connect(self.home.socket(live.agent.name), seconds)
        if link.greeting.result().get("tag") != live.agent.run:
            link.close()
            raise BullpenError(
                f"another program is held under the name {live.agent.name}", kind=Kind.CONFLICT
            )
        live.link = link
        link.follow(
            lambda record: self._later(self._ended(live, record)), lambda: self._lost(live, link)
        )
        return link.greeting.result()

    def _lost(self, live: Live, link: holders.Link) -> None:
        if live.link is link:
            live.link = None
            self.look_again_later(live)

    async def _ended(self, live: Live, record: dict[str, Any]) -> None:
        live.link = None
        ended = held.parse_exit(record)
        self.observe_now(live, Ran(at=ended.at, code=ended.code, signal=ended.signal))
        await self._conclude(live, {"code": ended.code, "signal": ended.signal})

    async def _conclude(self, live: Live, data: dict[str, Any]) -> None:
        """The run is over: said once, whoever finds out."""
        if live.over.is_set():
            return
        self.doors.close(live.agent)
        self.tunnels.close(live.agent.name)
        try:
            await asyncio.to_thread(unlock_tree, self.home, self.settings, live.agent)
            if live.agent.is_sandboxed:
                running = [each.agent.name for each in self.registry if each.is_running]
                await asyncio.to_thread(walls.tidy_agent, self.home, live.agent, running)
            found = await asyncio.to_thread(held.find_holder, *self._held(live.agent))
            # A hub that was killed may not have come to say that it began.
            began = [_started(live.agent, found["pid"], found["child"])] if found else []
            stopped = _draft("agent.stopped", live.agent, data, key="stopped")
            drafts = (*began, stopped, _state_draft(live))
            try:
                await self.store.append(*drafts)
            except BullpenError:
                self.record_surely(*drafts)
        finally:
            live.over.set()

    def look_again_later(self, live: Live) -> None:
        """Ask on, beside everything else."""
        if not live.is_asked:
            live.is_asked = True
            self._later(self._look_again(live))

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

    async def settle(self, live: Live, seconds: float = holders.ANSWER_SECONDS) -> bool:
        """Ask everything that can be asked about a run; True when it is connected or over. A
        holder has so many seconds to answer."""
        async with live.settling:
            if live.link is not None or not live.is_running or live.agent.kind == "headless":
                return True
            return await self._settle(live, seconds)

    async def _settle(self, live: Live, seconds: float) -> bool:
        agent = live.agent
        record = await asyncio.to_thread(held.find_exit, *self._held(agent))
        if record is not None:
            await self._ended(live, record)
            return True
        try:
            greeting = await self.watch(live, seconds)
        except (OSError, TimeoutError, BullpenError) as error:
            return await self._settle_unreachable(live, str(error) or type(error).__name__)
        drafts = [_started(agent, greeting["pid"], greeting["child"])]
        if self.observe_now(live, _held(agent, greeting["pid"], greeting["child"])):
            drafts.append(_state_draft(live))
        await self.store.append(*drafts)
        return live.link is not None or not live.is_running  # it may be gone again

    async def _settle_unreachable(self, live: Live, why: str) -> bool:
        agent = live.agent
        if not await asyncio.to_thread(held.is_held, self.home.session(agent.name)):
            # The holder writes its record before it lets go of the directory.
            record = await asyncio.to_thread(held.find_exit, *self._held(agent))
            if record is not None:
                await self._ended(live, record)
                return True
            found = await asyncio.to_thread(held.find_holder, *self._held(agent))
            if found:
                held.end_orphan(found)
            reason = (
                "its holder was killed" if found else "the hub was killed before it could start"
            )
            self.observe_now(live, Gone(at=time.time(), reason=reason))
            await self._conclude(live, {"lost": reason})
            return True
        await asyncio.to_thread(
            held.ask_to_listen, *self._held(agent), self.home.socket(agent.name)
        )
        await self._note_silence(live, why)
        return False

    async def _note_silence(self, live: Live, why: str) -> None:
        reason = f"its holder lives but does not answer: {why}"
        if self.observe_now(live, Silent(at=time.time(), reason=reason)):
            await self.store.append(_state_draft(live))

    def _held(self, agent: Agent) -> tuple[Path, str]:
        """Where the holder of its present run leaves its records, and their tag."""
        return self.home.session(agent.name), agent.run

    def keep_reachable(self, live: Live) -> None:
        """Its socket may have been deleted; that of one that has ended may."""
        socket = self.home.socket(live.agent.name)
        if live.is_running and live.link is not None and not socket.exists():
            self._later(asyncio.to_thread(held.ask_to_listen, *self._held(live.agent), socket))

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

    async def _take_state_file(self, directory: str, text: bytes) -> None:
        for live in self.registry:
            if live.is_running and live.agent.state_files == directory:
                found = get_engine(live.agent.engine).read_state_file(text)
                if found is not None and await self._is_its_own(live, found) and found.told:
                    await self.observe(live, found.told)

    async def _is_its_own(self, live: Live, found: StateFile) -> bool:
        """By its conversation. Of a program that is held as it is we do not know that yet: it is
        told by the process that we hold."""
        if not live.agent.engine_session and not live.agent.role:
            holder = await asyncio.to_thread(held.find_holder, *self._held(live.agent))
            if holder is not None and found.pid == holder["child"] and is_alive(found):
                await self.converse(live, found.conversation)
        return bool(found.conversation) and found.conversation == live.agent.engine_session

    async def lead(self, live: Live, hosts: tuple[str, ...]) -> None:
        """Let an agent without network reach these and no others, from now on and after a restart
        of the hub, too."""
        if hosts != live.agent.tunnel:
            live.agent = live.agent.model_copy(update={"tunnel": hosts})
            await asyncio.to_thread(sessions.rewrite, self.home, live.agent)
        await self.tunnels.open(live.agent.name, hosts)

    async def converse(self, live: Live, conversation: str) -> None:
        """Its program has begun another conversation: that is the one to be resumed."""
        if not conversation or conversation == live.agent.engine_session:
            return
        live.agent = live.agent.model_copy(update={"engine_session": conversation})
        await asyncio.to_thread(sessions.rewrite, self.home, live.agent)
        await self.store.append(_draft("agent.conversation", live.agent, {"id": conversation}))
        self.state_files.look(live)

    # ── stopping ──

    async def stop(self, name: str, grace: float | None) -> Live:
        """End the agent's program; returns when it is over and recorded."""
        live = self.registry.get(name)
        async with live.lock:  # a start under way comes first; a stop under way does not:
            pass  # a second one may shorten the grace of the first
        if not live.is_running:
            return live
        seconds = self.settings.stop_grace.total_seconds() if grace is None else grace
        intent = _draft("agent.stopping", live.agent, {"grace": seconds})
        try:
            await self.store.append(intent)
        except BullpenError:  # a full disk is a reason to stop somebody, not to go on
            self.record_surely(intent)
        if live.agent.kind == "headless":
            assert self.seating is not None
            await self.seating.close(name, seconds)
            await self._ended(live, {"code": 0, "ended": time.time()})
            return live
        if not await self.settle(live):
            raise _does_not_answer(name)
        if live.link is not None:
            await self._ask_to_stop(live, live.link, seconds)
        await _wait_over(live, seconds + END_SECONDS)
        return live

    async def _ask_to_stop(self, live: Live, link: holders.Link, seconds: float) -> None:
        try:
            await link.ask(b"X", {"grace": seconds})
        except TimeoutError as error:  # which is an OSError
            # Stopped itself, perhaps: then it stops the program when it goes on.
            link.close()
            live.link = None
            await self._note_silence(live, f"it was asked to stop {holders.ANSWER_SECONDS:g} s ago")
            self.look_again_later(live)
            raise _does_not_answer(live.agent.name) from error
        except OSError:
            return  # it ended in that moment, which the link has noticed

    # ── what goes on beside ──

    def record_surely(self, *drafts: Draft) -> None:
        """Record what has happened as soon as it can be: a full disk must not hide an end."""
        self._unrecorded.append(drafts)
        if len(self._unrecorded) == 1:
            task = self._begin(self._record())
            self.unfinished.add(task)
            task.add_done_callback(self.unfinished.discard)

    async def _record(self) -> None:
        while self._unrecorded:
            try:
                await self.store.append(*self._unrecorded[0])
            except BullpenError as error:
                log.error("cannot record an event yet", extra={"reason": error.message})
                await asyncio.sleep(RECORD_AGAIN_SECONDS)
            else:
                self._unrecorded.popleft()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._begin(work)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(_logged(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def _find_run(self, run: str) -> Live | None:
        """The agent of that run, or of the one that was begun in place of it."""
        runs = [run]
        while len(runs) < NEVER_BEGAN:
            runs.append(_next_run(runs[-1]))
        return next((live for live in self.registry if live.agent.run in runs), None)


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


async def _wait_over(live: Live, seconds: float) -> None:
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


async def _wholly(work: Awaitable[T]) -> T:
    """Threads and other processes go on when a wait for them is cancelled: what is taken back
    then has to be there as a whole before."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    """Top of a task beside: whatever fails there is said, and goes no further."""
    try:
        await work
    except Exception:
        log.exception("a task failed")


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


def _does_not_answer(name: str) -> BullpenError:
    return BullpenError(
        f"the holder of {name} does not answer",
        hint=f"bullpen explain {name}",
        kind=Kind.UNAVAILABLE,
    )


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


def _next_run(run: str) -> str:
    """The run in place of one that never began. It follows from that one: whoever asks for the
    first a third time is led to it, also by another hub."""
    return hashlib.sha256(run.encode()).hexdigest()[:32]


def _held(agent: Agent, holder: int, child: int) -> Held:
    engine = ENGINES.get(agent.engine)  # of a later version's, perhaps
    missing = engine.missing if engine else f"this version does not know {agent.engine}"
    return Held(at=time.time(), holder=holder, child=child, missing=missing)


def _started(agent: Agent, holder: int, child: int) -> Draft:
    data = {"holder": holder, "child": child, "cwd": agent.cwd}
    return _draft("agent.started", agent, data)


def _draft(kind: str, agent: Agent, data: dict[str, Any], key: str = "") -> Draft:
    name = kind.partition(".")[2]
    repeats = kind in ("agent.stopping", "agent.conversation")
    unique = "" if repeats else f"{key or name}:{agent.run}"
    fields = {"run": agent.run, "pod": agent.pod, **data}
    return Draft(time=time.time(), kind=kind, agent=agent.name, data=fields, key=unique)


def _state_draft(live: Live) -> Draft:
    data = live.view.model_dump(mode="json")
    return Draft(time=time.time(), kind="agent.state", agent=live.agent.name, data=data)


def _find_settled(home: Home, name: str) -> sessions.Settled | None:
    """Environment, umask and size of the last start, if they can be read."""
    try:
        return sessions.load_settled(home, name)
    except BullpenError:
        return None
