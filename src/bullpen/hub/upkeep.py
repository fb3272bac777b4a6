"""What the hub does by itself: finish what crashes left in repositories, once a day clear away.

One task beside the serving, which it never holds up; what fails in it is logged. When the last
daily round was is in the event log, so a hub that is restarted every hour still does it daily.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.hub.supervise import Supervisor
from bullpen.hub.trees import open_site
from bullpen.model.agent import Place
from bullpen.model.event import Draft, Event
from bullpen.worktrees import Site

log = logging.getLogger("bullpen.hub")

T = TypeVar("T")

DAY_SECONDS = 86400.0
EVENTS_SECONDS = 30 * DAY_SECONDS
TREES, EVENTS = "upkeep.worktrees", "upkeep.events"


def seconds_until_due(now: float, last: float | None) -> float:
    """How long until the daily round; a clock that was set back does not put it off for ever."""
    if last is None or last > now:
        return 0.0
    return max(0.0, last + DAY_SECONDS - now)


class Upkeep:
    """The task. `notice` is told of every committed event."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._tasks: set[asyncio.Task[None]] = set()

    def notice(self, events: list[Event]) -> None:
        """Whoever took a ready checkout from the pool left a gap in it."""
        for event in events:
            live = self.supervisor.registry.find(event.agent)
            if event.kind == "worktree.created" and live is not None and live.agent.worktree:
                task = asyncio.get_running_loop().create_task(self._refill(live.agent.worktree))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _refill(self, place: Place) -> None:
        site = await _logged(_site, self.supervisor, place.repo)
        if site is not None:
            await _logged(worktrees.refill_in_background, site)

    async def run(self) -> None:
        """Until it is cancelled."""
        for site in await asyncio.to_thread(sites, self.supervisor):
            await _logged(worktrees.gc, site)
        while True:
            event = await asyncio.to_thread(self.supervisor.store.last_of, "", EVENTS)
            await asyncio.sleep(seconds_until_due(time.time(), event.time if event else None))
            await self.daily()

    async def daily(self) -> None:
        """One round: worktrees of agents that ended long ago, then events past their time."""
        supervisor = self.supervisor
        age = supervisor.settings.worktrees.auto_cleanup_age
        if age is not None:
            ended = {live.agent.name for live in supervisor.registry if not live.is_running}
            removed: list[str] = []
            for site in await asyncio.to_thread(sites, supervisor):
                cleaned = await _logged(worktrees.cleanup_orphaned, site, age, ended.__contains__)
                removed += cleaned.worktrees if cleaned else []
            await supervisor.store.append(Draft(time.time(), TREES, data={"removed": removed}))
        now = time.time()
        expired = await supervisor.store.expire(EVENTS_SECONDS, now)
        await supervisor.store.append(Draft(now, EVENTS, data={"expired": expired}))


def sites(supervisor: Supervisor) -> list[Site]:
    """Of every repository that an agent has a worktree of."""
    places = (live.agent.worktree for live in supervisor.registry)
    found = []
    for repo in sorted({place.repo for place in places if place is not None}):
        try:
            found.append(_site(supervisor, repo))
        except BullpenError as error:
            log.warning(
                "cannot look after a repository", extra={"repo": repo, "why": error.message}
            )
    return found


def _site(supervisor: Supervisor, repo: str) -> Site:
    return open_site(supervisor.home, supervisor.settings, Path(repo))


async def _logged(work: Callable[..., T], *arguments: Any) -> T | None:
    """In a thread; its result, or None when it failed."""
    try:
        return await asyncio.to_thread(work, *arguments)
    except (BullpenError, OSError) as error:
        log.warning("upkeep failed", extra={"what": work.__name__, "why": str(error)})
        return None
