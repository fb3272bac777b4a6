"""Children that agents of this machine have started on others: what their hubs say of them, and
what they are told.

What is said comes as letters, in their order, each once; only the host on which a child was started
says anything of it. Its commits are in the repository here before its parent hears of them.
"""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bullpen.errors import BullpenError
from bullpen.hub.agents.registry import Registry
from bullpen.hub.context import HubContext
from bullpen.hub.fleet_children.rows import ChildRows
from bullpen.hub.landing.book import LandingBook
from bullpen.hub.messages.letters import Letters
from bullpen.hub.store.transaction import Transaction
from bullpen.hub.tree.children import Children
from bullpen.hub.tree.queue import NewEvent, Queue, Receiver
from bullpen.hub.usage.delegated import DelegatedCosts, Spent
from bullpen.model.child_letter import Born, ChildUpdate, Merged, Orphaned, Used
from bullpen.model.fleet_child import RemoteChild, note_late, note_update, spent_since
from bullpen.model.landing import Landing
from bullpen.model.letter import Letter
from bullpen.model.message import ROOT
from bullpen.model.parcel import Parcel
from bullpen.model.role import OrphansRule
from bullpen.worktrees.git import git, open_repository

if TYPE_CHECKING:
    from bullpen.fleet.parcels import ParcelConnection

log = logging.getLogger("bullpen.hub")

LATE_SECONDS = 60.0  # that somebody waits for what did not arrive at first
REFUSED_SECONDS = 3600.0  # whoever asks again within that time gets the same answer


