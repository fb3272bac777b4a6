"""Starts the children of an agent: all that were asked for, or none.

Called by the tools of agents (`hub/mcp`) and by `hub/fleet_children`, which has children of agents
of other machines started here (`take_in`), and those of agents of this one there
(`plan_elsewhere`). The rules are pure (`model/tree`, `model/rights`); what
is about to be done is on record first (`agents/intent`), so that a hub that is killed half-way
leaves nothing: the next one takes it back. The same request asked again gives the same children,
also of the next hub. Never asks who calls: the caller is given.
"""

import asyncio
import hashlib
import logging
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bullpen.errors import BullpenError, Kind
from bullpen.home.overrides import load_changed_role
from bullpen.hub.agents import intent as launch_intent
from bullpen.hub.agents import sessions
from bullpen.hub.agents.birth import Birth
from bullpen.hub.agents.intent import Intent, LaunchUndo, MemberStart, NewTree
from bullpen.hub.agents.observe import Observer
from bullpen.hub.agents.plan import TerminalPlan, plan_launch
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.start import Starter
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.hub.store.events import find_by_key
from bullpen.hub.store.store import Store
from bullpen.hub.tree.branch_point import BranchPoint, find_branch_point
from bullpen.hub.tree.children import Children
from bullpen.model import names
from bullpen.model.agent import Agent
from bullpen.model.launch import Launch
from bullpen.model.rights import Rights, least_budget, lower, rights_of
from bullpen.model.role import Budget, Engine
from bullpen.model.tree import (
    Limits,
    refuse_agents,
    refuse_children,
    refuse_too_many,
    subtree_branch,
    worker_name,
)

log = logging.getLogger("bullpen.hub")

LOOK_SECONDS = 0.2
TASK_BYTES = 100 << 10  # it is a word of a command line
NO_MONEY = "nothing of your budget is left to give: it is spent, or your children have it"


@dataclass(frozen=True)
class ChildWish:
    """One child that is asked for. `branch`: of a subtree; a worker has a `name`."""

    task: str
    name: str = ""
    branch: str = ""
    role: str = ""
    engine: Engine | None = None


@dataclass(frozen=True)
class PlanElsewhere:
    """What a child on another machine is born with."""

    branch: str
    name: str
    role: str
    depth: int
    ceiling: Rights
    point: BranchPoint


Share = Callable[[Agent, int], Budget | None]


