"""What a launch of several agents is about to do, on record before it does anything; and taking it
back. Used by `pods/launch` and `tree/spawn`.

The launch itself takes back when a member cannot start, the next hub when this one was killed
half-way. Both from the same record, and every step of it may be repeated: what cannot be taken
back now stays on record, and is tried again by the next hub.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hub.agents import sessions
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.stop import Stopper
from bullpen.hub.agents.worktrees import open_site, take_back_tree
from bullpen.hub.background import Background, in_daemon_thread
from bullpen.hub.context import HubContext
from bullpen.hub.holders import files as holder_files
from bullpen.hub.store.events import find_by_key, list_after
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft
from bullpen.model.state import View
from bullpen.model.value import Value
from bullpen.worktrees import Code, WorktreeError

log = logging.getLogger("bullpen.hub")

RECOVER_SECONDS = 15.0  # that the start of a hub waits for; the rest goes on in the background
TRY_AGAIN_SECONDS = 10.0
STILL_MADE = "its set-up still runs, though the hub that began it is gone"
KILLED = "the hub was killed while it started"


class MemberStart(Value):
    """A member's run, and the last view of the agent that had its name before; None: there was
    none."""

    name: str
    run: str
    before: View | None = None


class NewTree(Value):
    """A worktree to be made for a member's run."""

    name: str
    repo: str
    run: str
    new_branch: bool
    path: str = ""  # where it is made; of older hubs empty: where new ones are made now


class Intent(Value):
    """One launch: its members and the worktrees to be made. `noun`: of a pod, or the children of an
    agent; events are called by it."""

    id: str
    pod: str
    noun: Literal["pod", "spawn"] = "pod"
    parent: str = ""  # of the children
    members: tuple[MemberStart, ...]
    new_trees: tuple[NewTree, ...] = ()


def launching(intent: Intent) -> Draft:
    """The record of the intent."""
    data = intent.model_dump(mode="json")
    return Draft(
        time.time(), f"{intent.noun}.launching", intent.parent, data, f"launching:{intent.id}"
    )


def outcome(intent: Intent, kind: str, **fields: Any) -> Draft:
    """The record of its end."""
    data = {"id": intent.id, "pod": intent.pod, **fields}
    return Draft(time.time(), kind, intent.parent, data, f"{kind}:{intent.id}")


async def set_aside(home: Home, intent: Intent) -> None:
    """Keep the sessions of earlier runs until the launch has succeeded."""
    for member in intent.members:
        if member.before is not None:
            await asyncio.to_thread(sessions.set_aside, home, member.name, intent.id)


async def forget_aside(home: Home, intent: Intent) -> None:
    """The launch succeeded: delete the copies."""
    for member in intent.members:
        await asyncio.to_thread(sessions.forget_aside, home, member.name, intent.id)


# ── taking back ──


@dataclass(frozen=True)
class NotUndone:
    """What could not be taken back, in words: now, or at all because somebody's work is there."""

    stuck: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " · ".join((*self.stuck, *self.kept))


@dataclass(frozen=True)
class _MemberUndo:
    """Whether a member's program may have run; why it could not be taken back."""

    ran: bool
    problem: str = ""


