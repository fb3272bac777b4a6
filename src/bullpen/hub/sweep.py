"""`gc`: plan what of ended agents may go, then carry out that same plan.

A session goes with its log when the agent has ended long enough ago and its worktree is gone or
goes with it; a worktree goes when it is clean and merged. With force worktrees go as well that
are not; what they lose is kept for 30 days by the worktree library. A lock is somebody's wish,
and no force of ours is against it.

Every step is decided again where it is taken: time has passed since the plan.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.hub import sessions
from bullpen.hub.holders import is_dead
from bullpen.hub.registry import Live
from bullpen.hub.supervise import Supervisor
from bullpen.hub.trees import open_site
from bullpen.model import duration
from bullpen.model.agent import Agent
from bullpen.model.event import Draft
from bullpen.model.gc import SESSION_OF_KEPT_TREE, Step, Sweeping, Swept, What
from bullpen.worktrees import Code, WorktreeError

log = logging.getLogger("bullpen.hub")

LOOK_AT_ONCE = 4
WORK = "work"  # directories of conversations, unless the agent's file names another place


async def sweep(
    supervisor: Supervisor, older_than: float, *, force: bool, dry_run: bool
) -> AsyncIterator[Sweeping | Swept]:
    """Plan, and unless it is a dry run do it. The last thing that comes is the result."""
    steps: list[Step] = []
    lives = list(supervisor.registry)
    for start in range(0, len(lives), LOOK_AT_ONCE):
        yield Sweeping(doing="looking", number=start, of=len(lives))
        plans = (
            asyncio.to_thread(plan_agent, supervisor, live, older_than, force, time.time())
            for live in lives[start : start + LOOK_AT_ONCE]
        )
        for plan in await asyncio.gather(*plans):
            steps += plan
    steps += await asyncio.to_thread(_plan_broken, supervisor)
    steps += await asyncio.to_thread(_plan_sockets, supervisor)
    if dry_run:
        yield Swept(steps=tuple(steps), done=False)
        return
    repositories = {live.agent.worktree.repo for live in lives if live.agent.worktree}
    to_remove = [step for step in steps if step.do == "remove"]
    outcomes: dict[int, Step] = {}
    for number, step in enumerate(to_remove):
        yield Sweeping(doing="removing", number=number, of=len(to_remove))
        # A caller that leaves ends this between two steps, not in one.
        task = asyncio.create_task(_carry_out(supervisor, step, force))
        supervisor.beside.finish(task)
        outcomes[id(step)] = await asyncio.shield(task)
    await asyncio.to_thread(_finish, supervisor, repositories)
    yield Swept(steps=tuple(outcomes.get(id(step), step) for step in steps), done=True)


# ── planning; in threads ──


def plan_agent(
    supervisor: Supervisor, live: Live, older_than: float, force: bool, now: float
) -> list[Step]:
    """What becomes of one agent."""
    name = live.agent.name
    why = _busy(supervisor, live)
    if not why and now - live.view.since < older_than:
        why = f"ended less than {_words(older_than)} ago"
    why = why or _work_left(supervisor, live.agent)
    if why:
        return [_keep("session", name, why)]
    if live.agent.worktree is None:
        return [_remove("session", name, "ended")]
    reason, is_locked = _reason_to_keep(supervisor, live.agent)
    if reason is None:
        return [_remove("session", name, "ended")]
    if reason and (is_locked or not force):
        return [_keep("worktree", name, reason), _keep("session", name, SESSION_OF_KEPT_TREE)]
    tree = Step(
        do="remove",
        what="worktree",
        name=name,
        why=reason or "clean and merged",
        forced=bool(reason),
    )
    return [tree, _remove("session", name, "ended")]


def _work_left(supervisor: Supervisor, agent: Agent) -> str:
    """Why the session of an agent that took tasks stays, whatever is forced: nothing else keeps
    what it left there."""
    if agent.kind != "headless":
        return ""
    work = supervisor.home.session(agent.name) / WORK
    if any(files for _place, _directories, files in os.walk(work)):
        return f"its tasks left files in {work}"
    return ""


def _busy(supervisor: Supervisor, live: Live) -> str:
    if live.lock.locked() or live.agent.name in supervisor.registry.claimed:
        return "another command is at it"
    if live.is_running:
        return "still running"
    seating = supervisor.starter.seating
    is_waited_for = seating is not None and seating.is_waited_for(live.agent.name)
    return "a task waits for it" if is_waited_for else ""


def _reason_to_keep(supervisor: Supervisor, agent: Agent) -> tuple[str | None, bool]:
    """Why its worktree stays (empty when it may go, None when there is none any more), and
    whether that is a lock."""
    place = agent.worktree
    if place is None or not os.path.lexists(place.path):
        return None, False
    try:
        site = open_site(supervisor.home, supervisor.settings, Path(place.repo))
        reason = worktrees.reason_to_keep(site, place.name)
        is_locked = worktrees.lock_reason(site, place.name) is not None
    except WorktreeError as error:
        return error.message, error.code in (Code.NOT_A_REPO, Code.LOCKED)
    if reason is None:
        return None, False
    for start in (f"{place.name} has ", f"{place.name} is "):
        reason = reason.removeprefix(start)
    return reason, is_locked


def _plan_broken(supervisor: Supervisor) -> list[Step]:
    """Sessions that cannot be read are the person's to judge."""
    registry, home = supervisor.registry, supervisor.home
    for name in list(registry.broken):
        socket = home.sockets / f"agent.{name}.sock"
        if not os.path.lexists(home.sessions / name) and is_dead(socket):
            registry.broken.pop(name, None)  # it was there when this hub began
    return [_keep("session", name, why) for name, why in sorted(registry.broken.items())]


