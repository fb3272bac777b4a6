"""When the work of sandboxed agents is brought over: soon after a commit, at the end of each turn
and run, whenever somebody asks, and once when the hub begins.

`follow` and `finish` are called by `watch` and `tasks/driver`, `bring_over` by who is about to look
at an agent's work; the rest follows from events. Work on stores has a few threads of its own, one
per store at a time: an agent whose git is slow holds nobody else up. `hub/sandbox/private_git` does
the work.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bullpen.errors import BullpenError
from bullpen.hub.agents.inotify import Watcher
from bullpen.hub.agents.observe import Observer
from bullpen.hub.agents.registry import LiveAgent, PrivateGit, Registry
from bullpen.hub.background import Background, in_daemon_thread
from bullpen.hub.context import HubContext
from bullpen.hub.sandbox import private_git
from bullpen.model.event import Draft, Event
from bullpen.sandboxes.inside import bring_over_store
from bullpen.worktrees.private.bring_over import BroughtOver
from bullpen.worktrees.private.store import PrivateStore, State, record_at

log = logging.getLogger("bullpen.hub")

AT_ONCE = 4
SOON_SECONDS, MOST_SOON_SECONDS = 0.2, 0.7  # after a commit; others may follow at once
END_SECONDS = 8.0  # so long an end of a run, or who looks, waits; the rest is in the background
NEWS = "git.news"
Work = Callable[[PrivateStore], BroughtOver | None]


class PrivateGits:
    """All of them, by the directory of the store."""

    def __init__(
        self, context: HubContext, registry: Registry, observer: Observer, background: Background
    ) -> None:
        self._home = context.home.root
        self._trees = context.trees
        self._registry = registry
        self._observer = observer
        self._background = background
        self._several = asyncio.Semaphore(AT_ONCE)
        self._locks: dict[Path, asyncio.Lock] = {}
        self._finishing: dict[Path, asyncio.Task[None]] = {}
        self._followed: dict[Path, PrivateStore] = {}  # those whose agent runs
        self._last_seconds: dict[Path, float] = {}  # that a bring-over took
        self._watcher: Watcher | None = None

    # ── called by others ──

    async def load(self) -> None:
        """What earlier hubs knew, before this one serves: `list` says it from the beginning."""
        await asyncio.to_thread(self._load)

    def _load(self) -> None:
        for live in self._registry:
            record = record_at(Path(live.agent.worktree.path)) if live.agent.worktree else None
            follow_rename(live, record.branch if record else "")
            store = private_git.find_store(self._home, live.agent)
            state = private_git.find_state(store) if store else None
            if state is not None:
                live.private_git = to_shown(state)

    async def run(self) -> None:
        """What happened while there was no hub, once."""
        for live in self._registry:
            store = await self._find(live)
            if store is not None:
                if live.is_running:
                    self.follow(live, store)
                    self._begin(live, store, private_git.catch_up)
                else:
                    task = self._begin(live, store, private_git.finish)
                    self._finishing[store.directory] = task

    def notice(self, events: list[Event]) -> None:
        """A turn that ended, an agent that began."""
        for event in events:
            is_idle = event.kind == "agent.state" and event.data["state"].get("state") == "idle"
            if is_idle or event.kind == "agent.started":
                live = self._registry.find(event.agent)
                if live is not None and not live.agent.takes_tasks and live.agent.is_sandboxed:
                    self._background.begin(self._catch_up(live), f"git of {event.agent}")

    async def bring_over(self, live: LiveAgent) -> None:
        """Somebody is about to look at what it did. What cannot be brought over is told, and no
        reason not to look. What happened outside the agent hears at its next turn or commit."""
        store = await self._find(live)
        if store is not None:
            task = self._begin(live, store, bring_over_store)
            await asyncio.wait({task}, timeout=END_SECONDS)

    def follow(self, live: LiveAgent, store: PrivateStore | None) -> None:
        """Its agent runs: from now on a commit is noticed."""
        if store is not None:
            self._followed[store.directory] = store
            self._watch(live, store)

    async def finish(self, live: LiveAgent) -> None:
        """Its program in a terminal has ended."""
        await self.finish_store(live, await self._find(live))

    async def finish_store(self, live: LiveAgent, store: PrivateStore | None) -> None:
        """Nobody uses the store any more. Returns when all is brought over, or after a while."""
        if store is None:
            return
        self._followed.pop(store.directory, None)
        self._last_seconds.pop(store.directory, None)
        task = self._begin(live, store, private_git.finish)
        self._finishing[store.directory] = task
        await asyncio.wait({task}, timeout=END_SECONDS)

    async def bring_over_store(self, live: LiveAgent, store: PrivateStore) -> None:
        """What a run that has ended left there. Returns as `finish_store` does."""
        task = self._finishing.get(store.directory)
        if task is None or task.done():  # by an earlier hub, or it failed
            task = self._begin(live, store, private_git.catch_up)
        await asyncio.wait({task}, timeout=END_SECONDS)

    async def wait_finished(self, store: PrivateStore | None) -> None:
        """Before another program uses it."""
        task = self._finishing.pop(store.directory, None) if store else None
        if task is not None:
            await asyncio.wait({task})

    async def wait_free(self, live: LiveAgent) -> None:
        """The same for an agent in a terminal."""
        await self.wait_finished(await self._find(live))

    # ── a commit ──

    def _watch(self, live: LiveAgent, store: PrivateStore) -> None:
        """git writes HEAD's log with each commit, and not else."""
        try:
            self._watcher = self._watcher or Watcher()
            logs = store.git / "worktrees" / store.id / "logs"
            self._watcher.watch_once(logs, lambda: self._changed(live, store))
        except OSError as error:  # it may have removed the directory: the end of its turn is seen
            log.warning("cannot watch a private git", extra={"why": str(error)})

    def _changed(self, live: LiveAgent, store: PrivateStore) -> None:
        if store.directory in self._followed:
            self._background.begin(self._soon(live, store), f"commit of {live.agent.name}")

    async def _soon(self, live: LiveAgent, store: PrivateStore) -> None:
        # One who commits as fast as it can costs no more than a third of a processor.
        last = self._last_seconds.get(store.directory, 0.0)
        await asyncio.sleep(min(max(SOON_SECONDS, 2 * last), MOST_SOON_SECONDS))
        if store.directory not in self._followed:
            return
        # Before the look: what is committed after it is noticed again.
        self._watch(live, store)
        began = time.monotonic()
        # Refs outside come in as well: a plain command has no turns at whose ends they would.
        await self._do(live, store, private_git.catch_up)
        self._last_seconds[store.directory] = time.monotonic() - began

    # ── doing ──

    async def _catch_up(self, live: LiveAgent) -> None:
        store = await self._find(live)
        if store is None:
            why = partial(private_git.why_read_only, live.agent)
            self.tell(live, await self._trees.run_to_end(why))
        elif live.is_running:
            if store.directory not in self._followed:
                self.follow(live, store)
            await self._do(live, store, private_git.catch_up)

    def _begin(self, live: LiveAgent, store: PrivateStore, work: Work) -> asyncio.Task[None]:
        return self._background.begin(self._do(live, store, work), f"git of {live.agent.name}")

    async def _do(self, live: LiveAgent, store: PrivateStore, work: Work) -> None:
        """One at a time for each store."""
        lock = self._locks.setdefault(store.directory, asyncio.Lock())
        async with lock, self._several:
            try:
                outcome = await in_daemon_thread(lambda: work(store))
            except (BullpenError, OSError) as error:
                self.tell(live, (f"its work was not brought over: {error}",))
                return
        if outcome is not None:
            live.private_git = to_shown(outcome.state)
            follow_rename(live, outcome.state.branch)
            self.tell(live, outcome.told)

    def tell(self, live: LiveAgent, news: Sequence[str]) -> None:
        """To whoever looks at its events, and to the agent itself (`messages/git_news`)."""
        agent = live.agent
        for text in news:
            log.warning("private git", extra={"agent": agent.name, "news": text})
            data = {"run": agent.run, "text": text}
            key = f"git:{agent.run}:{text}"
            self._observer.surely(Draft(time.time(), NEWS, agent.name, data, key))

    async def _find(self, live: LiveAgent) -> PrivateStore | None:
        find = partial(private_git.find_store, self._home, live.agent)
        return await self._trees.run_to_end(find)


def follow_rename(live: LiveAgent, branch: str) -> None:
    """A person has renamed its branch. Kept by the worktree's record, not by its session: that
    may be the next run's already."""
    agent = live.agent
    if branch and agent.birth_branch not in ("", branch):
        live.agent = agent.model_copy(update={"birth_branch": branch})


def to_shown(state: State) -> PrivateGit:
    """What `list` and `explain` say of it. Pure."""
    return PrivateGit(
        where=state.where,
        diverged=bool(state.diverged),
        refused=tuple(f"{name}: {why}" for name, why in state.refused.items()),
    )
