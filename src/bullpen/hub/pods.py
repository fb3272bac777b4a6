"""Pods: all members of a template start, or none does.

The intent is recorded first, with the run of each member and the worktrees that are to be
made. A hub that was killed half-way finds it without an outcome and takes back what was done.
"""

import asyncio
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.hub import sessions
from bullpen.hub.launch import Plan, open_site, plan_launch
from bullpen.hub.supervise import Supervisor
from bullpen.model import names
from bullpen.model.event import Draft
from bullpen.model.launch import Launch, PodLaunch
from bullpen.model.pod import Member, PodTemplate
from bullpen.pods import load_template
from bullpen.ssh_link import point_ssh_agent
from bullpen.worktrees import Site, Spec, WorktreeError

log = logging.getLogger("bullpen.hub")

Progress = dict[str, Any]


@dataclass(frozen=True)
class PodPlan:
    """Everything a pod's start needs."""

    id: str
    pod: str
    members: tuple[Plan, ...]
    new_trees: tuple[Plan, ...]  # whose worktree is not there yet

    @property
    def names(self) -> list[str]:
        return [plan.agent.name for plan in self.members]


async def plan_pod(supervisor: Supervisor, asked: PodLaunch) -> PodPlan:
    """Check everything and resolve everything, before anything is touched."""
    template = await asyncio.to_thread(load_template, asked.template, supervisor.home.pod_templates)
    if template.workflow == "sequence":
        raise BullpenError(
            f"pod template {asked.template}: workflow: sequence needs tasks, which this version"
            " does not have",
            hint="workflow: parallel",
            kind=Kind.UNSUPPORTED,
        )
    pod = names.check_name("pod", asked.pod or template.pod_name)
    members = template.members()
    running = [
        member.name
        for member in members
        if (live := supervisor.registry.find(member.name)) and live.is_running
    ]
    if running:
        raise BullpenError(
            f"already running: {', '.join(running)}",
            hint=f"bullpen pod stop {pod} · bullpen stop {' '.join(running)}",
            kind=Kind.CONFLICT,
        )
    plans = await asyncio.to_thread(_plan_members, supervisor, asked, template, pod, members)
    new = tuple(
        plan
        for plan in plans
        if plan.tree is not None and not worktrees.exists(plan.tree.site, plan.agent.name)
    )
    return PodPlan(asked.run or uuid.uuid4().hex, pod, tuple(plans), new)


def _plan_members(
    supervisor: Supervisor,
    asked: PodLaunch,
    template: PodTemplate,
    pod: str,
    members: list[Member],
) -> list[Plan]:
    plans = []
    caller = asked.model_dump(include={"cwd", "env", "umask", "rows", "cols"})
    for member in members:
        launch = Launch(
            **caller,
            role=member.role,
            name=member.name,
            pod=pod,
            overrides=member.overrides,
            prompt=member.prompt or asked.prompt,
        )
        live = supervisor.registry.find(member.name)
        branch = f"{template.branch_prefix}/{member.name}" if template.branch_prefix else ""
        plans.append(
            plan_launch(
                supervisor.home,
                supervisor.settings,
                launch,
                member.name,
                live.agent if live else None,
                branch,
            )
        )
    return plans


async def launch_pod(
    supervisor: Supervisor, asked: PodLaunch, plan: PodPlan
) -> AsyncIterator[Progress]:
    """Carry the plan out; a line of progress per step, an error in the last if it failed."""
    point_ssh_agent(supervisor.home, asked.env)
    await supervisor.store.append(_launching(plan))
    try:
        began = time.monotonic()
        await asyncio.to_thread(_make_trees, plan)
        if plan.new_trees:
            made = [each.agent.name for each in plan.new_trees]
            yield {"step": "worktrees", "members": made, "seconds": time.monotonic() - began}
        began = time.monotonic()
        await _start_all(supervisor, plan)
        await supervisor.store.append(_outcome(plan.id, "pod.launched", plan.pod, {}))
        yield {"step": "started", "members": plan.names, "seconds": time.monotonic() - began}
    except BaseException as error:
        # Also when the caller leaves half-way: all or nothing.
        await asyncio.shield(_fail(supervisor, plan, error))
        if not isinstance(error, BullpenError):
            raise
        yield {"error": error.to_json()}
        return
    yield {"step": "running", "pod": plan.pod}


