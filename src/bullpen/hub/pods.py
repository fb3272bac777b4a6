"""Pods: all members of a template start, or none does.

A launch goes on whoever listens: the caller that asked for it, one that asked again with the
same run, or nobody. What it is about to do is on record before it begins (`pod_intent`).
"""

import asyncio
import hashlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.hub import pod_intent
from bullpen.hub.launch import Plan, plan_launch
from bullpen.hub.pod_intent import Intent, NewTree, Starts
from bullpen.hub.registry import Live
from bullpen.hub.supervise import Supervisor
from bullpen.hub.trees import Tree
from bullpen.model import names
from bullpen.model.event import Draft
from bullpen.model.launch import Launch, PodLaunch
from bullpen.model.pod import Member, PodTemplate
from bullpen.pods import load_template
from bullpen.ssh_link import point_ssh_agent
from bullpen.worktrees import Site, Spec

log = logging.getLogger("bullpen.hub")

Progress = dict[str, Any]


@dataclass(frozen=True)
class PodPlan:
    """Everything a pod's start needs."""

    id: str
    pod: str
    members: tuple[Plan, ...]
    before: tuple[Live | None, ...]  # who had the member's name, in the same order

    @property
    def names(self) -> list[str]:
        return [plan.agent.name for plan in self.members]

    @property
    def new_trees(self) -> list[tuple[Plan, Tree]]:
        """Of members whose worktree is not there yet."""
        return [
            (plan, plan.tree)
            for plan in self.members
            if plan.tree is not None and not worktrees.exists(plan.tree.site, plan.agent.name)
        ]


@dataclass
class Launching:
    """One launch: what it has told so far, and whether that is all."""

    id: str
    pod: str = ""
    steps: list[Progress] = field(default_factory=list)
    is_over: bool = False
    is_unwanted: bool = False
    task: asyncio.Task[None] | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, step: Progress) -> None:
        self.steps.append(step)
        self._news.set()
        self._news = asyncio.Event()

    def end(self) -> None:
        if not self.steps or not {"error", "pod"} & set(self.steps[-1]):
            self.tell(_failed(BullpenError("the hub failed", hint="bullpen hub logs")))
        self.is_over = True
        self._news.set()

    async def follow(self) -> AsyncIterator[Progress]:
        """Everything that it tells, from its beginning to its end."""
        seen = 0
        while True:
            news, new = self._news, self.steps[seen:]
            for step in new:
                yield step
            seen += len(new)
            if self.is_over and seen == len(self.steps):
                return
            await news.wait()