def _plan_sockets(supervisor: Supervisor) -> list[Step]:
    """Sockets that nobody listens on and no agent's run may still want."""
    paths = sorted(supervisor.home.sockets.glob("agent.*.sock"))
    return [
        _remove("socket", path.name, "nobody listens there")
        for path in paths
        if _is_dead_socket(supervisor, path)
    ]


def _is_dead_socket(supervisor: Supervisor, path: Path) -> bool:
    name = path.name.removeprefix("agent.").removesuffix(".sock")
    live = supervisor.registry.find(name)
    if name in supervisor.registry.claimed or (live and (live.is_running or live.lock.locked())):
        return False
    try:
        return is_dead(supervisor.home.socket(name))
    except BullpenError:
        return False  # no agent is called that: not ours


# ── carrying out ──


async def _carry_out(supervisor: Supervisor, step: Step, force: bool) -> Step:
    if step.what == "socket":
        return _remove_socket(supervisor, step)
    live = supervisor.registry.find(step.name)
    if live is None:
        return step  # somebody else did it
    busy = _busy(supervisor, live)
    if busy:
        return _keep(step.what, step.name, busy)
    async with live.lock:
        try:
            if step.what == "worktree":
                return await _remove_worktree(supervisor, live.agent, step, force)
            return await _remove_session(supervisor, live.agent, step)
        except (BullpenError, OSError) as error:
            return _keep(step.what, step.name, getattr(error, "message", str(error)))


def _remove_socket(supervisor: Supervisor, step: Step) -> Step:
    """On the loop, where starts begin: none can come between the look and the act."""
    path = supervisor.home.sockets / step.name
    if not _is_dead_socket(supervisor, path):
        return _keep("socket", step.name, "in use again")
    path.unlink(missing_ok=True)
    return step


async def _remove_session(supervisor: Supervisor, agent: Agent, step: Step) -> Step:
    if agent.worktree is not None and os.path.lexists(agent.worktree.path):
        return _keep("session", step.name, SESSION_OF_KEPT_TREE)
    work = await asyncio.to_thread(_work_left, supervisor, agent)
    if work:
        return _keep("session", step.name, work)
    supervisor.registry.drop(step.name)
    await asyncio.to_thread(sessions.remove, supervisor.home, step.name)
    return step


async def _remove_worktree(supervisor: Supervisor, agent: Agent, step: Step, force: bool) -> Step:
    assert agent.worktree is not None
    reason, is_locked = await asyncio.to_thread(_reason_to_keep, supervisor, agent)
    if reason is None:
        return step
    if reason and (is_locked or not force):
        return _keep("worktree", agent.name, reason)
    site = open_site(supervisor.home, supervisor.settings, Path(agent.worktree.repo))
    await asyncio.to_thread(worktrees.remove, site, agent.worktree.name, force=bool(reason))
    data = {"path": agent.worktree.path, "branch": agent.birth_branch}
    await supervisor.store.append(Draft(time.time(), "worktree.removed", agent.name, data))
    return step.model_copy(update={"why": reason or "clean and merged", "forced": bool(reason)})


def _finish(supervisor: Supervisor, repositories: set[str]) -> None:
    """Safety copies past their time, and what crashes left."""
    for repo in sorted(repositories):
        with contextlib.suppress(WorktreeError):  # said where it mattered; it may be gone
            worktrees.gc(open_site(supervisor.home, supervisor.settings, Path(repo)))


def _keep(what: What, name: str, why: str) -> Step:
    return Step(do="keep", what=what, name=name, why=why)


def _remove(what: What, name: str, why: str) -> Step:
    return Step(do="remove", what=what, name=name, why=why)


def _words(seconds: float) -> str:
    return duration.to_text(timedelta(seconds=seconds))
