"""What a pod's launch is about to do, on record before it does anything; and taking it back.

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
from typing import Any

from pydantic import ValidationError

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.hub import held, sessions
from bullpen.hub.registry import Live
from bullpen.hub.store import Store
from bullpen.hub.supervise import Supervisor
from bullpen.hub.threads import in_loose_thread
from bullpen.hub.trees import open_site, take_back_tree
from bullpen.model.event import Draft
from bullpen.model.state import Value, View
from bullpen.worktrees import Code, WorktreeError

log = logging.getLogger("bullpen.hub")

RECOVER_SECONDS = 15.0  # that the start of a hub waits for; the rest goes on beside
TRY_AGAIN_SECONDS = 10.0
STILL_MADE = "its set-up still runs, though the hub that began it is gone"
KILLED = "the hub was killed while it started"


class Starts(Value):
    """A member, and how the one that had its name before stood; None when there was none."""

    name: str
    run: str
    before: View | None = None


class NewTree(Value):
    """A worktree to be made for a member's run."""

    name: str
    repo: str
    run: str
    new_branch: bool


class Intent(Value):
    """One launch."""

    id: str
    pod: str
    members: tuple[Starts, ...]
    new_trees: tuple[NewTree, ...] = ()


def launching(intent: Intent) -> Draft:
    """The record of the intent."""
    data = intent.model_dump(mode="json")
    return Draft(time.time(), "pod.launching", data=data, key=f"launching:{intent.id}")


def outcome(intent: Intent, kind: str, **fields: Any) -> Draft:
    """The record of its end."""
    data = {"id": intent.id, "pod": intent.pod, **fields}
    return Draft(time.time(), kind, data=data, key=f"{kind}:{intent.id}")


async def set_aside(supervisor: Supervisor, intent: Intent) -> None:
    """Keep the sessions of earlier runs until the launch stands."""
    for member in intent.members:
        if member.before is not None:
            await asyncio.to_thread(sessions.set_aside, supervisor.home, member.name, intent.id)


async def forget_aside(supervisor: Supervisor, intent: Intent) -> None:
    """It stands."""
    for member in intent.members:
        await asyncio.to_thread(sessions.forget_aside, supervisor.home, member.name, intent.id)


# ── taking back ──


@dataclass(frozen=True)
class Left:
    """What could not be taken back, in words: now, or at all because somebody's work is there."""

    stuck: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " · ".join((*self.stuck, *self.kept))


async def take_back(supervisor: Supervisor, intent: Intent, *, at_once: bool) -> Left:
    """No member runs, no session, worktree or branch of the launch is left, and what was there
    before is as it was.

    `at_once`: the members have run for a moment only; what is in their worktrees goes with
    them (a safety copy is kept). Otherwise uncommitted work stays.
    """
    work = (_take_back_member(supervisor, intent, member) for member in intent.members)
    fates = dict(zip((m.name for m in intent.members), await asyncio.gather(*work), strict=True))
    stuck = [f"{name}: {fate.problem}" for name, fate in fates.items() if fate.problem]
    kept: list[str] = []
    for tree in intent.new_trees:
        fate = fates[tree.name]
        if fate.problem:
            continue
        careful = fate.ran and not at_once
        why = await in_loose_thread(partial(_take_back_tree, supervisor, tree, careful))
        if why:
            (stuck if why == STILL_MADE else kept).append(f"worktree {tree.name}: {why}")
    return Left(tuple(stuck), tuple(kept))


@dataclass(frozen=True)
class _Fate:
    """Whether a member's program may have run; why it could not be taken back."""

    ran: bool
    problem: str = ""


async def _take_back_member(supervisor: Supervisor, intent: Intent, member: Starts) -> _Fate:
    ran = True
    try:
        ran = await _end_member(supervisor, member)
        await asyncio.to_thread(
            sessions.take_back, supervisor.home, member.name, member.run, intent.id
        )
        live = supervisor.registry.find(member.name)
        if live is not None and live.agent.run == member.run:
            await _put_back(supervisor, member)
    except (BullpenError, OSError) as error:
        why = error.message if isinstance(error, BullpenError) else str(error)
        log.error("cannot take a member back", extra={"agent": member.name, "why": why})
        return _Fate(ran, why)
    return _Fate(ran)