class Pods:
    """The launches of one hub."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.under_way: dict[str, asyncio.Future[Launching]] = {}

    async def launch(self, asked: PodLaunch) -> Launching:
        """Check and resolve everything, then begin; the launch of the first time if it is asked
        for twice. Refusals come before anything is touched."""
        id = await self._id(asked)
        if id in self.under_way:
            return await asyncio.shield(self.under_way[id])
        found = self.under_way[id] = asyncio.get_running_loop().create_future()
        try:
            launching = await asyncio.to_thread(self._find_finished, id)
            if launching is None:
                launching = await self._begin(asked, id)
            else:
                del self.under_way[id]
        except BaseException as error:
            del self.under_way[id]
            found.set_exception(error)
            found.exception()  # perhaps nobody else waits for it
            raise
        found.set_result(launching)
        return launching

    async def cancel(self, pod: str) -> bool:
        """Have a launch under way fail at its next step; returns when it has, and whether
        there was one."""
        begun = [each.result() for each in self.under_way.values() if each.done()]
        meant = [each for each in begun if each.pod == pod and each.task is not None]
        for launching in meant:
            launching.is_unwanted = True
            launching.tell({"step": "stopping"})
        if meant:
            await asyncio.wait([each.task for each in meant if each.task])
        return bool(meant)

    async def _id(self, asked: PodLaunch) -> str:
        """The run that was asked for; of one that a killed hub never finished, the next: it was
        taken back, and is asked for again."""
        id = asked.run or uuid.uuid4().hex
        while await asyncio.to_thread(self._was_killed, id):
            id = hashlib.sha256(id.encode()).hexdigest()[:32]
        return id

    def _was_killed(self, id: str) -> bool:
        failed = self.supervisor.store.find_key(f"pod.failed:{id}")
        return failed is not None and bool(failed.data.get("killed"))

    def _find_finished(self, id: str) -> Launching | None:
        store = self.supervisor.store
        begun = store.find_key(f"launching:{id}")
        if begun is None:
            return None
        intent = Intent.model_validate(begun.data)
        found = Launching(id, intent.pod, is_over=True)
        failed = store.find_key(f"pod.failed:{id}")
        if failed is not None:
            found.steps.append({"error": failed.data["error"]})
        elif store.find_key(f"pod.launched:{id}"):
            found.steps.append(_running(intent.pod))
        else:
            raise BullpenError(
                f"pod {intent.pod} is being taken back",
                hint=f"bullpen list --pod {intent.pod}",
                kind=Kind.UNAVAILABLE,
            )
        return found

    # ── planning ──

    async def _begin(self, asked: PodLaunch, id: str) -> Launching:
        supervisor = self.supervisor
        template = await asyncio.to_thread(
            load_template, asked.template, supervisor.home.pod_templates
        )
        if template.workflow == "sequence":
            raise BullpenError(
                f"pod template {asked.template}: workflow: sequence needs tasks, which this"
                " version does not have",
                hint="workflow: parallel",
                kind=Kind.UNSUPPORTED,
            )
        pod = names.check_name("pod", asked.pod or template.pod_name)
        members = template.members()
        runs = {member.name: uuid.uuid4().hex for member in members}
        for member in members:
            await supervisor.starter.wait_cleared(member.name)
        # No await between the look and the claim: of two launches of a template, one gets it.
        self._refuse_taken(pod, members)
        supervisor.registry.claimed.update(runs)
        try:
            before = tuple(supervisor.registry.find(member.name) for member in members)
            plans = await asyncio.to_thread(
                _plan_members, supervisor, asked, template, pod, members, before, runs
            )
            plan = PodPlan(id, pod, tuple(plans), before)
            intent = await asyncio.to_thread(_intent, plan)
            point_ssh_agent(supervisor.home, asked.env)
            await supervisor.store.append(pod_intent.launching(intent))
        except BaseException:
            for name in runs:
                supervisor.registry.claimed.pop(name, None)
            raise
        launching = Launching(id, pod)
        launching.task = asyncio.create_task(self._launch(launching, plan, intent))
        supervisor.beside.finish(launching.task)
        return launching

    def _refuse_taken(self, pod: str, members: Sequence[Member]) -> None:
        registry = self.supervisor.registry
        for member in members:
            if member.name in registry.broken:
                raise BullpenError(
                    f"{member.name}: {registry.broken[member.name]}", kind=Kind.CONFLICT
                )
        taken = [member.name for member in members if registry.is_taken(member.name)]
        if not taken:
            return
        live = [found for name in taken if (found := registry.find(name))]
        if len(live) == len(taken) and all(each.is_running for each in live):
            raise BullpenError(
                f"already running: {', '.join(taken)}",
                hint=f"bullpen pod stop {pod} · bullpen stop {' '.join(taken)}",
                kind=Kind.CONFLICT,
            )
        raise BullpenError(
            f"being started already: {', '.join(taken)}", hint="bullpen list", kind=Kind.CONFLICT
        )

    # ── carrying out ──

    async def _launch(self, launching: Launching, plan: PodPlan, intent: Intent) -> None:
        supervisor = self.supervisor
        try:
            await self._carry_out(launching, plan, intent)
        except asyncio.CancelledError:
            # The hub stops. As after a crash, the next one takes everything back.
            launching.tell(_failed(BullpenError("the hub stopped", kind=Kind.UNAVAILABLE)))
            raise
        except BullpenError as error:
            await self._fail(launching, intent, error)
        except Exception as error:
            log.exception("a pod could not be launched", extra={"pod": plan.pod})
            wrapped = BullpenError(
                f"the hub failed ({type(error).__name__}); its log says where",
                kind=Kind.COMMAND_FAILED,
            )
            await self._fail(launching, intent, wrapped)
        finally:
            pod_intent.release(supervisor, intent)
            self.under_way.pop(launching.id, None)
            launching.end()

    async def _carry_out(self, launching: Launching, plan: PodPlan, intent: Intent) -> None:
        supervisor = self.supervisor
        await pod_intent.set_aside(supervisor, intent)
        if intent.new_trees:
            made = [tree.name for tree in intent.new_trees]
            launching.tell({"step": "making", "members": made})
            began = time.monotonic()
            await asyncio.to_thread(_make_trees, plan)
            await supervisor.store.append(*_created(plan, made))
            seconds = time.monotonic() - began
            launching.tell({"step": "worktrees", "members": made, "seconds": seconds})
        if launching.is_unwanted:
            raise BullpenError(f"pod {plan.pod} was stopped while it started", kind=Kind.CONFLICT)
        began = time.monotonic()
        await self._start_all(plan)
        await supervisor.store.append(pod_intent.outcome(intent, "pod.launched"))
        await pod_intent.forget_aside(supervisor, intent)
        seconds = time.monotonic() - began
        launching.tell({"step": "started", "members": plan.names, "seconds": seconds})
        launching.tell(_running(plan.pod))

    async def _start_all(self, plan: PodPlan) -> None:
        async def start(member: Plan, before: Live | None) -> None:
            await self.supervisor.starter.start(member, before.agent if before else None)

        work = (start(member, live) for member, live in zip(plan.members, plan.before, strict=True))
        results = await asyncio.gather(*work, return_exceptions=True)
        failed = [
            (member.agent.name, result)
            for member, result in zip(plan.members, results, strict=True)
            if isinstance(result, BaseException)
        ]
        for name, result in failed:
            if not isinstance(result, BullpenError):
                raise result
            others = [other for other, _ in failed if other != name]
            also = f" · neither can {', '.join(others)}" if others else ""
            raise BullpenError(
                f"{name} cannot start: {result.message}{also}", hint=result.hint, kind=result.kind
            )

    async def _fail(self, launching: Launching, intent: Intent, error: BullpenError) -> None:
        left = await pod_intent.take_back(self.supervisor, intent, at_once=True)
        if str(left):
            message = f"{error.message} · left: {left}"
            error = BullpenError(message, hint=error.hint, kind=error.kind)
        if not left.stuck:
            failed = pod_intent.outcome(
                intent, "pod.failed", reason=error.message, error=error.to_json()
            )
            try:
                await self.supervisor.store.append(failed)
            except BullpenError:  # a full disk
                self.supervisor.record.surely(failed)
        launching.tell(_failed(error))


# ── values ──


def _plan_members(
    supervisor: Supervisor,
    asked: PodLaunch,
    template: PodTemplate,
    pod: str,
    members: Sequence[Member],
    before: Sequence[Live | None],
    runs: dict[str, str],
) -> list[Plan]:
    plans = []
    caller = asked.model_dump(include={"cwd", "env", "umask", "rows", "cols"})
    for member, live in zip(members, before, strict=True):
        launch = Launch(
            **caller,
            run=runs[member.name],
            role=member.role,
            name=member.name,
            pod=pod,
            overrides=member.overrides,
            prompt=joined_prompt(member.prompt, asked.prompt),
        )
        branch = f"{template.branch_prefix}/{member.name}" if template.branch_prefix else ""
        last = live.agent if live else None
        try:
            plan = plan_launch(supervisor.ground, launch, member.name, last, branch)
            agent = plan.agent.model_copy(update={"pod_budget": template.budget})
            plan = replace(plan, agent=agent)
        except BullpenError as error:
            raise BullpenError(
                f"{member.name}: {error.message}",
                hint=error.hint,
                kind=error.kind,
                details=error.details,
            ) from error
        plans.append(plan)
    return plans


def joined_prompt(own: str | None, given: str) -> str:
    """What a member is told first: what the template has for it, then what all are told."""
    return "\n\n".join(part.strip("\n") for part in (own or "", given) if part.strip())


def _intent(plan: PodPlan) -> Intent:
    return Intent(
        id=plan.id,
        pod=plan.pod,
        members=tuple(
            Starts(name=each.agent.name, run=each.agent.run, before=live.view if live else None)
            for each, live in zip(plan.members, plan.before, strict=True)
        ),
        new_trees=tuple(
            NewTree(
                name=each.agent.name,
                repo=str(tree.site.repo.common_dir),
                run=each.agent.run,
                new_branch=tree.new_branch,
            )
            for each, tree in plan.new_trees
        ),
    )


def _make_trees(plan: PodPlan) -> None:
    """All worktrees of one repository in one atomic step; those that are there are checked."""
    by_repository: dict[Path, tuple[Site, list[Spec]]] = {}
    for member in plan.members:
        if member.tree is not None:
            site, spec = member.tree.site, member.tree.made_for(member.agent.run)
            by_repository.setdefault(site.repo.common_dir, (site, []))[1].append(spec)
    for site, specs in by_repository.values():
        worktrees.ensure_many(site, specs)


def _created(plan: PodPlan, made: Sequence[str]) -> list[Draft]:
    return [
        Draft(
            time.time(),
            "worktree.created",
            each.agent.name,
            {
                "run": each.agent.run,
                "pod": plan.pod,
                "path": each.agent.worktree.path,
                "branch": each.agent.birth_branch,
            },
            key=f"created:{each.agent.run}",
        )
        for each in plan.members
        if each.agent.name in made and each.agent.worktree is not None
    ]


def _running(pod: str) -> Progress:
    return {"step": "running", "pod": pod}


def _failed(error: BullpenError) -> Progress:
    return {"error": error.to_json()}