class RemoteChildren:
    """All of them."""

    def __init__(
        self,
        context: HubContext,
        registry: Registry,
        rows: ChildRows,
        letters: Letters,
        children: Children,
        queue: Queue,
        costs: DelegatedCosts,
        book: LandingBook,
    ) -> None:
        self._context = context
        self._registry = registry
        self._rows = rows
        self._letters = letters
        self._children = children
        self._queue = queue
        self._costs = costs
        self._book = book
        self.server: ParcelConnection | None = None
        self._fetching: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by child

    async def load(self) -> None:
        """What earlier hubs knew. Who has ended and whose parent is gone is nobody's any more."""
        for child in await self._rows.load():
            await asyncio.to_thread(_unpin, child)
        for child in list(self._rows.remote.values()):
            if child.is_over and self._registry.find(child.parent) is None:
                await self._rows.drop_asked(child)
                await asyncio.to_thread(_unpin, child)
            elif child.is_living:
                self.note_open(child)

    async def forget_refused(self) -> None:
        """Those of which nobody asks any more."""
        for child in list(self._rows.remote.values()):
            if child.state == "refused" and child.at < time.time() - REFUSED_SECONDS:
                await self._rows.drop_asked(child)

    # ── what is spent ──

    def note_open(self, child: RemoteChild) -> None:
        """It has a part of its parent's budget."""
        spent = _spent(child.used, child.settled)
        self._costs.note_open(_giver(child), child.id, child.ceiling.budget, spent)

    def note_refused(self, child: RemoteChild) -> None:
        """It has nothing of it."""
        self._costs.note_over(_giver(child), child.id, Spent())

    # ── what their hosts say ──

    async def take_born(self, host: str, letter: Letter, born: Born) -> None:
        """Whether it was started. NotNextError if it is not the letter's turn."""
        child = self._find(host, born.id)
        if child is None or child.state != "sent":
            await self._take_nothing(host, letter)
            return
        to = self._children.heir_of(child.parent)

        def change(now: RemoteChild) -> RemoteChild:
            if born.refused or not born.name:
                why = {"state": "refused", "why": born.refused, "hint": born.hint}
                return now.model_copy(update=why)
            fields = {"name": born.name, "path": born.path, "not_granted": born.not_granted}
            return now.model_copy(update={"state": "started", **fields})

        def also(transaction: Transaction, now: RemoteChild) -> None:
            self._letters.take(transaction, host, letter)
            if now.state == "refused" and now.is_unknown:  # who asked waits no longer
                data = {"how": "never started", "reason": now.why}
                key = f"fleet:{host}:{now.id}:refused"
                event = NewEvent(to, "child_exited", now.full_name, data, key)
                self._queue.write(transaction, event)

        child = await self._rows.change_asked(born.id, change, also)
        self._queue.wake(to.name)
        if child.state == "refused":
            self.note_refused(child)
            await asyncio.to_thread(_unpin, child)

    async def take_update(
        self, host: str, letter: Letter, update: ChildUpdate, server: "ParcelConnection"
    ) -> None:
        """What one did. NotNextError as above."""
        async with self._fetching[update.id]:
            await self._take_letter(host, letter, update, server)

    async def _take_letter(
        self, host: str, letter: Letter, update: ChildUpdate, server: "ParcelConnection"
    ) -> None:
        child = self._find(host, update.id)
        if child is None or child.state != "started":
            extra = {"host": host, "child": update.id}
            log.warning("refused a report of a child that was not started there", extra=extra)
            await self._take_nothing(host, letter)
            return
        branch, problem = await self._take_commits(host, child, update, server)
        to = self._children.heir_of(child.parent)
        if child.parent != ROOT and to.name == child.parent and to.born != child.born:
            to = Receiver(ROOT)  # another agent has that name now
        now, spent = time.time(), _spent(update.used, child.settled)

        def also(transaction: Transaction, after: RemoteChild) -> None:
            self._letters.take(transaction, host, letter)
            if update.event:
                data = {**update.data, **({"problem": problem} if problem else {})}
                key = f"fleet:{host}:{child.id}:{update.key}"
                event = NewEvent(to, update.event, child.full_name, data, key)
                self._queue.write(transaction, event)
            if after.is_over:
                self._costs.write(transaction, _giver(child), spent)

        after = await self._rows.change_asked(
            update.id, lambda before: note_update(before, update, now, branch, problem), also
        )
        if after.is_over:
            self._costs.note_over(_giver(child), child.id, spent)
        else:
            self.note_open(after)
        self._queue.wake(to.name)
        self._book.announce()  # what has landed may be cleaned up now

    def _find(self, host: str, id: str) -> RemoteChild | None:
        child = self._rows.remote.get(id)
        return child if child is not None and child.host == host else None

    async def _take_nothing(self, host: str, letter: Letter) -> None:
        """It must not hold up the others of its line."""
        await self._rows.write(lambda transaction: self._letters.take(transaction, host, letter))

    async def _take_commits(
        self, host: str, child: RemoteChild, update: ChildUpdate, server: "ParcelConnection"
    ) -> tuple[str, str]:
        """The branch that its last commits are on now, if they are new; and why they are not. May
        be repeated."""
        sent = update.parcel
        if sent is None or update.problem:
            return "", update.problem
        if update.tip == child.tip:
            return child.home_branch, ""
        if sent.host != host or sent.commit != update.tip:
            return "", f"its commits did not arrive: {host} says that {sent.host} has sent it"
        return await self._fetch(child, sent, server)

    async def _fetch(
        self, child: RemoteChild, sent: Parcel, server: "ParcelConnection"
    ) -> tuple[str, str]:
        """As above."""
        try:
            data = await server.fetch_parcel(sent)
            take = partial(_take_branch, child, data, sent.commit)
            return await asyncio.to_thread(take), ""
        except (BullpenError, OSError) as error:
            why = error.message if isinstance(error, BullpenError) else str(error)
            return "", f"its commits did not arrive: {why}"

    async def fetch_late(self, child: RemoteChild) -> RemoteChild:
        """As it is after another try to have what did not arrive, if there is something."""
        async with self._fetching[child.id]:
            now, server = self._rows.remote.get(child.id), self.server
            if now is None or now.late is None or now.late.host != now.host or server is None:
                return now or child
            late = now.late
            try:
                async with asyncio.timeout(LATE_SECONDS):
                    branch, problem = await self._fetch(now, late, server)
            except TimeoutError:
                return now
            return await self._rows.change_asked(
                child.id, lambda row: note_late(row, late, branch, problem)
            )

    async def fetch_all_late(self) -> None:
        """Those of all. The machine is connected again: what stood in the way may be gone."""
        for child in list(self._rows.remote.values()):
            await self.fetch_late(child)

    # ── what they are told ──

    def list_parents(self) -> set[str]:
        """The agents that have children elsewhere which live."""
        return {child.parent for child in self._rows.remote.values() if child.is_living} - {ROOT}

    async def orphan(self, parent: str, rule: OrphansRule, heir: str) -> None:
        """That agent has ended. Have its children stopped, or give them to the heir. May be asked
        again."""
        for child in self._rows.list_of(parent):
            is_done = rule == "keep" or (rule == "stop" and child.is_stopping)
            if child.is_living and child.state != "asked" and not is_done:
                await self._orphan(child, rule, self._children.receiver(heir))

    async def _orphan(self, child: RemoteChild, rule: OrphansRule, heir: Receiver) -> None:
        is_adopted = rule == "adopt"
        letter = Orphaned(
            id=child.id, is_to_stop=not is_adopted, heir=heir.name if is_adopted else ""
        )

        def change(now: RemoteChild) -> RemoteChild:
            if is_adopted:
                return now.model_copy(update={"parent": heir.name, "born": heir.born})
            return now.model_copy(update={"is_stopping": True})

        def also(transaction: Transaction, now: RemoteChild) -> None:
            self._letters.add(transaction, now.host, letter)

        after = await self._rows.change_asked(child.id, change, also)
        if is_adopted:
            self.note_refused(child)  # its part is of another's budget now
            self.note_open(after)
        self._letters.changed.set()

    def is_living(self, name: str) -> bool:
        """As far as anybody knows."""
        child = self._rows.find_named(name)
        return child is not None and child.is_living

    async def merged(self, landing: Landing) -> None:
        """Its parent has its work, and it has ended: its branch goes here, and it there. May be
        asked again."""
        child = self._rows.find_named(landing.name)
        if child is None or not child.is_over:
            return
        if child.tip != landing.tip or child.late is not None:
            return  # there is something newer to land
        await asyncio.to_thread(_drop_branch, child)
        letter = Merged(id=child.id, tip=child.tip)

        def also(transaction: Transaction) -> None:
            self._letters.add(transaction, child.host, letter)

        await self._rows.drop_asked(child, also)
        self._letters.changed.set()


