"""`gc`: plan what of ended agents may go, then carry out that same plan.

A session goes with its log when the agent has ended long enough ago and its worktree is gone or
goes with it; a worktree goes when it is clean and merged. With force worktrees go as well that
are not; what they lose is kept for 30 days by the worktree library. `--force` never
removes a locked worktree.

Every step is decided again where it is taken: time has passed since the plan.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.hub.agents import sessions
from bullpen.hub.agents.kinds import Kinds
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.worktrees import open_site, site_of
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.hub.holders.link import is_dead
from bullpen.hub.store.store import Store
from bullpen.model import duration
from bullpen.model.agent import Agent
from bullpen.model.event import Draft
from bullpen.model.gc import SESSION_OF_KEPT_TREE, GcPlan, GcProgress, GcStep, What
from bullpen.worktrees import Code, WorktreeError

log = logging.getLogger("bullpen.hub")

LOOK_AT_ONCE = 4


class Gc:
    """The clean-up of one hub. Called by the route for `gc`. `store_usage`,
    `end_messages` and `cancel_landings`: as `Remover` has them."""

    def __init__(
        self,
        context: HubContext,
        store: Store,
        registry: Registry,
        background: Background,
        kinds: Kinds,
        private_gits: PrivateGits,
        store_usage: Callable[[], Awaitable[None]],
        end_messages: Callable[[str], Awaitable[None]],
        cancel_landings: Callable[[str], Awaitable[None]],
    ) -> None:
        self._home = context.home
        self._context = context
        self._trees = context.trees
        self._store = store
        self._registry = registry
        self._background = background
        self._kinds = kinds
        self._private_gits = private_gits
        self._store_usage = store_usage
        self._end_messages = end_messages
        self._cancel_landings = cancel_landings

    async def collect(
        self, older_than: float, *, force: bool, dry_run: bool
    ) -> AsyncIterator[GcProgress | GcPlan]:
        """Plan, and unless it is a dry run do it. The last thing that comes is the result."""
        steps: list[GcStep] = []
        lives = list(self._registry)
        for start in range(0, len(lives), LOOK_AT_ONCE):
            yield GcProgress(doing="looking", number=start, of=len(lives))
            for live in lives[start : start + LOOK_AT_ONCE]:
                await self._private_gits.bring_over(live)
            plans = (
                self._trees.run(
                    live.agent.name,
                    partial(self.plan_agent, live, older_than, force, time.time()),
                )
                for live in lives[start : start + LOOK_AT_ONCE]
            )
            for plan in await asyncio.gather(*plans):
                steps += plan
        steps += await asyncio.to_thread(self._plan_broken)
        steps += await asyncio.to_thread(self._plan_sockets)
        if dry_run:
            yield GcPlan(steps=tuple(steps), done=False)
            return
        repositories = {live.agent.worktree.repo for live in lives if live.agent.worktree}
        to_remove = [step for step in steps if step.do == "remove"]
        outcomes: dict[int, GcStep] = {}
        for number, step in enumerate(to_remove):
            yield GcProgress(doing="removing", number=number, of=len(to_remove))
            # A caller that leaves ends this between two steps, not in one.
            task = asyncio.create_task(self._carry_out(step, force))
            self._background.finish(task)
            outcomes[id(step)] = await asyncio.shield(task)
        await asyncio.to_thread(self._finish, repositories)
        yield GcPlan(steps=tuple(outcomes.get(id(step), step) for step in steps), done=True)

    # ── planning; in threads ──

    def plan_agent(
        self, live: LiveAgent, older_than: float, force: bool, now: float
    ) -> list[GcStep]:
        """What becomes of one agent."""
        name = live.agent.name
        why = self._busy(live)
        if not why and now - live.view.since < older_than:
            why = f"ended less than {_words(older_than)} ago"
        why = why or self._kinds[live.agent.kind].reason_to_keep(live.agent)
        if why:
            return [_keep("session", name, why)]
        if live.agent.worktree is None:
            return [_remove("session", name, "ended")]
        reason, is_locked = self._reason_to_keep(live.agent)
        if reason is None:
            return [_remove("session", name, "ended")]
        if reason and (is_locked or not force):
            return [_keep("worktree", name, reason), _keep("session", name, SESSION_OF_KEPT_TREE)]
        tree = GcStep(
            do="remove",
            what="worktree",
            name=name,
            why=reason or "clean and merged",
            forced=bool(reason),
        )
        return [tree, _remove("session", name, "ended")]

    def _busy(self, live: LiveAgent) -> str:
        if live.lock.locked() or self._registry.is_claimed(live.agent.name):
            return "another command is at it"
        if live.is_running:
            return "still running"
        return ""

    def _reason_to_keep(self, agent: Agent) -> tuple[str | None, bool]:
        """Why its worktree stays (empty when it may go, None when there is none any more), and
        whether that is a lock."""
        worktree = agent.worktree
        if worktree is None or not os.path.lexists(worktree.path):
            return None, False
        try:
            site = site_of(self._home, self._context.settings, worktree)
            reason = worktrees.reason_to_keep(site, worktree.name)
            is_locked = worktrees.lock_reason(site, worktree.name) is not None
        except WorktreeError as error:
            return error.message, error.code in (Code.NOT_A_REPO, Code.LOCKED)
        if reason is None:
            return None, False
        for start in (f"{worktree.name} has ", f"{worktree.name} is "):
            reason = reason.removeprefix(start)
        return reason, is_locked

    def _plan_broken(self) -> list[GcStep]:
        """Sessions that cannot be read are the person's to judge."""
        registry, home = self._registry, self._home
        for name in list(registry.broken):
            socket = home.sockets / f"agent.{name}.sock"
            if not os.path.lexists(home.sessions / name) and is_dead(socket):
                registry.forget_broken(name)  # it was there when this hub began
        return [_keep("session", name, why) for name, why in sorted(registry.broken.items())]

    def _plan_sockets(self) -> list[GcStep]:
        """Sockets that nobody listens on and no agent's run may still want."""
        paths = sorted(self._home.sockets.glob("agent.*.sock"))
        return [
            _remove("socket", path.name, "nobody listens there")
            for path in paths
            if self._is_dead_socket(path)
        ]

    def _is_dead_socket(self, path: Path) -> bool:
        name = path.name.removeprefix("agent.").removesuffix(".sock")
        live = self._registry.find(name)
        if self._registry.is_claimed(name) or (live and (live.is_running or live.lock.locked())):
            return False
        try:
            return is_dead(self._home.socket(name))
        except BullpenError:
            return False  # no agent is called that: not ours

    # ── carrying out ──

    async def _carry_out(self, step: GcStep, force: bool) -> GcStep:
        if step.what == "socket":
            return self._remove_socket(step)
        live = self._registry.find(step.name)
        if live is None:
            return step  # somebody else did it
        busy = self._busy(live)
        if busy:
            return _keep(step.what, step.name, busy)
        async with live.lock:
            try:
                if step.what == "worktree":
                    return await self._remove_worktree(live.agent, step, force)
                return await self._remove_session(live.agent, step)
            except (BullpenError, OSError) as error:
                return _keep(step.what, step.name, getattr(error, "message", str(error)))

    def _remove_socket(self, step: GcStep) -> GcStep:
        """On the loop, where starts begin: none can come between the look and the act."""
        path = self._home.sockets / step.name
        if not self._is_dead_socket(path):
            return _keep("socket", step.name, "in use again")
        path.unlink(missing_ok=True)
        return step

    async def _remove_session(self, agent: Agent, step: GcStep) -> GcStep:
        if agent.worktree is not None and os.path.lexists(agent.worktree.path):
            return _keep("session", step.name, SESSION_OF_KEPT_TREE)
        kind = self._kinds[agent.kind]
        why = await asyncio.to_thread(kind.reason_to_keep, agent)
        if why:
            return _keep("session", step.name, why)
        await self._store_usage()
        await asyncio.to_thread(sessions.remove, self._home, step.name)
        try:
            await self._end_messages(step.name)
        finally:
            self._registry.drop(step.name)  # last, as `Remover` does it
        return step

    async def _remove_worktree(self, agent: Agent, step: GcStep, force: bool) -> GcStep:
        assert agent.worktree is not None
        look = partial(self._reason_to_keep, agent)
        reason, is_locked = await self._trees.run(agent.name, look)
        if reason is None:
            return step
        if reason and (is_locked or not force):
            return _keep("worktree", agent.name, reason)
        await self._trees.run(agent.name, partial(self._remove_tree, agent, bool(reason)))
        data = {"path": agent.worktree.path, "branch": agent.birth_branch}
        await self._store.append(Draft(time.time(), "worktree.removed", agent.name, data))
        await self._cancel_landings(agent.name)
        return step.model_copy(update={"why": reason or "clean and merged", "forced": bool(reason)})

    def _remove_tree(self, agent: Agent, force: bool) -> None:
        assert agent.worktree is not None
        site = site_of(self._home, self._context.settings, agent.worktree)
        worktrees.remove(site, agent.worktree.name, force=force)

    def _finish(self, repositories: set[str]) -> None:
        """Safety copies past their time, and what crashes left."""
        for repo in sorted(repositories):
            with contextlib.suppress(WorktreeError):  # said where it mattered; it may be gone
                worktrees.gc(open_site(self._home, self._context.settings, Path(repo)))


def _keep(what: What, name: str, why: str) -> GcStep:
    return GcStep(do="keep", what=what, name=name, why=why)


def _remove(what: What, name: str, why: str) -> GcStep:
    return GcStep(do="remove", what=what, name=name, why=why)


def _words(seconds: float) -> str:
    return duration.to_text(timedelta(seconds=seconds))
