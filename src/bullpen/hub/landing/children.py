"""A parent takes the work of a child: a landing with the parent's branch as target. Of a child on
another machine that which it had committed when it last reported: its branch came with that.

Called by the MCP tool `merge_child`. Refuses a child that is at work or has uncommitted changes;
one that has reported is given the time to end its turn.
When it has landed, the child's worktree and branch go as soon as the child has ended:
`ChildCleanUp` sees to that, also after a crash.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.home.overrides import load_changed_role
from bullpen.home.paths import Home
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.remove import Remover
from bullpen.hub.agents.worktrees import open_site
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.hub.landing.book import LandingBook
from bullpen.hub.landing.queue import Landings
from bullpen.hub.landing.steps import find_tips
from bullpen.hub.landing.subjects import Subject, find_subject
from bullpen.hub.tree.children import Children
from bullpen.model.event import Event
from bullpen.model.fleet_child import RemoteChild
from bullpen.model.landing import Landed, Landing, LandingRequest
from bullpen.model.landing_rules import Strategy
from bullpen.model.state import Idle, words
from bullpen.model.tree import is_elsewhere, is_without_turns

log = logging.getLogger("bullpen.hub")

WAIT_SECONDS = 3600.0
TURN_END_SECONDS = 60.0  # that a child which has reported may take to end its turn


class ChildMerger:
    """Merges children into their parents' branches."""

    def __init__(
        self,
        context: HubContext,
        registry: Registry,
        children: Children,
        private_gits: PrivateGits,
        landings: Landings,
        book: LandingBook,
        find_elsewhere: Callable[[str], RemoteChild | None],
        fetch_late: Callable[[RemoteChild], Awaitable[RemoteChild]],
    ) -> None:
        self._context = context
        self._registry = registry
        self._children = children
        self._private_gits = private_gits
        self._landings = landings
        self._book = book
        self._find_elsewhere = find_elsewhere
        self._fetch_late = fetch_late

    async def merge_child(
        self,
        parent: str,
        child: str,
        strategy: Strategy | None = None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> Landing:
        """The entry of the queue when nothing more happens to it: `landed`; `came_back` with the
        files that conflict, which the child was told; `refused` with what stands in the way."""
        mother = self._registry.get(parent)
        if is_elsewhere(child):
            return await self._merge_elsewhere(mother, child, strategy, wait_seconds)
        landed = await self._find_landed(parent, child)
        if landed is not None:
            return landed
        live = self._registry.get(child)
        if live.agent.parent != parent:
            raise BullpenError(f"{child} is no child of {parent}", kind=Kind.DENIED)
        _refuse_without_branch(mother, child, f"bullpen land {child} --into BRANCH")
        await self._wait_turn_end(live)
        live = self._registry.get(child)  # it may have been started again meanwhile
        self._refuse_unfinished(live)
        for each in (live, mother):
            await self._private_gits.bring_over(each)
        plan = partial(self._plan, mother, live, strategy)
        try:
            entry = await self._context.trees.run(child, plan)
        except BullpenError:
            # What an earlier hub had begun may have landed since, and the child may be gone.
            landed = await self._find_landed(parent, child)
            if landed is None:
                raise
            return landed
        (landing,) = await self._landings.put_in([entry])
        return await self._landings.get(landing.id, wait_seconds)

    async def _merge_elsewhere(
        self, mother: LiveAgent, name: str, strategy: Strategy | None, wait_seconds: float
    ) -> Landing:
        parent = mother.agent.name
        child = self._find_elsewhere(name)
        if child is not None and child.parent == parent:
            child = await self._fetch_late(child)
        for landing in reversed(await self._landings.find(everything=True)):
            is_its = (landing.name, landing.by) == (name, parent)
            if is_its and isinstance(landing.status, Landed):
                if child is None or child.tip == landing.tip:
                    return landing
                break
        if child is None or child.parent != parent:
            raise BullpenError(f"{name} is no child of {parent}", kind=Kind.DENIED)
        branch = child.home_branch or child.branch
        _refuse_without_branch(mother, name, f"its branch is {branch}")
        _refuse_unfinished_elsewhere(child)
        await self._private_gits.bring_over(mother)
        plan = partial(self._plan_elsewhere, mother, child, strategy)
        entry = await self._context.trees.run(parent, plan)
        (landing,) = await self._landings.put_in([entry])
        return await self._landings.get(landing.id, wait_seconds)

    def _plan_elsewhere(
        self, mother: LiveAgent, child: RemoteChild, strategy: Strategy | None
    ) -> Landing:
        home, settings = self._context.home, self._context.settings
        subject = Subject(
            name=child.full_name,
            site=open_site(home, settings, Path(child.repo), Path(child.base_dir)),
            branch=child.home_branch or child.branch,
            tip=child.tip,
            base="",
            birth="",
            has_worktree=False,
            role=_own_role(home, child.role),
            ceiling=child.ceiling,
        )
        request = LandingRequest(
            names=(subject.name,), into=mother.agent.birth_branch, strategy=strategy
        )
        entry = self._landings.check(subject, request)
        network = entry.network and child.ceiling.network
        return entry.model_copy(
            update={"by": mother.agent.name, "cleans_up": True, "network": network}
        )

    async def _wait_turn_end(self, live: LiveAgent) -> None:
        """A child reports while its turn goes on: who merges it as soon as it hears of that would
        be refused."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TURN_END_SECONDS):
                while self._children.duty(live.agent).reported and self._is_at_work(live):
                    await self._children.changed().wait()

    def _is_at_work(self, live: LiveAgent) -> bool:
        if is_without_turns(live.view):
            return not self._children.duty(live.agent).reported
        return live.is_running and not isinstance(live.view.state, Idle)

    def _refuse_unfinished(self, live: LiveAgent) -> None:
        if self._is_at_work(live):
            raise BullpenError(
                f"{live.agent.name} is not finished: {words(live.view.state)}",
                hint="wait for it (wait_for_event), and merge it then",
                kind=Kind.CONFLICT,
            )

    async def _find_landed(self, parent: str, child: str) -> Landing | None:
        """For who asks again, because a hub died before it answered, and the child is gone or just
        being removed."""
        live = self._registry.find(child)
        if live is not None and live.is_running:
            return None
        landings = await self._landings.find(everything=True)
        live = self._registry.find(child)  # looked for after them: it goes before that is noted
        for landing in reversed(landings):
            is_its = (landing.name, landing.by) == (child, parent)
            if is_its and isinstance(landing.status, Landed):
                is_last = live is None or (landing.is_open and await self._is_tip(landing))
                return landing if is_last else None
        return None

    async def _is_tip(self, landing: Landing) -> bool:
        """Whether nothing came after it on its branch, which may be gone already."""

        def find() -> str | None:
            site = self._book.site(landing)
            return find_tips(site, [landing.branch]).get(landing.branch)

        return await self._context.trees.run(landing.name, find) in (None, landing.tip)

    def _plan(self, mother: LiveAgent, live: LiveAgent, strategy: Strategy | None) -> Landing:
        settings, home = self._context.settings, self._context.home
        subject = find_subject(home, settings, live.agent.name, live.agent)
        assert live.agent.worktree is not None  # find_subject says so
        changed = worktrees.uncommitted_files(subject.site, live.agent.worktree.name)
        if changed:
            raise _uncommitted(subject.name, list(changed))
        request = LandingRequest(
            names=(subject.name,), into=mother.agent.birth_branch, strategy=strategy
        )
        entry = self._landings.check(subject, request)
        return entry.model_copy(update={"by": mother.agent.name, "cleans_up": True})


def _own_role(home: Home, name: str) -> str:
    """A role of the other machine says nothing here."""
    try:
        load_changed_role(home, name, "", ())
    except BullpenError:
        return ""
    return name


def _refuse_without_branch(mother: LiveAgent, child: str, way: str) -> None:
    if mother.agent.worktree is None or not mother.agent.birth_branch:
        raise BullpenError(
            f"{mother.agent.name} has no branch of its own that {child} could land in",
            hint=f"look at it with agent_diff, and report it with notify_parent · {way}",
            kind=Kind.CONFLICT,
        )


def _refuse_unfinished_elsewhere(child: RemoteChild) -> None:
    name = child.full_name
    if child.problem:
        raise BullpenError(f"{name}: {child.problem}", kind=Kind.CONFLICT)
    if not child.is_at_rest or not child.tip:
        raise BullpenError(
            f"{name} is not finished: it has not reported",
            hint="wait for it (wait_for_event), and merge it then",
            kind=Kind.CONFLICT,
        )
    if child.uncommitted:
        raise _uncommitted(name, list(child.uncommitted))


def _uncommitted(name: str, changed: list[str]) -> BullpenError:
    named = ", ".join(changed[:3]) + (", …" if len(changed) > 3 else "")
    return BullpenError(
        f"{name} is not finished: it has uncommitted files ({named})",
        hint=f"ask {name} to commit them",
        kind=Kind.CONFLICT,
        details={"files": changed[:100]},
    )


class Elsewhere(Protocol):
    """Children on other machines."""

    def is_living(self, name: str) -> bool:
        """As far as anybody knows."""
        ...

    async def merged(self, landing: Landing) -> None:
        """That has landed: have the child removed. May be asked again."""
        ...


class ChildCleanUp:
    """Removes children that have landed and ended. A part of the hub."""

    def __init__(
        self,
        book: LandingBook,
        registry: Registry,
        remover: Remover,
        background: Background,
        elsewhere: Elsewhere,
    ) -> None:
        self._book = book
        self._registry = registry
        self._remover = remover
        self._background = background
        self._elsewhere = elsewhere
        self._at_work: set[str] = set()  # ids

    async def run(self) -> None:
        """Also what a hub that was killed had not done."""
        while True:
            changed = self._book.changed
            for name in {landing.name for landing in self._book.open.values() if not landing.task}:
                self._look(name)
            await changed.wait()

    def notice(self, events: Iterable[Event]) -> None:
        """It has landed before, and has ended now."""
        for event in events:
            if event.kind == "agent.stopped":
                self._look(event.agent)

    def _look(self, name: str) -> None:
        for landing in self._book.open.values():
            is_its = landing.name == name and not landing.task  # of tasks: `tasks/merged`
            is_due = is_its and isinstance(landing.status, Landed)
            live = self._registry.find(name)
            is_over = live is None or not live.is_running
            if is_elsewhere(name):
                is_over = not self._elsewhere.is_living(name)
            if is_due and is_over and landing.id not in self._at_work:
                self._at_work.add(landing.id)
                self._background.begin(self._clean_up(landing), f"clean-up of {name}")

    async def _clean_up(self, landing: Landing) -> None:
        """Once."""
        try:
            if is_elsewhere(landing.name):
                await self._elsewhere.merged(landing)
            else:
                await self._remove(landing.name)
            await self._book.keep(landing.model_copy(update={"is_cleaned": True}))
        finally:
            self._at_work.discard(landing.id)

    async def _remove(self, name: str) -> None:
        """What `rm` would refuse to remove stays."""
        if self._registry.find(name) is None:
            return
        try:
            await self._remover.remove(name, None)
        except BullpenError as error:
            extra = {"agent": name, "why": error.message}
            log.warning("kept a child that has landed", extra=extra)