async def _end_member(supervisor: Supervisor, member: Starts) -> bool:
    """Whether its program may have run."""
    live = supervisor.registry.find(member.name)
    if live is None or live.agent.run != member.run:
        key = f"starting:{member.run}"
        return await asyncio.to_thread(supervisor.store.find_key, key) is not None
    await supervisor.stop(member.name, 0)
    left = supervisor.home.session(member.name), member.run
    return bool(
        await asyncio.to_thread(held.find_holder, *left)
        or await asyncio.to_thread(held.find_exit, *left)
    )


async def _put_back(supervisor: Supervisor, member: Starts) -> None:
    supervisor.registry.drop(member.name)
    if member.before is None:
        return
    agent = await asyncio.to_thread(sessions.load, supervisor.home, member.name)
    earlier = Live(agent, member.before)
    earlier.over.set()
    supervisor.registry.put(earlier)
    # The last word on it is of its last run.
    data = member.before.model_dump(mode="json")
    await supervisor.store.append(Draft(time.time(), "agent.state", member.name, data))


def _take_back_tree(supervisor: Supervisor, tree: NewTree, ran: bool) -> str:
    live = supervisor.registry.find(tree.name)
    if live is not None and live.is_running and live.agent.run != tree.run:
        return ""  # somebody else works there now
    try:
        site = open_site(supervisor.home, supervisor.settings, Path(tree.repo))
        worktrees.gc(site)  # a half-made set
        if worktrees.is_being_made(site, tree.name):
            return STILL_MADE
        return take_back_tree(site, tree.name, tree.run, new_branch=tree.new_branch, ran=ran)
    except WorktreeError as error:
        # With the repository all that was in it is gone.
        return "" if error.code == Code.NOT_A_REPO else error.message


# ── after a crash ──


async def recover(supervisor: Supervisor) -> None:
    """Take back the launches that a killed hub never finished."""
    intents = await asyncio.to_thread(list_unfinished, supervisor.store)
    if not intents:
        return
    for intent in intents:
        supervisor.registry.claimed.update({each.name: intent.id for each in intent.members})
    tasks = {asyncio.create_task(_recover(supervisor, intent)) for intent in intents}
    for task in tasks:
        supervisor.beside.tasks.add(task)
        task.add_done_callback(supervisor.beside.tasks.discard)
    await asyncio.wait(tasks, timeout=RECOVER_SECONDS)


async def _recover(supervisor: Supervisor, intent: Intent) -> None:
    log.warning("taking back a pod", extra={"pod": intent.pod})
    try:
        while (left := await take_back(supervisor, intent, at_once=False)).stuck:
            log.warning("cannot take all of a pod back yet", extra={"why": str(left)})
            await asyncio.sleep(TRY_AGAIN_SECONDS)
        data = {"reason": KILLED, "killed": True, "kept": left.kept}
        await supervisor.store.append(outcome(intent, "pod.failed", **data))
    except Exception:
        log.exception("a pod could not be taken back", extra={"pod": intent.pod})
    finally:
        release(supervisor, intent)


def release(supervisor: Supervisor, intent: Intent) -> None:
    """The members' names are anybody's again."""
    for member in intent.members:
        supervisor.registry.claimed.pop(member.name, None)


def list_unfinished(store: Store) -> list[Intent]:
    """Launches without an outcome."""
    kinds = ("pod.launching", "pod.launched", "pod.failed")
    found: dict[str, Intent] = {}
    seen = 0
    while events := store.after(seen, 1000, kinds=kinds):
        for event in events:
            if event.kind != "pod.launching":
                found.pop(event.data["id"], None)
                continue
            try:
                intent = Intent.model_validate(event.data)
            except ValidationError:
                log.error("cannot read a pod's launch", extra={"event": event.id})
            else:
                found[intent.id] = intent
        seen = events[-1].id
    return list(found.values())
