"""Children that agents of other machines have started here: started once, stopped or given to
another parent when theirs has ended, removed when their work has landed; and what they do is told.

Each is a row as soon as its letter is taken. What a row says is seen to until it is so: each step
may be repeated, by this hub or the next.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hub.agents import sessions
from bullpen.hub.agents.birth import Birth as BirthHere
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.remove import Remover
from bullpen.hub.agents.stop import Stopper
from bullpen.hub.agents.worktrees import open_site, site_of
from bullpen.hub.context import HubContext
from bullpen.hub.fleet_children.rows import ChildRows, ChildUpdateRow, Key
from bullpen.hub.fleet_tasks.clones import name_clone
from bullpen.hub.messages.letters import Letters
from bullpen.hub.store.transaction import Transaction
from bullpen.hub.tree.children import Children
from bullpen.hub.tree.spawn import ChildWish, Spawner
from bullpen.model.agent import Agent
from bullpen.model.child_letter import Birth, Born, ChildUpdate, Merged, Orphaned, Used
from bullpen.model.event import Event
from bullpen.model.fleet_child import AT_REST, GuestChild
from bullpen.model.letter import Letter
from bullpen.model.parcel import Parcel
from bullpen.worktrees.git import git, open_repository

if TYPE_CHECKING:
    from bullpen.fleet.parcels import ParcelConnection

log = logging.getLogger("bullpen.hub")

AT_ONCE = 4  # that are started
AGAIN_SECONDS = 2.0
MOST_FILES, MOST_WORDS, MOST_PATH = 100, 4000, 250


class GuestChildren:
    """All of them. `used` says what an agent and all below it have used."""

    def __init__(
        self,
        context: HubContext,
        registry: Registry,
        rows: ChildRows,
        letters: Letters,
        children: Children,
        spawner: Spawner,
        stopper: Stopper,
        remover: Remover,
        private_gits: PrivateGits,
        used: Callable[[Agent], Used],
    ) -> None:
        self._context = context
        self._registry = registry
        self._rows = rows
        self._letters = letters
        self._children = children
        self._spawner = spawner
        self._stopper = stopper
        self._remover = remover
        self._private_gits = private_gits
        self._used = used
        self._starting = asyncio.Semaphore(AT_ONCE)
        self._busy: dict[tuple[str, Key], asyncio.Task[None]] = {}
        self._again: set[tuple[str, Key]] = set()

    # ── letters ──

    async def take_birth(self, host: str, letter: Letter, birth: Birth) -> None:
        """Have it started. NotNextError if it is not the letter's turn."""
        child = GuestChild(host=host, birth=birth, parent=birth.parent)
        await self._change(host, letter, birth.id, lambda before: before or child)

    async def take_orphaned(self, host: str, letter: Letter, order: Orphaned) -> None:
        """Its parent has ended. NotNextError as above."""

        def change(before: GuestChild | None) -> GuestChild | None:
            if before is None:
                return None
            if order.is_to_stop:
                return before.model_copy(update={"is_to_stop": True})
            return before.model_copy(update={"parent": order.heir or before.parent})

        await self._change(host, letter, order.id, change)

    async def take_merged(self, host: str, letter: Letter, merged: Merged) -> None:
        """Its work has landed. NotNextError as above."""

        def change(before: GuestChild | None) -> GuestChild | None:
            return before.model_copy(update={"merged": merged.tip}) if before else None

        await self._change(host, letter, merged.id, change)

    async def _change(
        self,
        host: str,
        letter: Letter,
        id: str,
        change: Callable[[GuestChild | None], GuestChild | None],
    ) -> None:
        """Take the letter, and with it what the row is then; None: there is none."""

        def write(transaction: Transaction) -> GuestChild | None:
            self._letters.take(transaction, host, letter)
            child = change(self._rows.find_taken(transaction, host, id))
            if child is not None:
                self._rows.write_taken(transaction, child)
            return child

        child = await self._rows.write(write)
        if child is not None:
            self._rows.note_taken(child)

    # ── seeing to it ──

    def notice(self, events: Iterable[Event]) -> None:
        """One that has ended may go."""
        if self._rows.taken and any(event.kind == "agent.stopped" for event in events):
            self._rows.taken_changed.set()

    async def run(self, server: "ParcelConnection") -> None:
        """Until it is cancelled. The next hub goes on."""
        try:
            while True:
                self._rows.taken_changed.clear()
                reports = await self._rows.list_told()
                for key, row in reports.items():
                    child_row = self._rows.taken.get(key)
                    # That it was started is said before anything that it did.
                    if child_row is None or child_row.state != "taken":
                        self._begin("tell", key, partial(self._tell, server, key, row))
                for key, child in list(self._rows.taken.items()):
                    if child.state == "taken":
                        self._begin("start", key, partial(self._start, server, child))
                    elif key not in reports:  # what it did is told before it is removed
                        self._begin("see to", key, partial(self._see_to, child))
                await self._rows.taken_changed.wait()
        finally:
            for task in self._busy.values():
                task.cancel()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    def _begin(self, what: str, key: Key, work: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """Unless somebody is at it: then it is looked at again afterwards."""
        if (what, key) in self._busy:
            self._again.add((what, key))
        else:
            task = asyncio.create_task(self._do(what, key, work), name=f"{what} {key}")
            self._busy[what, key] = task

    async def _do(self, what: str, key: Key, work: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """Top of one step. It is tried again if it fails; looked again if it changed something."""
        is_changed = False
        try:
            is_changed = await work()
        except Exception:
            log.exception(f"cannot {what} a child of the fleet", extra={"child": key[1]})
            await asyncio.sleep(AGAIN_SECONDS)
            is_changed = True
        finally:
            del self._busy[what, key]
        if is_changed or (what, key) in self._again:
            self._again.discard((what, key))
            self._rows.taken_changed.set()

    # ── starting ──

    async def _start(self, server: "ParcelConnection", child: GuestChild) -> bool:
        try:
            if child.is_to_stop:
                raise BullpenError(f"{child.host}/{child.parent} has ended")
            async with self._starting:
                live = await self._start_here(server, child)
        except (BullpenError, OSError) as error:
            why = error.message if isinstance(error, BullpenError) else str(error)
            hint = error.hint if isinstance(error, BullpenError) else ""
            extra = {"host": child.host, "why": why}
            log.warning("a child of another machine was refused", extra=extra)
            refused = why[:MOST_WORDS] or "it could not be started"
            born = Born(id=child.id, refused=refused, hint=(hint or "")[:MOST_WORDS])
            await self._answer(child, born)
            return True
        agent = live.agent
        path = agent.worktree.path if agent.worktree else agent.cwd
        left_out = tuple(name[:MOST_PATH] for name in agent.not_granted)
        await self._answer(
            child, Born(id=child.id, name=agent.name, path=path, not_granted=left_out)
        )
        return True

    async def _answer(self, child: GuestChild, born: Born) -> None:
        """Once: the row says whether it was answered."""
        state = "refused" if born.refused else "started"

        def write(transaction: Transaction) -> GuestChild | None:
            before = self._rows.find_taken(transaction, child.host, child.id)
            if before is None or before.state != "taken":
                return before
            after = before.model_copy(update={"state": state, "name": born.name})
            self._rows.write_taken(transaction, after)
            self._letters.add(transaction, child.host, born)
            return after

        after = await self._rows.write(write)
        if after is not None:
            self._rows.note_taken(after)
        self._letters.changed.set()

    async def _start_here(self, server: "ParcelConnection", child: GuestChild) -> LiveAgent:
        birth, home = child.birth, self._context.home
        if birth.parcel.host != child.host:
            raise BullpenError(f"{child.host} says that {birth.parcel.host} has sent it")
        directory = _clone_of(home, child)
        if not await asyncio.to_thread(_has_commit, directory, birth):
            data = await server.fetch_parcel(birth.parcel)
            await asyncio.to_thread(_unpack, directory, data, birth)
        wish = ChildWish(task=birth.task, branch=birth.branch, role=birth.role, engine=birth.engine)
        here = await asyncio.to_thread(self._birth_here, child, directory)
        return await self._spawner.take_in(birth.id, wish, here)

    def _birth_here(self, child: GuestChild, directory: Path) -> BirthHere:
        birth = child.birth
        parent = Agent(
            name=f"{child.host}/{birth.parent}",
            run="",
            role=birth.parent_role,
            engine=birth.parent_engine,
            is_trusted=birth.is_trusted,
            cwd=str(directory),
            created="",
        )
        return BirthHere(
            parent=parent,
            ceiling=birth.ceiling,
            depth=birth.depth,
            site=open_site(self._context.home, self._context.settings, directory),
            branch=birth.branch,
            base=birth.parcel.commit,
            below=birth.below,
        )

    # ── afterwards ──

    async def _see_to(self, child: GuestChild) -> bool:
        """Make it as its row says; whether it is to be looked at again."""
        live = self._registry.find(child.name) if child.name else None
        if live is None or live.agent.order != child.id:
            await asyncio.to_thread(_forget, self._context.home, child)
            await self._rows.drop_taken(child)
            return False
        parent = f"{child.host}/{child.parent}"
        if live.agent.parent != parent:
            live.agent = live.agent.model_copy(update={"parent": parent})
            await asyncio.to_thread(sessions.rewrite, self._context.home, live.agent)
        if child.is_to_stop and live.is_running:
            family = self._children.family()
            for name in (*family.under(child.name), child.name):
                each = self._registry.find(name)
                if each is not None and each.is_running:
                    await self._stopper.stop(name, None)
        if child.merged and not live.is_running:
            return await self._remove(child, live)
        return False

    async def _remove(self, child: GuestChild, live: LiveAgent) -> bool:
        """Its parent's machine has its work. What `rm` would refuse to remove stays."""
        await self._private_gits.bring_over(live)
        await asyncio.to_thread(_note_merged, child, live.agent)
        try:
            await self._remover.remove(child.name, None)
        except BullpenError as error:
            extra = {"agent": child.name, "why": error.message}
            log.warning("kept a child that has landed", extra=extra)
        await asyncio.to_thread(_forget, self._context.home, child)
        await self._rows.drop_taken(child)
        return False

    # ── telling ──

    async def _tell(self, server: "ParcelConnection", key: Key, row: ChildUpdateRow) -> bool:
        host, id = key
        child, live = self._rows.taken.get(key), self._registry.find(row.agent)
        report = {"event": row.event, "data": row.data, "key": row.key, "is_over": row.is_over}
        update = ChildUpdate.model_validate({"id": id, **_cleaned(report)})
        if child is not None and live is not None and live.agent.order == id:
            update = update.model_copy(update={"used": self._used(live.agent)})
            if row.is_over or row.event in AT_REST:
                update = update.model_copy(update=await self._pack(server, child, live))
        elif row.is_over or row.event in AT_REST:
            update = update.model_copy(update={"problem": "it was removed where it worked"})

        def write(transaction: Transaction) -> None:
            if self._rows.drop_told(transaction, row):
                self._letters.add(transaction, host, update)

        await self._rows.write(write)
        self._letters.changed.set()
        return True

    async def _pack(
        self, server: "ParcelConnection", child: GuestChild, live: LiveAgent
    ) -> dict[str, Any]:
        """What it committed, and what it did not. What a hub that leaves cuts off is no problem of
        the commits: the next one packs them."""
        trees = self._context.trees
        try:
            with trees.repeatable():
                await self._private_gits.bring_over(live)
                look = partial(_look, self._context, child, live.agent)
                tip, bundle, changed = await trees.run(child.name, look)
                parcel: Parcel | None = None
                if bundle:
                    parcel = await server.send_parcel(child.id, bundle, tip)
        except (BullpenError, OSError) as error:
            why = error.message if isinstance(error, BullpenError) else str(error)
            return {"problem": _cleaned(f"its commits stay on {server.host}: {why}"[:MOST_WORDS])}
        return {"tip": tip, "parcel": parcel, "uncommitted": _cleaned(changed)}


def _cleaned(value: Any) -> Any:
    """As a letter carries it: the name of a file may be no UTF-8, a text may end in half a
    character."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_cleaned(key): _cleaned(each) for key, each in value.items()}
        case list() | tuple():
            return type(value)(map(_cleaned, value))
        case _:
            return value


# ── git ──


def _clone_of(home: Home, child: GuestChild) -> Path:
    return home.projects / name_clone(child.host, child.birth.repo_name)


def _has_commit(directory: Path, birth: Birth) -> bool:
    """Whether an earlier hub has fetched it."""
    from bullpen.fleet import bundles

    if not bundles.is_clone(directory):
        return False
    ref = f"{bundles.PINNED}/{birth.id}"
    return bundles.find_commit(open_repository(directory), ref) == birth.parcel.commit


def _forget(home: Home, child: GuestChild) -> None:
    """What its clone remembers of it, if it does."""
    from bullpen.fleet import bundles

    directory = _clone_of(home, child)
    if bundles.is_clone(directory):
        repo = open_repository(directory)
        bundles.unpin(repo, child.id)
        git(repo, "update-ref", "-d", _remote_ref(child))


def _unpack(directory: Path, data: bytes, birth: Birth) -> None:
    from bullpen.fleet import bundles

    bundles.unpack(directory, data, birth.id, birth.parcel.commit)


def _look(
    context: HubContext, child: GuestChild, agent: Agent
) -> tuple[str, bytes, tuple[str, ...]]:
    """The last commit of its branch, what is new of it, and files that are not committed."""
    from bullpen.fleet import bundles

    assert agent.worktree is not None
    site = site_of(context.home, context.settings, agent.worktree)
    changed = worktrees.uncommitted_files(site, agent.worktree.name)
    base = child.birth.parcel.commit
    packed = bundles.pack_result(site.repo, child.id, child.birth.branch, base)
    files = tuple(name[:MOST_PATH] for name in changed[:MOST_FILES])
    return (packed[1], packed[0], files) if packed else (base, b"", files)


def _note_merged(child: GuestChild, agent: Agent) -> None:
    """So nothing is lost with its branch: it is a branch of that machine, too."""
    if agent.worktree is not None:
        repo = open_repository(Path(agent.worktree.repo))
        git(repo, "update-ref", _remote_ref(child), child.merged, accept=(0, 128))


def _remote_ref(child: GuestChild) -> str:
    return f"refs/remotes/{child.host}/{child.birth.branch}"