def _giver(child: RemoteChild) -> tuple[str, str]:
    return child.parent, child.born


def _spent(used: Used, before: Used) -> Spent:
    return Spent(**spent_since(used, before).model_dump())


def _take_branch(child: RemoteChild, data: bytes, tip: str) -> str:
    """In a thread."""
    from bullpen.fleet import bundles

    repo = open_repository(Path(child.repo))
    name = bundles.take_result(repo, data, child.id, child.branch, child.tip)
    if bundles.find_commit(repo, f"refs/heads/{name}") != tip:
        raise BullpenError("the bundle has another commit than was told")
    return name


def _drop_branch(child: RemoteChild) -> None:
    """Unless somebody has gone on with it, or looks at it: git would leave a checkout without its
    branch. In a thread."""
    if child.home_branch:
        repo, ref = open_repository(Path(child.repo)), f"refs/heads/{child.home_branch}"
        checked_out = git(repo, "for-each-ref", "--format=%(worktreepath)", ref).text.strip()
        if not checked_out:
            git(repo, "update-ref", "-d", ref, child.tip, accept=(0, 1, 128))
    _unpin(child)


def _unpin(child: RemoteChild) -> None:
    """Fine if its repository is gone. In a thread."""
    from bullpen.fleet import bundles

    with contextlib.suppress(BullpenError):
        bundles.unpin(open_repository(Path(child.repo)), child.id)
