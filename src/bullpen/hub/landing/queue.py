"""The landing queue: takes entries, and works them off, one round at a time for each target.

A part of the hub. A round builds all that wait for a target on top of each other, verifies the
result, finds the one that breaks it if one does, and moves the target. Every state is on disk
before the step that it names; `load` goes on where a hub that was killed was. Called by
`http/landings` and `merge_child`. Never lands what nobody asked for: an entry ends with the
worktree whose work it is.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import Registry
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.hub.landing import steps
from bullpen.hub.landing.authors import Authors
from bullpen.hub.landing.book import LandingBook
from bullpen.hub.landing.round import Rounds, SendElsewhere
from bullpen.hub.landing.steps import Verifier
from bullpen.hub.landing.subjects import (
    Subject,
    choose_target,
    find_rules,
    find_subject,
    load_author_role,
)
from bullpen.hub.messages.deliver import Delivery
from bullpen.model.event import Event
from bullpen.model.fleet_child import RemoteChild
from bullpen.model.landing import (
    Building,
    CameBack,
    Cancelled,
    Landing,
    LandingRequest,
    Moving,
    Verifying,
    Waiting,
    ask_again,
    begin_again,
    cancel_removed,
    is_about_same,
    is_protected,
    next_batch,
    note_of,
    take_newer,
)

log = logging.getLogger("bullpen.hub")

LOOK_SECONDS = 2.0  # between looks for newer commits of what came back
FAILED_SECONDS = 5.0  # a full disk, most often

Queue = tuple[str, str]  # repository and target


class Landings:
    """All queues of one hub."""

    def __init__(
        self,
        context: HubContext,
        book: LandingBook,
        registry: Registry,
        private_gits: PrivateGits,
        delivery: Delivery,
        send_elsewhere: SendElsewhere,
        find_elsewhere: Callable[[str], RemoteChild | None],
        background: Background,
    ) -> None:
        self._context = context
        self._home = context.home
        self._book = book
        self._registry = registry
        self._private_gits = private_gits
        self._background = background
        verifier = Verifier(context.home, context.person)
        self._authors = Authors(registry, find_elsewhere)
        self._rounds = Rounds(book, self._authors, delivery, send_elsewhere, verifier)
        self._workers: dict[Queue, asyncio.Task[None]] = {}
        self._asking = asyncio.Lock()
        self._is_ready = asyncio.Event()  # what an earlier hub left is dealt with
        self._is_leaving = False

    # ── the life of the part ──

    async def load(self) -> None:
        """What earlier hubs had not finished: `list` says it from the beginning."""
        await self._book.load()

    async def run(self) -> None:
        """Deal with what a killed hub left, then work, and look for newer commits."""
        unfinished = [each for each in self._book.open.values() if not each.is_over]
        for repo in sorted({landing.repo for landing in unfinished}):
            await self._recover(repo)
        await self._look_for_removed(list(self._book.open.values()))
        self._is_ready.set()
        for landing in list(self._book.open.values()):
            if isinstance(landing.status, CameBack):
                await self._rounds.tell_author(landing, landing.status)
            self._kick(landing.queue)
        while True:
            changed = self._book.changed
            if self._came_back():
                await asyncio.sleep(LOOK_SECONDS)
                await self._look_for_newer()
            else:
                await changed.wait()

    def leave(self) -> None:
        """The hub stops: whoever waits is let go, and the next hub goes on."""
        self._is_leaving = True
        self._book.announce()

    def notice(self, events: Iterable[Event]) -> None:
        """A turn that ended may have brought the commit that an entry waits for."""
        names = {landing.name for landing in self._came_back()}
        for event in events if names else ():
            if event.kind == "agent.state" and event.agent in names:
                self._background.begin(self._look_for_newer(), f"commits of {event.agent}")

    # ── called by others ──

    async def ask(self, request: LandingRequest) -> list[Landing]:
        """Put them into the queue, all or none; each is on disk when this returns."""
        entries = [await self.plan(name, request) for name in dict.fromkeys(request.names)]
        return await self.put_in(entries)

    async def put_in(self, wanted: Sequence[Landing]) -> list[Landing]:
        """Entries that were checked. What is in the queue already stays one entry."""
        await self._is_ready.wait()  # until then entries are moved that an earlier hub left
        async with self._asking:
            entries = [self._merged(landing) for landing in wanted]
            # One that somebody is at stays as it is: its next state may be on its way to the disk.
            known = self._book.open
            await self._book.keep(*(each for each in entries if known.get(each.id) is not each))
        for landing in entries:
            self._kick(landing.queue)
        await self._book.forget_old()
        return entries

    async def cancel(self, name: str) -> list[Landing]:
        """Take the entries of that name, or the one of that id, out of their queues. What verifies
        them is ended; one whose target is being moved stays."""
        named = [each for each in self._book.open.values() if name in (each.name, each.id)]
        ids = [each.id for each in named if not each.is_over]
        hint = "bullpen land --list"
        if not ids:
            why = f"nothing of {name} waits to land"
            raise BullpenError(why, hint=hint, kind=Kind.NOT_FOUND)
        self._rounds.unwanted.update(ids)
        ended = [await self._cancel(id) for id in ids]
        # Not before: a round that was cut off would take that for a failure.
        self._rounds.unwanted.difference_update(ids)
        cancelled = [each for each in ended if isinstance(each.status, Cancelled)]
        if not cancelled:
            why = f"{name} is being landed just now"
            raise BullpenError(why, hint=hint, kind=Kind.CONFLICT)
        return cancelled

    async def _cancel(self, id: str) -> Landing:
        """As it is then. One that a round is at is taken out by that, when nothing of it runs any
        more: killed before, the next hub begins it again, and nobody was told otherwise."""
        while True:
            changed = self._book.changed
            async with self._asking:
                landing = await self._book.get(id)
                match landing.status:
                    case Waiting() | CameBack():
                        (landing,) = await self._book.move_all([landing], Cancelled(at=time.time()))
                        return landing
                    case Building() | Verifying():
                        pass
                    case _:
                        return landing
            if self._is_leaving:
                raise BullpenError("the hub stops", hint="ask again", kind=Kind.UNAVAILABLE)
            await changed.wait()

    async def cancel_removed(self, name: str) -> None:
        """Something of that name was removed: what of it waits to land is taken out. One that is
        being landed just now its round takes out, before it moves the target."""
        await self._look_for_removed([e for e in self._book.open.values() if e.name == name])

    async def find(self, *, everything: bool = False) -> list[Landing]:
        """Those that are not over; with `everything` also those that were lately."""
        if everything:
            return [self._authors.as_now(landing) for landing in await self._book.last()]
        left = [landing for landing in self._book.open.values() if not landing.is_over]
        return [self._authors.as_now(landing) for landing in left]

    async def get(self, id: str, wait_seconds: float = 0.0) -> Landing:
        """One entry; not before nothing more happens to it, or so long."""
        deadline = time.monotonic() + wait_seconds
        while True:
            changed = self._book.changed
            landing = await self._book.get(id)
            left = deadline - time.monotonic()
            if landing.is_resting or left <= 0 or self._is_leaving:
                return self._authors.as_now(landing)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), left)

    async def read_output(self, id: str) -> str:
        """What the command that verifies it has written, the end of it; empty if none did."""
        return await self._book.read_output(await self._book.get(id))

    async def wait_resting(self, id: str) -> Landing:
        """One entry when nothing more happens to it. A hub that stops lets nobody go who waits
        here: the next one is asked."""
        while True:
            changed = self._book.changed
            landing = await self._book.get(id)
            if landing.is_resting:
                return landing
            await changed.wait()

    def notes(self) -> dict[str, str]:
        """What waits to land and why, by name of the agent."""
        return {each.name: note for each in self._book.open.values() if (note := note_of(each))}

    # ── taking in ──

    async def plan(self, name: str, request: LandingRequest) -> Landing:
        """What is to land, checked: what can be refused is refused before it is acknowledged.
        Nothing is in the queue yet."""
        live = self._registry.find(name)
        if live is not None:
            await self._private_gits.bring_over(live)
        agent = live.agent if live is not None else None
        find = partial(find_subject, self._home, self._context.settings, name, agent)
        return await self._context.trees.run(name, lambda: self.check(find(), request))

    def check(self, subject: Subject, request: LandingRequest) -> Landing:
        """The entry that a request means. In a thread."""
        target = choose_target(subject, request.into)
        rules = find_rules(self._home, self._context.settings, subject.site)
        if is_protected(target, rules.protected):
            raise BullpenError(
                f"{target} is protected: nothing lands there",
                hint="landing.protected in config.yaml or the project's file · or another --into",
                kind=Kind.DENIED,
            )
        role = load_author_role(self._home, subject)
        return Landing(
            id=f"l-{secrets.token_hex(4)}",
            name=subject.name,
            repo=str(subject.site.repo.common_dir),
            base_dir=str(subject.site.base),
            branch=subject.branch,
            birth=subject.birth,
            has_worktree=subject.has_worktree,
            is_of_agent=subject.is_of_agent,
            target=target,
            tip=subject.tip,
            strategy=request.strategy or rules.strategy,
            verify=(rules.verify or "") if request.verify is None else request.verify,
            is_verify_given=request.verify is not None,
            timeout_seconds=rules.timeout.total_seconds(),
            role=subject.role,
            pod=subject.pod,
            overrides=subject.overrides,
            ceiling=subject.ceiling,
            network=role is None or role.sandbox.allow_network,
            created=time.time(),
        )

    def _merged(self, wanted: Landing) -> Landing:
        for landing in self._book.open.values():
            if is_about_same(landing, wanted) and not landing.is_over:
                again = ask_again(landing, wanted)
                if again is not None:
                    return again
        return wanted

    # ── working ──

    def _kick(self, queue: Queue) -> None:
        """See to it that somebody works on that queue."""
        is_time = self._is_ready.is_set() and not self._is_leaving
        has_work = self._waiting(queue) or self._halfway(queue)
        if is_time and queue not in self._workers and has_work:
            task = self._background.begin(self._work(queue), f"landing in {queue[1]}")
            self._workers[queue] = task
            task.add_done_callback(lambda _: self._worker_failed(queue))

    def _worker_failed(self, queue: Queue) -> None:
        """One that has done its work is out of the table already."""
        if self._workers.pop(queue, None) is not None and not self._is_leaving:
            asyncio.get_running_loop().call_later(FAILED_SECONDS, self._kick, queue)

    def _waiting(self, queue: Queue) -> list[Landing]:
        return [
            landing
            for landing in self._book.open.values()
            if landing.queue == queue and isinstance(landing.status, Waiting)
        ]

    async def _work(self, queue: Queue) -> None:
        await self._take_up(self._halfway(queue))
        while self._waiting(queue):
            async with self._asking:  # none of them is cancelled from here on
                batch = next_batch(self._waiting(queue))
                batch = await self._book.move_all(batch, Building())
            if batch:
                await self._try(batch)
        del self._workers[queue]  # nothing may come between this and the look before it

    async def _try(self, batch: Sequence[Landing]) -> None:
        try:
            await self._rounds.run(batch)
        except (BullpenError, OSError) as error:
            await self._end(batch, error)
        except Exception as error:  # whatever it is, nobody waits for it for ever
            log.exception("a round of landings failed", extra={"target": batch[0].target})
            why = f"the hub failed ({type(error).__name__}); its log says where"
            await self._end(batch, BullpenError(why, hint="bullpen land NAME tries it again"))

    async def _end(self, batch: Sequence[Landing], error: BullpenError | OSError) -> None:
        """What has landed has landed; the others are refused with the reason."""
        now = [self._book.open[each.id] for each in batch if each.id in self._book.open]
        await self._take_up(now, only_landed=True)
        await self._rounds.refuse(batch, error)

    def _halfway(self, queue: Queue) -> list[Landing]:
        """Entries that nobody is at, when nobody works on their queue: the disk was full when it
        was to be written what became of them."""
        halfway = Building | Verifying | Moving
        those = [each for each in self._book.open.values() if each.queue == queue]
        return [each for each in those if isinstance(each.status, halfway)]

    async def _take_up(self, landings: Sequence[Landing], *, only_landed: bool = False) -> None:
        """Entries of one queue that were left in the middle of a round: landed, or to be tried
        again."""
        if not landings:
            return
        moving = [landing for landing in landings if isinstance(landing.status, Moving)]
        landed: set[str] = set()
        if moving:
            site = await self._book.in_thread(moving[0], partial(self._book.site, moving[0]))
            landed = await self._book.to_end(partial(steps.find_landed, site, moving))
        now = time.time()
        await self._book.keep(
            *(
                begin_again(landing, has_landed=landing.id in landed, at=now)
                for landing in landings
                if landing.id in landed or not only_landed
            )
        )

    # ── what came back ──

    def _came_back(self) -> list[Landing]:
        return [each for each in self._book.open.values() if isinstance(each.status, CameBack)]

    async def _look_for_newer(self) -> None:
        """Entries that came back take the newest commit of their branch, unless their worktree was
        removed: then it is not of their author."""
        back = self._came_back()
        for repo in sorted({landing.repo for landing in back}):
            those = [landing for landing in back if landing.repo == repo]
            try:
                # Not the thread of its queue, which may be at a verification for long.
                tips, removed = await self._context.trees.run_repeatable(
                    f"commits of {repo}", partial(self._find_tips, those)
                )
            except (BullpenError, OSError) as error:
                log.warning("cannot look for newer commits", extra={"why": str(error)})
                continue
            await self._take_out(removed)
            await self._take_newer([each for each in those if each.id not in removed], tips)

    def _find_tips(self, landings: Sequence[Landing]) -> tuple[dict[str, str], set[str]]:
        """The worktrees are looked at last: a commit that was found before is of one of them."""
        site = self._book.site(landings[0])
        tips = steps.find_tips(site, [landing.branch for landing in landings])
        return tips, steps.find_removed(site, landings)

    async def _take_newer(self, landings: Sequence[Landing], tips: dict[str, str]) -> None:
        async with self._asking:
            newer = []
            for landing in landings:
                now = self._book.open.get(landing.id)
                taken = take_newer(now, tips.get(now.branch, now.tip)) if now else None
                if taken is not None and taken is not now:
                    newer.append(taken)
            await self._book.keep(*newer)
        for landing in newer:
            self._kick(landing.queue)

    # ── what was removed ──

    async def _look_for_removed(self, landings: Sequence[Landing]) -> None:
        """Take out those whose worktree is gone, or is another one of that name."""
        left = [landing for landing in landings if not landing.is_over]
        for repo in sorted({landing.repo for landing in left}):
            those = [landing for landing in left if landing.repo == repo]
            try:
                removed = await self._context.trees.run_repeatable(
                    f"commits of {repo}", partial(self._find_removed, those)
                )
            except (BullpenError, OSError) as error:  # no answer does not mean that it is gone
                log.warning("cannot look for what is to land", extra={"why": str(error)})
                continue
            await self._take_out(removed)

    def _find_removed(self, landings: Sequence[Landing]) -> set[str]:
        return steps.find_removed(self._book.site(landings[0]), landings)

    async def _take_out(self, ids: Collection[str]) -> None:
        async with self._asking:
            now = [self._book.open[id] for id in ids if id in self._book.open]
            waiting = [each for each in now if isinstance(each.status, Waiting | CameBack)]
            await self._book.keep(*map(self._cancelled, waiting))

    def _cancelled(self, landing: Landing) -> Landing:
        has_agent = self._registry.find(landing.name) is not None
        return cancel_removed(landing, has_agent=has_agent, at=time.time())

    # ── after a crash ──

    async def _recover(self, repo: str) -> None:
        here = [each for each in self._book.open.values() if each.repo == repo]
        those = [landing for landing in here if not landing.is_over]
        find = partial(self._book.site, those[0])
        try:
            landed = await self._book.to_end(partial(steps.recover_queue, find, those))
        except (BullpenError, OSError) as error:
            log.warning("cannot go on with landings", extra={"repo": repo, "why": str(error)})
            landed = set()
        now = time.time()
        again = [begin_again(each, has_landed=each.id in landed, at=now) for each in those]
        moved = [new for old, new in zip(those, again, strict=True) if new is not old]
        await self._book.keep(*moved)