class Spawner:
    """The children that agents of one hub start. `share` says what of an agent's budget each of so
    many new children gets; None: there is nothing left. `count_elsewhere` says how many of an
    agent's children live on other machines."""

    def __init__(
        self,
        context: HubContext,
        store: Store,
        registry: Registry,
        observer: Observer,
        starter: Starter,
        undo: LaunchUndo,
        private_gits: PrivateGits,
        children: Children,
        background: Background,
        share: Share,
        count_elsewhere: Callable[[str], int],
    ) -> None:
        self._context = context
        self._home = context.home
        self._store = store
        self._registry = registry
        self._observer = observer
        self._starter = starter
        self._undo = undo
        self._private_gits = private_gits
        self._children = children
        self._background = background
        self._share = share
        self._count_elsewhere = count_elsewhere
        self._under_way: dict[str, asyncio.Task[list[LiveAgent]]] = {}
        self._deciding = asyncio.Lock()  # limits are looked at and names claimed by one at a time

    async def spawn(
        self, caller: LiveAgent, wishes: Sequence[ChildWish], request: str
    ) -> list[LiveAgent]:
        """Start them; the same ones if the request is known. Goes on if nobody waits any more."""
        first = id_of(caller.agent, request)
        return await self._once(first, lambda id: self._spawn(caller, wishes, id))

    async def was_asked(self, id: str) -> bool:
        """Whether that request was for children here."""
        return await self._store.read(find_by_key(f"launching:{id}")) is not None

    async def _once(
        self, first: str, spawn: Callable[[str], Coroutine[Any, Any, list[LiveAgent]]]
    ) -> list[LiveAgent]:
        id = await self._id(first)
        if id not in self._under_way:
            task = asyncio.create_task(spawn(id))
            self._under_way[id] = task
            task.add_done_callback(lambda _: self._under_way.pop(id, None))
            self._background.finish(task)
        return await asyncio.shield(self._under_way[id])

    async def _id(self, id: str) -> str:
        """Of the request; if a killed hub never finished it, of the next try, when what that hub
        began is taken back."""
        while True:
            failed = await self._store.read(find_by_key(f"spawn.failed:{id}"))
            if failed is not None and failed.data.get("killed"):
                id = hashlib.sha256(id.encode()).hexdigest()[:32]
            elif failed is None and await self._is_being_taken_back(id):
                await asyncio.sleep(LOOK_SECONDS)
            else:
                return id

    async def _is_being_taken_back(self, id: str) -> bool:
        """Whether an earlier hub began it, and this one is at undoing that."""
        launched = await self._store.read(find_by_key(f"spawn.launched:{id}"))
        if id in self._under_way or launched is not None:
            return False
        return await self._store.read(find_by_key(f"launching:{id}")) is not None

    async def _spawn(
        self, caller: LiveAgent, wishes: Sequence[ChildWish], id: str
    ) -> list[LiveAgent]:
        known = await self._find_finished(id)
        if known is not None:
            return known
        for wish in wishes:
            _check_task(wish.task)
        point = (
            await self._find_branch_point(caller) if any(wish.branch for wish in wishes) else None
        )
        return await self._launch(id, caller.agent, lambda: self._plan(caller.agent, wishes, point))

    async def _launch(
        self, id: str, parent: Agent, plan: Callable[[], Awaitable[list[TerminalPlan]]]
    ) -> list[LiveAgent]:
        """Start what is planned: all or none."""
        async with self._deciding:
            plans = await plan()
            intent = _intent_of(id, parent, plans)
            try:
                await self._store.append(launch_intent.launching(intent))
            except BaseException:
                self._undo.release(intent)
                raise
            starts = [asyncio.create_task(self._starter.start(plan, None)) for plan in plans]
            await self._wait_counted(plans, starts)
        try:
            started = await self._carry_out(plans, starts, intent)
        except asyncio.CancelledError:
            raise  # the hub stops: the next one takes everything back
        except BullpenError as error:
            raise await self._take_back(intent, error) from error
        except Exception as error:
            log.exception("children could not be started", extra={"agent": parent.name})
            failed = BullpenError(
                f"the hub failed ({type(error).__name__}); its log says where",
                kind=Kind.COMMAND_FAILED,
            )
            raise await self._take_back(intent, failed) from error
        finally:
            self._undo.release(intent)
        for live in started:
            await self._children.tell_early_end(live)
        return started

    async def _wait_counted(
        self, plans: Sequence[TerminalPlan], starts: Sequence[asyncio.Task[LiveAgent]]
    ) -> None:
        """Until the registry has them all: who is decided about next counts them, and their part
        of the budget. Every start begins with that."""
        for plan, start in zip(plans, starts, strict=True):
            while self._registry.find(plan.agent.name) is None and not start.done():
                await asyncio.sleep(0)

    async def _find_finished(self, id: str) -> list[LiveAgent] | None:
        """The children of a request that was answered before; what it failed with is raised."""
        launched = await self._store.read(find_by_key(f"spawn.launched:{id}"))
        if launched is not None:
            return [self._registry.get(name) for name in launched.data["names"]]
        failed = await self._store.read(find_by_key(f"spawn.failed:{id}"))
        if failed is not None:
            raise BullpenError(str(failed.data["reason"]), kind=Kind.CONFLICT)
        return None

    # ── deciding ──

    async def _find_branch_point(self, caller: LiveAgent) -> BranchPoint:
        """The caller's commit, with what it committed in its sandbox."""
        owner = self._find_owner(caller)
        await self._private_gits.bring_over(owner)
        find = partial(find_branch_point, self._context, caller.agent, owner.agent)
        return await self._context.trees.look(caller.agent.name, "branch point", find)

    def _find_owner(self, caller: LiveAgent) -> LiveAgent:
        """Whose worktree it works in: its own, or that of the agent whose worker it is."""
        if caller.agent.worktree is not None:
            return caller
        cwd = Path(caller.agent.cwd)
        for live in self._registry:
            tree = live.agent.worktree
            if tree is not None and cwd.is_relative_to(tree.path):
                return live
        return caller

    async def _plan(
        self, caller: Agent, wishes: Sequence[ChildWish], point: BranchPoint | None
    ) -> list[TerminalPlan]:
        """All plans, their names claimed. Refusals come before anything is touched."""
        _refuse_task_agent(caller)
        limits, count = await asyncio.to_thread(self._limits_of, caller), len(wishes)
        family, elsewhere = self._children.family(), self._count_elsewhere(caller.name)
        refuse_too_many(family, self._list_running(), caller.name, count, limits, elsewhere)
        ceiling = await asyncio.to_thread(self._ceiling, caller, len(wishes))
        called = [_name_of(caller, wish, point) for wish in wishes]
        depth = family.depth(caller.name) + 1
        births = [_birth(caller, ceiling, depth, wish, point) for wish in wishes]
        async with self._claimed(called) as runs:
            return [
                await asyncio.to_thread(self._plan_one, caller, wish, name, runs[name], birth)
                for wish, name, birth in zip(wishes, called, births, strict=True)
            ]

    @asynccontextmanager
    async def _claimed(self, called: Sequence[str]) -> AsyncIterator[dict[str, str]]:
        """The run of each name, which nobody else may use from now on, unless the block fails."""
        runs = {name: uuid.uuid4().hex for name in called}
        if len(runs) < len(called):
            raise BullpenError("two of them have the same name", hint="give each its own name")
        for name in called:
            await self._registry.wait_cleared(name)
            self._refuse_known(name)
        self._registry.claim_all(runs)
        try:
            yield runs
        except BaseException:
            self._registry.release(runs)
            raise

    def _limits(self) -> Limits:
        settings = self._context.settings
        return Limits(settings.worktrees.max_depth, settings.max_children, settings.max_agents)

    def _limits_of(self, caller: Agent) -> Limits:
        """Those of the home, and what its role says. Reads roles."""
        limits = self._limits()
        if not caller.role:
            return limits
        own = load_changed_role(self._home, caller.role, caller.pod, caller.overrides).max_children
        return limits if own is None else replace(limits, children=min(own, limits.children))

    def _list_running(self) -> set[str]:
        return {live.agent.name for live in self._registry if live.is_running}

    def _refuse_known(self, name: str) -> None:
        if self._registry.find(name) is not None or self._registry.is_taken(name):
            raise BullpenError(
                f"there is an agent called {name} already",
                hint="choose another name, or write to that one with send_message",
                kind=Kind.CONFLICT,
            )

    def _ceiling(self, caller: Agent, count: int) -> Rights:
        """What children of that agent may do at most. Reads roles."""
        role = load_changed_role(self._home, caller.role, caller.pod, caller.overrides)
        if role.may_grant:
            granted = load_changed_role(self._home, role.may_grant, caller.pod, ())
            rights = rights_of(granted, is_sandboxed=granted.sandbox.enabled is True)
        else:
            rights = rights_of(role, is_sandboxed=caller.is_sandboxed)
        if caller.is_sandboxed:  # whatever it may grant: else it could leave its sandbox
            network = rights.network and role.sandbox.allow_network
            rights = rights.model_copy(update={"sandboxed": True, "network": network})
        if caller.ceiling is not None:
            own = caller.ceiling.model_copy(update={"budget": rights.budget})
            rights = lower(rights, own)
        part = self._share(caller, count)
        if part is None:
            raise BullpenError(NO_MONEY, hint="report to your parent", kind=Kind.DENIED)
        own_part = part if role.may_grant is None else least_budget(part, rights.budget)
        return rights.model_copy(update={"budget": own_part})

    def _plan_one(
        self, caller: Agent, wish: ChildWish, name: str, run: str, birth: Birth
    ) -> TerminalPlan:
        launch_env = sessions.load_launch_env(self._home, caller.name)
        launch = Launch(
            cwd=caller.cwd,
            env=launch_env.env,
            umask=launch_env.umask,
            rows=launch_env.rows,
            cols=launch_env.cols,
            run=run,
            role=_role_of(caller, wish),
            name=name,
            pod=caller.pod or None,
            overrides=(f"agent_type={wish.engine}",) if wish.engine else (),
            prompt=wish.task,
        )
        try:
            plan = plan_launch(self._context, launch, name, None, birth=birth)
        except BullpenError as error:
            raise BullpenError(
                f"{name}: {error.message}", hint=error.hint, kind=error.kind
            ) from error
        if birth.site is None and plan.agent.is_sandboxed and not caller.is_sandboxed:
            raise BullpenError(
                f"role {launch.role} wants a sandbox, and a worker shares the directory of"
                f" {caller.name}, which has none",
                hint="spawn_subtree gives it a worktree of its own",
                kind=Kind.CONFLICT,
            )
        budget = caller.pod_budget
        return replace(plan, agent=plan.agent.model_copy(update={"pod_budget": budget}))

    # ── other machines ──

    async def plan_elsewhere(
        self,
        caller: LiveAgent,
        wish: ChildWish,
        keep: Callable[[PlanElsewhere], Awaitable[None]],
    ) -> None:
        """What a child of that agent is born with on another machine. `keep` puts it down, so that
        it counts when the next is decided about."""
        agent = caller.agent
        _check_task(wish.task)
        _refuse_task_agent(agent)
        point = await self._find_branch_point(caller)
        async with self._deciding:
            limits = await asyncio.to_thread(self._limits_of, agent)
            family, elsewhere = self._children.family(), self._count_elsewhere(agent.name)
            refuse_children(family, self._list_running(), agent.name, 1, limits, elsewhere)
            branch = subtree_branch(point.prefix, wish.branch)
            await keep(
                PlanElsewhere(
                    branch=branch,
                    name=names.subtree_name(branch),
                    role=_role_of(agent, wish),
                    depth=family.depth(agent.name) + 1,
                    ceiling=await asyncio.to_thread(self._ceiling, agent, 1),
                    point=point,
                )
            )

    async def take_in(self, order: str, wish: ChildWish, birth: Birth) -> LiveAgent:
        """Start a child here whose parent is on another machine. The same order starts one."""

        async def spawn(id: str) -> list[LiveAgent]:
            known = await self._find_finished(id)
            if known is not None:
                return known
            return await self._launch(id, birth.parent, lambda: self._plan_in(order, wish, birth))

        # Another machine chose the order's name: it is none of a request of this one.
        made_from = f"{birth.parent.name}\0{order}".encode()
        [child] = await self._once(hashlib.sha256(made_from).hexdigest()[:32], spawn)
        return child

    async def _plan_in(self, order: str, wish: ChildWish, birth: Birth) -> list[TerminalPlan]:
        _check_task(wish.task)
        refuse_agents(self._list_running(), 1, self._limits())
        name = names.subtree_name(birth.branch)
        async with self._claimed([name]) as runs:
            launch = Launch(
                cwd=birth.parent.cwd,
                env=dict(os.environ),  # what the parent's shell has is not for this machine
                run=runs[name],
                role=wish.role,
                name=name,
                overrides=(f"agent_type={wish.engine}",) if wish.engine else (),
                prompt=wish.task,
            )
            plan = await asyncio.to_thread(
                plan_launch, self._context, launch, name, None, birth=birth
            )
            above = {"order": order, "levels_above": birth.depth}
            return [replace(plan, agent=plan.agent.model_copy(update=above))]

    # ── carrying out ──

    async def _carry_out(
        self,
        plans: Sequence[TerminalPlan],
        starts: Sequence[asyncio.Task[LiveAgent]],
        intent: Intent,
    ) -> list[LiveAgent]:
        results = await asyncio.gather(*starts, return_exceptions=True)
        for plan, result in zip(plans, results, strict=True):
            if isinstance(result, BullpenError):
                raise BullpenError(
                    f"{plan.agent.name} cannot start: {result.message}",
                    hint=result.hint,
                    kind=result.kind,
                )
            if isinstance(result, BaseException):
                raise result
        called = [plan.agent.name for plan in plans]
        await self._store.append(launch_intent.outcome(intent, "spawn.launched", names=called))
        return [self._registry.get(name) for name in called]

    async def _take_back(self, intent: Intent, error: BullpenError) -> BullpenError:
        left = await self._undo.take_back(intent, at_once=True)
        if str(left):
            error = BullpenError(
                f"{error.message} · left: {left}", hint=error.hint, kind=error.kind
            )
        if not left.stuck:
            failed = launch_intent.outcome(intent, "spawn.failed", reason=error.message)
            try:
                await self._store.append(failed)
            except BullpenError:  # a full disk
                self._observer.surely(failed)
        return error


