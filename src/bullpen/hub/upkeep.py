"""What the hub does by itself: finish what crashes left in repositories, keep the pool of ready
checkouts filled, once a day clear away old worktrees, events, messages, tasks and counts.

One task beside the serving, which it never holds up; what fails in it is logged, and tried again
with the next turn. When something was done last is in the event log, so a hub that is restarted
every hour still does it daily.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import assert_never

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.hub.agents.registry import Registry
from bullpen.hub.agents.worktrees import bases_of, has_own_lock, open_site, unlock_tree
from bullpen.hub.background import in_daemon_thread, logged
from bullpen.hub.context import HubContext
from bullpen.hub.messages.box import Messages
from bullpen.hub.store.events import find_last
from bullpen.hub.store.expire import expire, shrink
from bullpen.hub.store.store import Store
from bullpen.hub.tasks.expire import expire_tasks
from bullpen.hub.tree.children import Children
from bullpen.hub.usage.count import Usage
from bullpen.model.event import Draft, Event
from bullpen.model.state import Exited
from bullpen.worktrees import Cleaned

log = logging.getLogger("bullpen.hub")

DAY_SECONDS = 86400.0
LOOK_AGAIN_SECONDS = 3600.0  # a timer does not count while the machine sleeps
KEEP_EVENTS_SECONDS = 30 * DAY_SECONDS
KEEP_USAGE_SECONDS = 400 * DAY_SECONDS  # so that a month can be held against that of the last year


class Job(Enum):
    """What is done once a day, by `Upkeep._do`; the value is the kind of event that says so."""

    WORKTREES = "upkeep.worktrees"
    EVENTS = "upkeep.events"


@dataclass(frozen=True)
class UpkeepPlan:
    """What to do now, and after how many seconds to look again."""

    jobs: tuple[Job, ...]
    wait_seconds: float


def plan_upkeep(now: float, last: Mapping[Job, float]) -> UpkeepPlan:
    """What is due, given when each was done last. Pure."""
    waits = {job: _seconds_until_due(now, last.get(job)) for job in Job}
    due = tuple(job for job, wait in waits.items() if wait <= 0)
    later = [wait for wait in waits.values() if wait > 0]
    return UpkeepPlan(due, min([*later, LOOK_AGAIN_SECONDS]))


def _seconds_until_due(now: float, last: float | None) -> float:
    """A clock that was set back does not put it off for ever."""
    if last is None or last > now:
        return 0.0
    return max(0.0, last + DAY_SECONDS - now)


class Upkeep:
    """The task. `notice` is told of every committed event."""

    def __init__(
        self,
        context: HubContext,
        store: Store,
        registry: Registry,
        messages: Messages,
        children: Children,
        usage: Usage,
    ) -> None:
        self.home = context.home
        self._context = context
        self.trees = context.trees
        self.store = store
        self.registry = registry
        self.messages = messages
        self.children = children
        self.usage = usage
        self._taken: set[str] = set()  # agents that got a worktree, perhaps from the pool
        self._news = asyncio.Event()

    def notice(self, events: Iterable[Event]) -> None:
        """Whoever took a ready checkout from the pool left a gap in it. Called on the loop."""
        if not self._context.settings.worktrees.pool:
            return
        made = {event.agent for event in events if event.kind == "worktree.created"}
        if made:
            self._taken |= made
            self._news.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        await logged(self._worktrees(is_daily=False), "upkeep after the start")
        while True:
            due = UpkeepPlan((), LOOK_AGAIN_SECONDS)
            try:
                due = plan_upkeep(time.time(), await self._last())
            except BullpenError as error:
                log.error("cannot tell what is due", extra={"why": error.message})
            for job in due.jobs:
                await logged(self._do(job), job.value)
            await self._wait(due.wait_seconds)

    async def _do(self, job: Job) -> None:
        match job:
            case Job.WORKTREES:
                await self._worktrees()
            case Job.EVENTS:
                await self._events()
            case _:
                assert_never(job)

    async def _wait(self, seconds: float) -> None:
        """Meanwhile the pool is filled whenever somebody took from it."""
        end = time.monotonic() + seconds
        while True:
            try:
                async with asyncio.timeout(max(0.0, end - time.monotonic())):
                    await self._news.wait()
            except TimeoutError:
                return
            self._news.clear()
            await logged(self._refill(), "upkeep of the pool")

    async def _last(self) -> dict[Job, float]:
        last = {job: await self.store.read(find_last("", job.value)) for job in Job}
        return {job: event.time for job, event in last.items() if event is not None}

    # ── events ──

    async def _events(self) -> None:
        now = time.time()
        names = {*(live.agent.name for live in self.registry), *self.registry.broken}
        count = await expire(self.store, KEEP_EVENTS_SECONDS, now, names)
        messages = await self.messages.expire(now - KEEP_EVENTS_SECONDS, names)
        tasks = await expire_tasks(self.store, now - KEEP_EVENTS_SECONDS, names)
        forgotten = await self.usage.expire(now - KEEP_USAGE_SECONDS)
        await self.children.forget_gone()
        await shrink(self.store)
        data = {"expired": count, "messages": messages, "tasks": tasks, "usage": forgotten}
        await self.store.append(Draft(time.time(), Job.EVENTS.value, data=data))

    # ── worktrees ──

    async def _worktrees(self, *, is_daily: bool = True) -> None:
        """In all repositories: crashes' leftovers and safety copies past their time; once a day
        also old worktrees of ended agents."""
        turn = Turn()
        last = await self.store.read(find_last("", Job.WORKTREES.value))
        for repo in sorted(await asyncio.to_thread(self._repositories, last)):
            try:
                await in_daemon_thread(partial(self._tend, Path(repo), is_daily, turn))
            except BullpenError as error:
                turn.failed[repo] = error.message
                log.warning(
                    "cannot look after a repository", extra={"repo": repo, "why": error.message}
                )
        await self._lift_stale_locks()
        drafts = [
            Draft(time.time(), "worktree.removed", name, {"why": "its age"})
            for name in turn.removed
        ]
        if is_daily:
            drafts.append(Draft(time.time(), Job.WORKTREES.value, data=vars(turn)))
        if drafts:
            await self.store.append(*drafts)

    def _repositories(self, last: Event | None) -> set[str]:
        """Those that sessions name, and those where the last turn left safety copies."""
        worktrees = (live.agent.worktree for live in self.registry)
        named = {worktree.repo for worktree in worktrees if worktree is not None}
        kept = last.data.get("with_copies", []) if last else []
        return named | {repo for repo in kept if Path(repo).is_dir()}

    def _tend(self, repo: Path, is_daily: bool, turn: "Turn") -> None:
        rules = self._context.settings.worktrees
        site = open_site(self.home, self._context.settings, repo)
        for each in worktrees.sites_in(site, bases_of(live.agent for live in self.registry)):
            turn.add(worktrees.gc(each))
            if is_daily and rules.auto_cleanup_age is not None:
                turn.add(worktrees.cleanup_orphaned(each, rules.auto_cleanup_age, self.has_ended))
        if worktrees.list_safety_copies(site.repo):
            turn.with_copies.append(str(repo))
        worktrees.refill_in_background(site)

    def has_ended(self, name: str) -> bool:
        """Whether the worktree's agent is known to have ended, at this moment. Not if it is lost,
        cannot be read or was never there: those are a person's to judge."""
        live = self.registry.find(name)
        if live is None or self.registry.is_claimed(name) or live.lock.locked():
            return False
        return isinstance(live.view.state, Exited)

    async def _lift_stale_locks(self) -> None:
        """Of agents whose repository could not be reached when they ended."""
        home, settings = self.home, self._context.settings
        for live in list(self.registry):
            if live.is_running or live.lock.locked() or live.agent.worktree is None:
                continue
            if await in_daemon_thread(partial(has_own_lock, home, settings, live.agent)):
                async with live.lock:  # and so no start comes between
                    if self.registry.find(live.agent.name) is live:
                        await self.trees.run_to_end(
                            partial(unlock_tree, home, settings, live.agent)
                        )

    # ── the pool ──

    async def _refill(self) -> None:
        taken, self._taken = self._taken, set()
        bases: dict[str, str] = {}
        for name in taken:
            live = self.registry.find(name)
            if live is not None and live.agent.worktree is not None:
                bases[live.agent.worktree.repo] = name
        for repo, name in bases.items():
            await in_daemon_thread(partial(self._refill_one, Path(repo), name))

    def _refill_one(self, repo: Path, name: str) -> None:
        """From where that agent began: the next one probably does, too."""
        site = open_site(self.home, self._context.settings, repo)
        record = worktrees.find_record(site, name)
        worktrees.refill_in_background(site, record.base if record else "")


@dataclass
class Turn:
    """What one turn did in all repositories."""

    removed: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    recovered: int = 0
    expired: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    with_copies: list[str] = field(default_factory=list)

    def add(self, cleaned: Cleaned) -> None:
        self.removed += cleaned.worktrees
        self.left |= cleaned.left
        self.recovered += cleaned.recovered
        self.expired += cleaned.expired
