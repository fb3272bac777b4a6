"""An agent of this machine starts a child on another.

Called by the tool `spawn_subtree`. What is decided here: limits, rights, where the branch begins;
the hub there starts it, or refuses. The child is a row before anything is sent, and the order is a
letter: it arrives once, whatever dies. The same request asked again is the same child, also of the
next hub.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.fleet_children.remote import RemoteChildren
from bullpen.hub.fleet_children.rows import ChildRows
from bullpen.hub.fleet_tasks.clones import name_repository
from bullpen.hub.messages.letters import Letters
from bullpen.hub.tree.spawn import ChildWish, PlanElsewhere, Spawner, id_of
from bullpen.model.child_letter import Birth
from bullpen.model.fleet import FleetShown
from bullpen.model.fleet_child import RemoteChild
from bullpen.model.parcel import Parcel
from bullpen.worktrees.git import Repository, open_repository

if TYPE_CHECKING:
    from bullpen.fleet.parcels import ParcelConnection

PACK_SECONDS = 600.0
ANSWER_SECONDS = 600.0  # a role's set-up may take long
NAMED = {"below": "directory"}  # fields of a birth, for those who are refused


@dataclass(frozen=True)
class Ordered:
    """A child that is asked for, and what its order says besides."""

    child: RemoteChild
    plan: PlanElsewhere


class FleetSpawner:
    """Of one hub. `show` says which machines there are, `look_after` sees to the children of an
    agent that has ended."""

    def __init__(
        self,
        rows: ChildRows,
        remote: RemoteChildren,
        letters: Letters,
        spawner: Spawner,
        show: Callable[[], Awaitable[FleetShown]],
        look_after: Callable[[str], Awaitable[None]],
    ) -> None:
        self.server: ParcelConnection | None = None
        self._rows = rows
        self._remote = remote
        self._letters = letters
        self._spawner = spawner
        self._show = show
        self._look_after = look_after
        self._under_way: dict[str, asyncio.Task[RemoteChild | None]] = {}

    async def spawn(
        self, caller: LiveAgent, wish: ChildWish, where: str, request: str
    ) -> RemoteChild | None:
        """Have it started there; None if that is here. Goes on if nobody waits any more."""
        id = id_of(caller.agent, request)
        if id not in self._under_way:
            task = asyncio.create_task(self._spawn(caller, wish, where, id))
            self._under_way[id] = task
            task.add_done_callback(lambda _: self._under_way.pop(id, None))
        return await asyncio.shield(self._under_way[id])

    async def _spawn(
        self, caller: LiveAgent, wish: ChildWish, where: str, id: str
    ) -> RemoteChild | None:
        if id not in self._rows.remote:
            if await self._spawner.was_asked(id):
                return None
            shown = await self._show()
            host = choose_host(shown, where)
            if host == shown.name:
                return None
            await self._send(caller, wish, host, id)
        return await self._wait(id)

    # ── asking ──

    async def _send(self, caller: LiveAgent, wish: ChildWish, host: str, id: str) -> None:
        ordered: list[Ordered] = []

        async def keep(plan: PlanElsewhere) -> None:
            await self._refuse_known(plan)
            child = _child_of(caller, plan, host, id)
            await self._rows.put_remote(child)
            self._remote.note_open(child)
            ordered.append(Ordered(child, plan))

        await self._remote.forget_refused()
        await self._spawner.plan_elsewhere(caller, wish, keep)
        [order] = ordered
        try:
            parcel = await self._pack(order.child)
            if not caller.is_running:
                raise BullpenError(f"{caller.agent.name} has ended", kind=Kind.CONFLICT)
            birth = _birth_of(caller, wish, order, parcel)
            await self._rows.change_asked(
                id,
                lambda now: now.model_copy(update={"state": "sent"}),
                lambda transaction, _: self._letters.add(transaction, host, birth),
            )
        except (BullpenError, OSError, TimeoutError, ValidationError) as error:
            self._remote.note_refused(order.child)
            await self._rows.drop_asked(order.child)
            await asyncio.to_thread(_unpin, order.child)
            raise _refusal(error) from error
        self._letters.changed.set()
        if not caller.is_running:  # it may have ended before anybody knew of this child
            await self._look_after(caller.agent.name)

    async def _refuse_known(self, plan: PlanElsewhere) -> None:
        repo = plan.point.site.repo
        is_there = await asyncio.to_thread(worktrees.branch_exists, repo, plan.branch)
        is_asked = any(
            (child.repo, child.branch) == (str(repo.common_dir), plan.branch) and child.is_living
            for child in self._rows.remote.values()
        )
        if is_there or is_asked:
            raise BullpenError(
                f"there is a branch called {plan.branch} already",
                hint="choose another name, or write to that agent with send_message",
                kind=Kind.CONFLICT,
            )

    async def _pack(self, child: RemoteChild) -> Parcel:
        """Its commit with all before it, at the server."""
        if self.server is None:
            raise TimeoutError
        async with asyncio.timeout(PACK_SECONDS):
            bundle = await asyncio.to_thread(_pack, child)
            return await self.server.send_parcel(child.id, bundle, child.base)

    # ── the answer ──

    async def _wait(self, id: str) -> RemoteChild:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            changed = self._rows.remote_changed()
            child = self._rows.remote.get(id)
            if child is None or child.state == "refused":
                why = f"{child.host}: {child.why}" if child else "it was not started"
                hint = child.hint if child else ""
                raise BullpenError(why, hint=hint, kind=Kind.CONFLICT)
            if child.state == "started":
                return child
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await changed.wait()
            except TimeoutError:
                return await self._give_up(id)

    async def _give_up(self, id: str) -> RemoteChild:
        """Nobody knows. If it is refused after this, its parent gets an event."""
        child = await self._rows.change_asked(
            id,
            lambda now: now.model_copy(update={"is_unknown": True}) if now.state == "sent" else now,
        )
        if child.state == "started":
            return child
        raise BullpenError(
            f"{child.host} has not answered yet: {child.full_name} starts when it does",
            hint="wait_for_event tells you what becomes of it",
            kind=Kind.UNAVAILABLE,
        )


# ── where ──


def choose_host(shown: FleetShown, where: str) -> str:
    """The machine that `where` means: its name, or labels, of which the one that has them and on
    which the fewest run. Pure."""
    words = where.replace(",", " ").split()
    labels = dict(word.split("=", 1) for word in words if "=" in word)
    if not words or (len(labels) < len(words) and len(words) > 1):
        raise BullpenError(
            f"where is the name of a machine, or labels: {where[:80]!r}",
            hint="where: desk · where: gpu=yes,os=linux",
        )
    if shown.link == "none":
        raise BullpenError(
            "this machine is in no fleet: agents start here alone",
            hint="leave where out",
            kind=Kind.CONFLICT,
        )
    if shown.link != "connected":
        raise BullpenError(
            f"this machine is not connected to its fleet: {shown.why or shown.link}",
            hint="leave where out, or try again later",
            kind=Kind.UNAVAILABLE,
        )
    if labels:
        return _choose_by_labels(shown, labels, where)
    for host in shown.hosts:
        if host.state.name == words[0]:
            if not host.reachable:
                raise BullpenError(
                    f"{words[0]} cannot be reached now",
                    hint="try again later, or name another one",
                    kind=Kind.UNAVAILABLE,
                )
            if not host.state.takes_children:
                raise BullpenError(
                    f"{words[0]} is too old to start agents for other machines",
                    hint="a person can upgrade it",
                    kind=Kind.UNSUPPORTED,
                )
            return words[0]
    raise BullpenError(
        f"no machine of the fleet is called {words[0]}",
        hint=f"there are {', '.join(host.state.name for host in shown.hosts)}",
        kind=Kind.NOT_FOUND,
    )


def _choose_by_labels(shown: FleetShown, labels: dict[str, str], where: str) -> str:
    fitting = [
        host.state
        for host in shown.hosts
        if host.reachable
        and host.state.takes_children
        and labels.items() <= host.state.labels.items()
    ]
    if not fitting:
        raise BullpenError(
            f"no machine of the fleet that can be reached has {where}",
            hint="leave where out, or name another label",
            kind=Kind.NOT_FOUND,
        )
    return min(fitting, key=lambda state: (state.running, state.name)).name


# ── what is sent ──


def _child_of(caller: LiveAgent, plan: PlanElsewhere, host: str, id: str) -> RemoteChild:
    site = plan.point.site
    return RemoteChild(
        id=id,
        parent=caller.agent.name,
        born=caller.agent.created,
        host=host,
        name=plan.name,
        branch=plan.branch,
        repo=str(site.repo.common_dir),
        base_dir=str(site.base),
        base=plan.point.base,
        role=plan.role,
        ceiling=plan.ceiling,
        at=time.time(),
    )


def _birth_of(caller: LiveAgent, wish: ChildWish, order: Ordered, parcel: Parcel) -> Birth:
    agent, child, plan = caller.agent, order.child, order.plan
    return Birth(
        id=child.id,
        at=child.at,
        parent=agent.name,
        parent_role=agent.role,
        parent_engine=agent.engine,
        is_trusted=agent.is_trusted,
        depth=plan.depth,
        branch=plan.branch,
        below=plan.point.below,
        role=plan.role,
        engine=wish.engine,
        task=wish.task,
        ceiling=plan.ceiling,
        repo_name=name_repository(Path(child.repo)),
        parcel=parcel,
    )


def _pack(child: RemoteChild) -> bytes:
    """In a thread."""
    from bullpen.fleet import bundles

    repo = _repository(child)
    bundles.pin_commit(repo, child.id, child.base)
    return bundles.pack(repo, child.id)


def _unpin(child: RemoteChild) -> None:
    """In a thread."""
    from bullpen.fleet import bundles

    bundles.unpin(_repository(child), child.id)


def _repository(child: RemoteChild) -> Repository:
    return open_repository(Path(child.repo))


def _refusal(error: BullpenError | OSError | TimeoutError | ValidationError) -> BullpenError:
    if isinstance(error, BullpenError):
        return error
    if isinstance(error, ValidationError):
        field = str(error.errors()[0]["loc"][0])
        return BullpenError(
            f"the {NAMED.get(field, field)} cannot be sent to another machine: it is too long, or"
            " has characters that no text has",
            hint="leave where out, or change it",
        )
    if isinstance(error, TimeoutError):
        return BullpenError(
            "the server of the fleet does not answer, so nothing was sent",
            hint="leave where out, or try again later",
            kind=Kind.UNAVAILABLE,
        )
    return BullpenError(f"the repository cannot be packed: {error}", kind=Kind.COMMAND_FAILED)