def id_of(caller: Agent, request: str) -> str:
    """The same for the same request."""
    return hashlib.sha256(f"{caller.name}:{caller.run}:{request}".encode()).hexdigest()[:32]


def _refuse_task_agent(caller: Agent) -> None:
    if caller.takes_tasks:
        raise BullpenError(
            f"{caller.name} takes tasks, and cannot start agents in terminals",
            hint="delegate_task gives work to an agent that is there",
            kind=Kind.DENIED,
        )


def _name_of(caller: Agent, wish: ChildWish, point: BranchPoint | None) -> str:
    if wish.branch and point is not None:
        return names.subtree_name(subtree_branch(point.prefix, wish.branch))
    return worker_name(caller.name, wish.name)


def _birth(
    caller: Agent, ceiling: Rights, depth: int, wish: ChildWish, point: BranchPoint | None
) -> Birth:
    if not wish.branch or point is None:
        return Birth(caller, ceiling, depth)
    branch = subtree_branch(point.prefix, wish.branch)
    return Birth(
        caller, ceiling, depth, point.site, branch, point.base, point.below, point.lands_in
    )


def _role_of(caller: Agent, wish: ChildWish) -> str:
    if not (wish.role or caller.role):
        raise BullpenError("you have no role that a child could have", hint="name one: role")
    return wish.role or caller.role


def _check_task(task: str) -> None:
    if not task.strip():
        raise BullpenError("a child needs a task", hint="say what it is to do, and when it is done")
    if len(task.encode()) > TASK_BYTES:
        raise BullpenError(
            f"a task has at most {TASK_BYTES >> 10} KiB",
            hint="write it to a file, and name the file in the task",
        )


def _intent_of(id: str, caller: Agent, plans: Sequence[TerminalPlan]) -> Intent:
    return Intent(
        id=id,
        pod=caller.pod,
        noun="spawn",
        parent=caller.name,
        members=tuple(MemberStart(name=plan.agent.name, run=plan.agent.run) for plan in plans),
        new_trees=tuple(
            NewTree(
                name=plan.agent.name,
                repo=str(plan.tree.site.repo.common_dir),
                run=plan.agent.run,
                new_branch=plan.tree.new_branch,
            )
            for plan in plans
            if plan.tree is not None
        ),
    )
