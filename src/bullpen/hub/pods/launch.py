"""Pods: all members of a template start, or none does.

A launch goes on whoever listens: the caller that asked for it, one that asked again with the
same run, or nobody. What it is about to do is on record before it begins (`agents/intent`).
"""

import asyncio
import hashlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.home.pods import load_template
from bullpen.home.ssh_link import point_ssh_agent
from bullpen.hub.agents import intent as launch_intent
from bullpen.hub.agents.intent import Intent, LaunchUndo
from bullpen.hub.agents.observe import Observer
from bullpen.hub.agents.plan import TerminalPlan
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.start import Starter
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.hub.pods.plan import PodPlan, intent_of, plan_members
from bullpen.hub.store.events import find_by_key
from bullpen.hub.store.store import Store
from bullpen.model import names
from bullpen.model.event import Draft
from bullpen.model.launch import PodLaunch
from bullpen.model.pod import Member, members_of
from bullpen.model.state import Interrupted
from bullpen.worktrees import Site, Spec

log = logging.getLogger("bullpen.hub")

Progress = dict[str, Any]


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

    def __init__(
        self,
        context: HubContext,
        store: Store,
        registry: Registry,
        observer: Observer,
        starter: Starter,
        undo: LaunchUndo,
        background: Background,
    ) -> None:
        self._context = context
        self._store = store
        self._registry = registry
        self._observer = observer
        self._starter = starter
        self._undo = undo
        self._background = background
        self.under_way: dict[str, asyncio.Future[Launching]] = {}

    async def launch(self, request: PodLaunch) -> Launching:
        """Check and resolve everything, then begin; the launch of the first time if it is asked
        for twice. Refusals come before anything is touched."""
        id = await self._id(request)
        if id in self.under_way:
            return await asyncio.shield(self.under_way[id])
        result = self.under_way[id] = asyncio.get_running_loop().create_future()
        try:
            launching = await self._find_finished(id)
            if launching is None:
                launching = await self._begin(request, id)
            else:
                del self.under_way[id]
        except BaseException as error:
            del self.under_way[id]
            result.set_exception(error)
            result.exception()  # perhaps nobody else waits for it
            raise
        result.set_result(launching)
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

    async def _id(self, request: PodLaunch) -> str:
        """The run that was asked for; of one that a killed hub never finished, the next: it was
        taken back, and is asked for again."""
        id = request.run or uuid.uuid4().hex
        while await self._was_killed(id):
            id = hashlib.sha256(id.encode()).hexdigest()[:32]
        return id

    async def _was_killed(self, id: str) -> bool:
        failed = await self._store.read(find_by_key(f"pod.failed:{id}"))
        return failed is not None and bool(failed.data.get("killed"))

    async def _find_finished(self, id: str) -> Launching | None:
        store = self._store
        begun = await store.read(find_by_key(f"launching:{id}"))
        if begun is None:
            return None
        intent = Intent.model_validate(begun.data)
        launching = Launching(id, intent.pod, is_over=True)
        failed = await store.read(find_by_key(f"pod.failed:{id}"))
        if failed is not None:
            launching.steps.append({"error": failed.data["error"]})
        elif await store.read(find_by_key(f"pod.launched:{id}")):
            launching.steps.append(_running(intent.pod))
        else:
            raise BullpenError(
                f"pod {intent.pod} is being taken back",
                hint=f"bullpen list --pod {intent.pod}",
                kind=Kind.UNAVAILABLE,
            )
        return launching

    # ── planning ──

    async def _begin(self, request: PodLaunch, id: str) -> Launching:
        home, registry = self._context.home, self._registry
        template = await asyncio.to_thread(load_template, request.template, home.pod_templates)
        pod = names.check_name("pod", request.pod or template.pod_name)
        members = members_of(template, pod, {each.agent.name: each.agent.pod for each in registry})
        runs = {member.name: uuid.uuid4().hex for member in members}
        for member in members:
            await registry.wait_cleared(member.name)
        # No await between the look and the claim: of two launches of a template, one gets it.
        self._refuse_taken_members(pod, members)
        registry.claim_all(runs)
        try:
            before = tuple(registry.find(member.name) for member in members)
            plans = await asyncio.to_thread(
                plan_members, self._context, request, template, pod, members, before, runs
            )
            plan = PodPlan(id, pod, tuple(plans), before)
            intent = await asyncio.to_thread(intent_of, plan)
            point_ssh_agent(home, request.env)
            await self._store.append(launch_intent.launching(intent))
        except BaseException:
            registry.release(runs)
            raise
        launching = Launching(id, pod)
        launching.task = asyncio.create_task(self._launch(launching, plan, intent))
        self._background.finish(launching.task)
        return launching

    def _refuse_taken_members(self, pod: str, members: Sequence[Member]) -> None:
        """Before anything is made, and with all names at once: `Starter.start` would refuse the
        first only."""
        registry = self._registry
        for member in members:
            if member.name in registry.broken:
                raise BullpenError(
                    f"{member.name}: {registry.broken[member.name]}", kind=Kind.CONFLICT
                )
        taken = [member.name for member in members if registry.is_taken(member.name)]
        if not taken:
            self._refuse_interrupted(pod, members)
            return
        live = [each for name in taken if (each := registry.find(name))]
        if len(live) == len(taken) and all(each.is_running for each in live):
            raise BullpenError(
                f"already running: {', '.join(taken)}",
                hint=f"bullpen pod stop {pod} · bullpen stop {' '.join(taken)}",
                kind=Kind.CONFLICT,
            )
        raise BullpenError(
            f"being started already: {', '.join(taken)}", hint="bullpen list", kind=Kind.CONFLICT
        )

    def _refuse_interrupted(self, pod: str, members: Sequence[Member]) -> None:
        """New conversations in place of those that a reboot cut off are a person's decision."""
        last = [live for member in members if (live := self._registry.find(member.name))]
        cut = [live.agent.name for live in last if live.view.state == Interrupted(reason="reboot")]
        if cut:
            raise BullpenError(
                f"{', '.join(cut)}: ended by a reboot, and a launch begins new conversations",
                hint=f"bullpen resume --pod {pod} · for new ones first: bullpen rm {' '.join(cut)}",
                kind=Kind.CONFLICT,
            )

    # ── carrying out ──

    async def _launch(self, launching: Launching, plan: PodPlan, intent: Intent) -> None:
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
            self._undo.release(intent)
            self.under_way.pop(launching.id, None)
            launching.end()

    async def _carry_out(self, launching: Launching, plan: PodPlan, intent: Intent) -> None:
        await launch_intent.set_aside(self._context.home, intent)
        if intent.new_trees:
            made = [tree.name for tree in intent.new_trees]
            launching.tell({"step": "making", "members": made})
            began = time.monotonic()
            await self._context.trees.run_to_end(partial(_make_trees, plan))
            await self._store.append(*_created(plan, made))
            seconds = time.monotonic() - began
            launching.tell({"step": "worktrees", "members": made, "seconds": seconds})
        if launching.is_unwanted:
            raise BullpenError(f"pod {plan.pod} was stopped while it started", kind=Kind.CONFLICT)
        began = time.monotonic()
        await self._start_all(plan)
        await self._store.append(launch_intent.outcome(intent, "pod.launched"))
        await launch_intent.forget_aside(self._context.home, intent)
        seconds = time.monotonic() - began
        launching.tell({"step": "started", "members": plan.names, "seconds": seconds})
        launching.tell(_running(plan.pod))

    async def _start_all(self, plan: PodPlan) -> None:
        async def start(member: TerminalPlan, before: LiveAgent | None) -> None:
            await self._starter.start(member, before.agent if before else None)

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
        left = await self._undo.take_back(intent, at_once=True)
        if str(left):
            message = f"{error.message} · left: {left}"
            error = BullpenError(message, hint=error.hint, kind=error.kind)
        if not left.stuck:
            failed = launch_intent.outcome(
                intent, "pod.failed", reason=error.message, error=error.to_json()
            )
            try:
                await self._store.append(failed)
            except BullpenError:  # a full disk
                self._observer.surely(failed)
        launching.tell(_failed(error))


# ── values ──


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