class LaunchUndo:
    """Takes launches back: those that failed, and those that a killed hub never finished."""

    def __init__(
        self,
        context: HubContext,
        store: Store,
        registry: Registry,
        stopper: Stopper,
        background: Background,
    ) -> None:
        self._home = context.home
        self._context = context
        self._store = store
        self._registry = registry
        self._stopper = stopper
        self._background = background

    async def take_back(self, intent: Intent, *, at_once: bool) -> NotUndone:
        """No member runs, no session, worktree or branch of the launch is left, and what was there
        before is as it was.

        `at_once`: the members have run for a moment only; what is in their worktrees goes with
        them (a safety copy is kept). Otherwise uncommitted work stays.
        """
        work = (self._take_back_member(intent, member) for member in intent.members)
        undone = dict(
            zip((m.name for m in intent.members), await asyncio.gather(*work), strict=True)
        )
        stuck = [
            f"{name}: {member_undo.problem}"
            for name, member_undo in undone.items()
            if member_undo.problem
        ]
        kept: list[str] = []
        for tree in intent.new_trees:
            member_undo = undone[tree.name]
            if member_undo.problem:
                continue
            careful = member_undo.ran and not at_once
            why = await in_daemon_thread(partial(self._take_back_tree, tree, careful))
            if why:
                (stuck if why == STILL_MADE else kept).append(f"worktree {tree.name}: {why}")
        return NotUndone(tuple(stuck), tuple(kept))

    async def _take_back_member(self, intent: Intent, member: MemberStart) -> _MemberUndo:
        ran = True
        try:
            ran = await self._end_member(member)
            await asyncio.to_thread(
                sessions.take_back, self._home, member.name, member.run, intent.id
            )
            live = self._registry.find(member.name)
            if live is not None and live.agent.run == member.run:
                await self._put_back(member)
        except (BullpenError, OSError) as error:
            why = error.message if isinstance(error, BullpenError) else str(error)
            log.error("cannot take a member back", extra={"agent": member.name, "why": why})
            return _MemberUndo(ran, why)
        return _MemberUndo(ran)

    async def _end_member(self, member: MemberStart) -> bool:
        """Whether its program may have run."""
        live = self._registry.find(member.name)
        if live is None or live.agent.run != member.run:
            key = f"starting:{member.run}"
            return await self._store.read(find_by_key(key)) is not None
        await self._stopper.stop(member.name, 0)
        left = self._home.session(member.name), member.run
        return bool(
            await asyncio.to_thread(holder_files.find_holder, *left)
            or await asyncio.to_thread(holder_files.find_exit, *left)
        )

    async def _put_back(self, member: MemberStart) -> None:
        self._registry.drop(member.name)
        if member.before is None:
            return
        agent = await asyncio.to_thread(sessions.load, self._home, member.name)
        earlier = LiveAgent(agent, member.before)
        earlier.over.set()
        self._registry.put(earlier)
        # The last word on it is of its last run.
        data = member.before.model_dump(mode="json")
        await self._store.append(Draft(time.time(), "agent.state", member.name, data))

    def _take_back_tree(self, tree: NewTree, ran: bool) -> str:
        live = self._registry.find(tree.name)
        if live is not None and live.is_running and live.agent.run != tree.run:
            return ""  # somebody else works there now
        try:
            base = Path(tree.path).parent if tree.path else None
            site = open_site(self._home, self._context.settings, Path(tree.repo), base)
            worktrees.gc(site)  # a half-made set
            if worktrees.is_being_made(site, tree.name):
                return STILL_MADE
            return take_back_tree(site, tree.name, tree.run, new_branch=tree.new_branch, ran=ran)
        except WorktreeError as error:
            # With the repository all that was in it is gone.
            return "" if error.code == Code.NOT_A_REPO else error.message

    # ── after a crash ──

    async def recover(self) -> None:
        """Take back the launches that a killed hub never finished."""
        intents = await list_unfinished(self._store)
        if not intents:
            return
        for intent in intents:
            self._registry.claim_all({each.name: intent.id for each in intent.members})
        tasks = [
            self._background.begin(
                self._recover(intent), f"take back {intent.parent or intent.pod}"
            )
            for intent in intents
        ]
        await asyncio.wait(tasks, timeout=RECOVER_SECONDS)

    async def _recover(self, intent: Intent) -> None:
        log.warning("taking back a launch", extra={"pod": intent.pod, "parent": intent.parent})
        try:
            while (left := await self.take_back(intent, at_once=False)).stuck:
                log.warning("cannot take all of a launch back yet", extra={"why": str(left)})
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            data = {"reason": KILLED, "killed": True, "kept": left.kept}
            await self._store.append(outcome(intent, f"{intent.noun}.failed", **data))
        finally:
            self.release(intent)

    def release(self, intent: Intent) -> None:
        """The members' names are anybody's again."""
        self._registry.release(member.name for member in intent.members)


async def list_unfinished(store: Store) -> list[Intent]:
    """Launches without an outcome."""
    begun = {"pod.launching", "spawn.launching"}
    kinds = (*begun, "pod.launched", "pod.failed", "spawn.launched", "spawn.failed")
    unfinished: dict[str, Intent] = {}
    seen = 0
    while events := await store.read(list_after(seen, 1000, kinds=kinds)):
        for event in events:
            if event.kind not in begun:
                unfinished.pop(event.data["id"], None)
                continue
            try:
                intent = Intent.model_validate(event.data)
            except ValidationError:
                log.error("cannot read a launch", extra={"event": event.id})
            else:
                unfinished[intent.id] = intent
        seen = events[-1].id
    return list(unfinished.values())
