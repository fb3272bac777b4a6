"""What the hub does by itself: finish what crashes left in repositories, keep the pool of ready
checkouts filled, once a day clear away old worktrees and old events.

One task beside the serving, which it never holds up; what fails in it is logged, and tried again
with the next turn. When something was done last is in the event log, so a hub that is restarted
every hour still does it daily.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.hub.supervise import Supervisor
from bullpen.hub.threads import in_loose_thread
from bullpen.hub.trees import has_own_lock, open_site, unlock_tree
from bullpen.model.event import Draft, Event
from bullpen.model.state import Exited
from bullpen.worktrees import Cleaned

log = logging.getLogger("bullpen.hub")

DAY_SECONDS = 86400.0
LOOK_AGAIN_SECONDS = 3600.0  # a timer does not count while the machine sleeps
KEEP_EVENTS_SECONDS = 30 * DAY_SECONDS


class Job(Enum):
    """What is done once a day; the value is the kind of event that says so."""

    WORKTREES = "upkeep.worktrees"
    EVENTS = "upkeep.events"


@dataclass(frozen=True)
class Due:
    """What to do now, and after how many seconds to look again."""

    jobs: tuple[Job, ...]
    wait_seconds: float


def plan_upkeep(now: float, last: Mapping[Job, float]) -> Due:
    """What is due, given when each was done last. Pure."""
    waits = {job: _seconds_until_due(now, last.get(job)) for job in Job}
    due = tuple(job for job, wait in waits.items() if wait <= 0)
    later = [wait for wait in waits.values() if wait > 0]
    return Due(due, min([*later, LOOK_AGAIN_SECONDS]))


def _seconds_until_due(now: float, last: float | None) -> float:
    """A clock that was set back does not put it off for ever."""
    if last is None or last > now:
        return 0.0
    return max(0.0, last + DAY_SECONDS - now)


class Upkeep:
    """The task. `notice` is told of every committed event."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._taken: set[str] = set()  # agents that got a worktree, perhaps from the pool
        self._news = asyncio.Event()

    def notice(self, events: Iterable[Event]) -> None:
        """Whoever took a ready checkout from the pool left a gap in it. Called on the loop."""
        if not self.supervisor.settings.worktrees.pool:
            return
        made = {event.agent for event in events if event.kind == "worktree.created"}
        if made:
            self._taken |= made
            self._news.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        await _logged("after the start", partial(self._worktrees, is_daily=False))
        while True:
            due = Due((), LOOK_AGAIN_SECONDS)
            try:
                due = plan_upkeep(time.time(), await asyncio.to_thread(self._last))
            except BullpenError as error:
                log.error("cannot tell what is due", extra={"why": error.message})
            for job in due.jobs:
                work = self._worktrees if job is Job.WORKTREES else self._events
                await _logged(job.value, work)
            await self._wait(due.wait_seconds)

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
            await _logged("pool", self._refill)

    def _last(self) -> dict[Job, float]:
        found = {job: self.supervisor.store.last_of("", job.value) for job in Job}
        return {job: event.time for job, event in found.items() if event is not None}

    # ── events ──

    async def _events(self) -> None:
        store = self.supervisor.store
        count = await store.expire(KEEP_EVENTS_SECONDS, time.time())
        await store.append(Draft(time.time(), Job.EVENTS.value, data={"expired": count}))

    # ── worktrees ──

    async def _worktrees(self, *, is_daily: bool = True) -> None:
        """In all repositories: crashes' leftovers and safety copies past their time; once a day
        also old worktrees of ended agents."""
        turn = Turn()
        for repo in sorted(await asyncio.to_thread(self._repositories)):
            try:
                await in_loose_thread(partial(self._tend, Path(repo), is_daily, turn))
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
            await self.supervisor.store.append(*drafts)

    def _repositories(self) -> set[str]:
        """Those that sessions name, and those where copies were kept the last time."""
        places = (live.agent.worktree for live in self.supervisor.registry)
        named = {place.repo for place in places if place is not None}
        last = self.supervisor.store.last_of("", Job.WORKTREES.value)
        kept = last.data.get("with_copies", []) if last else []
        return named | {repo for repo in kept if Path(repo).is_dir()}

    def _tend(self, repo: Path, is_daily: bool, turn: "Turn") -> None:
        rules = self.supervisor.settings.worktrees
        site = open_site(self.supervisor.home, self.supervisor.settings, repo)
        turn.add(worktrees.gc(site))
        if is_daily and rules.auto_cleanup_age is not None:
            turn.add(worktrees.cleanup_orphaned(site, rules.auto_cleanup_age, self.has_ended))
        if worktrees.list_kept(site.repo):
            turn.with_copies.append(str(repo))
        worktrees.refill_in_background(site)

    def has_ended(self, name: str) -> bool:
        """Whether the worktree's agent is known to have ended, at this moment. Not if it is lost,
        cannot be read or was never there: those are a person's to judge."""
        registry = self.supervisor.registry
        live = registry.find(name)
        if live is None or name in registry.claimed or live.lock.locked():
            return False
        return isinstance(live.view.state, Exited)

    async def _lift_stale_locks(self) -> None:
        """Of agents whose repository could not be reached when they ended."""
        home, settings = self.supervisor.home, self.supervisor.settings
        for live in list(self.supervisor.registry):
            if live.is_running or live.lock.locked() or live.agent.worktree is None:
                continue
            if await in_loose_thread(partial(has_own_lock, home, settings, live.agent)):
                async with live.lock:  # and so no start comes between
                    if self.supervisor.registry.find(live.agent.name) is live:
                        await asyncio.to_thread(unlock_tree, home, settings, live.agent)

    # ── the pool ──

    async def _refill(self) -> None:
        taken, self._taken = self._taken, set()
        bases: dict[str, str] = {}
        for name in taken:
            live = self.supervisor.registry.find(name)
            if live is not None and live.agent.worktree is not None:
                bases[live.agent.worktree.repo] = name
        for repo, name in bases.items():
            await in_loose_thread(partial(self._refill_one, Path(repo), name))

    def _refill_one(self, repo: Path, name: str) -> None:
        """From where that agent began: the next one probably does, too."""
        site = open_site(self.supervisor.home, self.supervisor.settings, repo)
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


async def _logged(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Whatever fails in there is said, and goes no further."""
    try:
        await work()
    except Exception:
        log.exception("upkeep failed", extra={"what": what})