async def _fail(supervisor: Supervisor, plan: PodPlan, error: BaseException) -> None:
    for member in plan.members:
        await _take_back(supervisor, member.agent.name, member.agent.run)
    for member in plan.new_trees:
        assert member.tree is not None
        await asyncio.to_thread(_remove_tree, member.tree.site, member.agent.name)
    reason = error.message if isinstance(error, BullpenError) else type(error).__name__
    supervisor.record_surely(_outcome(plan.id, "pod.failed", plan.pod, {"reason": reason}))


def _make_trees(plan: PodPlan) -> None:
    """All new worktrees of one repository in one atomic step."""
    by_repository: dict[Path, tuple[Site, list[Spec]]] = {}
    for member in plan.new_trees:
        assert member.tree is not None
        key = member.tree.site.repo.common_dir
        by_repository.setdefault(key, (member.tree.site, []))[1].append(member.tree.spec)
    for site, specs in by_repository.values():
        worktrees.create_many(site, specs)


async def _start_all(supervisor: Supervisor, plan: PodPlan) -> None:
    async def start(member: Plan) -> None:
        live = supervisor.registry.find(member.agent.name)
        await supervisor.start(member, live.agent if live else None)

    results = await asyncio.gather(*map(start, plan.members), return_exceptions=True)
    for member, result in zip(plan.members, results, strict=True):
        if isinstance(result, BullpenError):
            raise BullpenError(
                f"{member.agent.name} cannot start: {result.message}",
                hint=result.hint,
                kind=result.kind,
            )
        if isinstance(result, BaseException):
            raise result


async def _take_back(supervisor: Supervisor, name: str, run: str) -> None:
    """End that run if it began, and remove the session that was made for it."""
    live = supervisor.registry.find(name)
    if live is None or live.agent.run != run:
        return
    await supervisor.stop(name, 0)
    supervisor.registry.drop(name)
    await asyncio.to_thread(sessions.remove, supervisor.home, name)


def _remove_tree(site: Site, name: str) -> None:
    try:
        if worktrees.exists(site, name):
            worktrees.unlock(site, name)
            worktrees.remove(site, name)
    except WorktreeError as error:  # somebody has worked in it already
        log.warning("kept a worktree", extra={"agent": name, "why": error.message})


async def recover(supervisor: Supervisor) -> None:
    """Take back pods whose start a killed hub never finished."""
    for kind, data in await asyncio.to_thread(_unfinished, supervisor):
        log.warning("taking back a pod", extra={"pod": data["pod"], "kind": kind})
        for member in data["members"]:
            await _take_back(supervisor, member["name"], member["run"])
        for tree in data["new_trees"]:
            site = open_site(supervisor.home, supervisor.settings, Path(tree["repo"]))
            await asyncio.to_thread(_remove_tree, site, tree["name"])
        reason = "the hub was killed while it started"
        await supervisor.store.append(
            _outcome(data["id"], "pod.failed", data["pod"], {"reason": reason})
        )


def _unfinished(supervisor: Supervisor) -> list[tuple[str, dict[str, Any]]]:
    kinds = ("pod.launching", "pod.launched", "pod.failed")
    open_ones: dict[str, dict[str, Any]] = defaultdict(dict)
    seen = 0
    while events := supervisor.store.after(seen, 1000, kinds=kinds):
        for event in events:
            if event.kind == "pod.launching":
                open_ones[event.data["id"]] = event.data
            else:
                open_ones.pop(event.data["id"], None)
        seen = events[-1].id
    return [("pod.launching", data) for data in open_ones.values()]


def _launching(plan: PodPlan) -> Draft:
    data = {
        "id": plan.id,
        "pod": plan.pod,
        "members": [{"name": each.agent.name, "run": each.agent.run} for each in plan.members],
        "new_trees": [
            {"name": each.agent.name, "repo": str(each.tree.site.repo.common_dir)}
            for each in plan.new_trees
            if each.tree is not None
        ],
    }
    return Draft(time.time(), "pod.launching", data=data, key=f"launching:{plan.id}")


def _outcome(id: str, kind: str, pod: str, data: dict[str, Any]) -> Draft:
    return Draft(time.time(), kind, data={"id": id, "pod": pod, **data}, key=f"{kind}:{id}")
