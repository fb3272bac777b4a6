"""`gc`: plan what of ended agents may go, then carry out that same plan.

A session goes with its log when the agent has ended long enough ago and its worktree is gone or
goes with it; a worktree goes when it is clean and merged. With force worktrees go as well that
are not; what they lose is kept for 30 days by the worktree library.
"""

import asyncio
import contextlib
import time
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.hub import sessions
from bullpen.hub.holders import is_dead
from bullpen.hub.registry import Live
from bullpen.hub.supervise import Supervisor
from bullpen.hub.trees import open_site
from bullpen.model.agent import Agent
from bullpen.model.event import Draft
from bullpen.model.gc import Step, Swept, What


async def sweep(supervisor: Supervisor, older_than: float, *, force: bool, dry_run: bool) -> Swept:
    """Plan, and unless it is a dry run do it. Every step is decided again where it is taken."""
    steps: list[Step] = []
    for live in supervisor.registry:
        steps += await asyncio.to_thread(
            plan_agent, supervisor, live, older_than, force, time.time()
        )
    steps += await asyncio.to_thread(_dead_sockets, supervisor)
    if dry_run:
        return Swept(steps=tuple(steps), done=False)
    done: list[Step] = []
    for step in steps:
        done.append(await _carry_out(supervisor, step, force) if step.do == "remove" else step)
    return Swept(steps=tuple(done), done=True)


def plan_agent(
    supervisor: Supervisor, live: Live, older_than: float, force: bool, now: float
) -> list[Step]:
    """What becomes of one agent."""
    name = live.agent.name
    if live.is_running:
        return [_keep("session", name, "still running")]
    ended = now - live.view.since
    if ended < older_than:
        return [_keep("session", name, f"ended less than {_days(older_than)} ago")]
    if live.agent.worktree is None:
        return [_remove("session", name, "ended")]
    reason = _reason_to_keep(supervisor, live.agent)
    if reason is None:
        return [_remove("session", name, "ended")]
    if reason and not force:
        return [_keep("worktree", name, reason), _keep("session", name, "its worktree is kept")]
    return [
        _remove("worktree", name, reason or "clean and merged"),
        _remove("session", name, "ended"),
    ]


def _reason_to_keep(supervisor: Supervisor, agent: Agent) -> str | None:
    """Why its worktree stays; empty when it may go, None when there is none any more."""
    assert agent.worktree is not None
    try:
        site = open_site(supervisor.home, supervisor.settings, Path(agent.worktree.repo))
        return worktrees.reason_to_keep(site, agent.worktree.name)
    except BullpenError as error:
        return error.message


async def _carry_out(supervisor: Supervisor, step: Step, force: bool) -> Step:
    try:
        if step.what == "socket":
            await asyncio.to_thread(_remove_socket, supervisor.home.sockets / step.name)
            return step
        live = supervisor.registry.get(step.name)
        if live.lock.locked():
            return _keep(step.what, step.name, "it is being started")
        async with live.lock:
            if live.is_running:
                return _keep(step.what, step.name, "still running")
            if step.what == "worktree":
                await _remove_worktree(supervisor, live.agent, force)
            elif not await asyncio.to_thread(_has_worktree, live.agent):
                supervisor.registry.drop(step.name)
                await asyncio.to_thread(sessions.remove, supervisor.home, step.name)
            else:
                return _keep("session", step.name, "its worktree is kept")
    except BullpenError as error:
        return _keep(step.what, step.name, error.message)
    return step


async def _remove_worktree(supervisor: Supervisor, agent: Agent, force: bool) -> None:
    assert agent.worktree is not None
    site = open_site(supervisor.home, supervisor.settings, Path(agent.worktree.repo))
    await asyncio.to_thread(worktrees.remove, site, agent.worktree.name, force=force)
    data = {"path": agent.worktree.path, "branch": agent.birth_branch}
    await supervisor.store.append(Draft(time.time(), "worktree.removed", agent.name, data))


def _has_worktree(agent: Agent) -> bool:
    return agent.worktree is not None and Path(agent.worktree.path).exists()


def _dead_sockets(supervisor: Supervisor) -> list[Step]:
    """Sockets that nobody listens on and no agent's run may still want."""
    found = []
    for path in sorted(supervisor.home.sockets.glob("agent.*.sock")):
        name = path.name.removeprefix("agent.").removesuffix(".sock")
        live = supervisor.registry.find(name)
        if (live is None or not live.is_running) and is_dead(supervisor.home.socket(name)):
            found.append(_remove("socket", path.name, "its agent is gone"))
    return found


def _remove_socket(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def _keep(what: What, name: str, why: str) -> Step:
    return Step(do="keep", what=what, name=name, why=why)


def _remove(what: What, name: str, why: str) -> Step:
    return Step(do="remove", what=what, name=name, why=why)


def _days(seconds: float) -> str:
    return f"{seconds / 86400:g} days" if seconds >= 86400 else f"{seconds:g} s"
