"""One round of a queue: all that wait for a target are built, verified together, and landed.

Every state is on disk before the step that it names. Called by `queue`, for one target at a time.
What breaks the verification is found by halving; it comes back to its author, and so does what
conflicts with the target. What stands in the way of the target's checkout is the person's to solve.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from bullpen.errors import BullpenError
from bullpen.hub.landing import steps
from bullpen.hub.landing.authors import Authors
from bullpen.hub.landing.book import LandingBook
from bullpen.hub.landing.steps import Chain, Link, Verifier
from bullpen.hub.messages.deliver import Delivery
from bullpen.model.landing import (
    Building,
    CameBack,
    Cancelled,
    Landed,
    Landing,
    Moving,
    Refused,
    Verifying,
    Waiting,
    cancel_removed,
    message_id,
    message_to_author,
    move,
    next_probe,
    refusal_of,
)
from bullpen.model.message import BULLPEN, ROOT, Message
from bullpen.model.tree import is_elsewhere
from bullpen.worktrees import Site
from bullpen.worktrees.landing.checked_out import InTheWayError
from bullpen.worktrees.landing.fast_forward import TargetMovedError
from bullpen.worktrees.landing.scratch import Verified

log = logging.getLogger("bullpen.hub")

MOVED_SECONDS = 0.2

# A message to an agent of another machine, and which agent of this one wrote it.
SendElsewhere = Callable[[Message, str], Awaitable[Message]]


class Rounds:
    """Does the rounds of all queues."""

    def __init__(
        self,
        book: LandingBook,
        authors: Authors,
        delivery: Delivery,
        send_elsewhere: SendElsewhere,
        verifier: Verifier,
    ) -> None:
        self._book = book
        self._authors = authors
        self._delivery = delivery
        self._send_elsewhere = send_elsewhere
        self._verifier = verifier
        self.unwanted: set[str] = set()  # ids that somebody cancels while a round is at them

    async def run(self, batch: Sequence[Landing]) -> None:
        """One try for all of them."""
        first = batch[0]
        site = await self._book.in_thread(first, partial(self._book.site, first))
        work = partial(steps.build_chain, site, self._verifier.home, batch, first.target)
        chain = await self._book.in_thread(first, work)
        if await self._cancel_some(site, batch):
            await self._wait_again(batch)  # without those
            return
        await self._tell_unfit(batch, chain)
        left = [link.landing for link in chain.links]
        await self._wait_again(each for each in batch if each not in left)  # for their own round
        if not left:
            return
        good, failed, seconds = len(chain.links), None, None
        if first.verify and chain.links[-1].commit != chain.base:
            good, failed, seconds = await self._verify(site, chain)
            if await self._cancel_some(site, left):  # that takes long
                await self._wait_again(left)
                return
        if failed is not None:
            bad = chain.links[good].landing
            await self._bring_back(
                bad,
                CameBack(
                    why="verify",
                    base=chain.base,
                    problem=failed.problem,
                    output=failed.tail,
                    at=time.time(),
                ),
            )
        if good:
            await self._move_target(site, chain, chain.links[:good], seconds)
        await self._wait_again(left)

    async def _cancel_some(self, site: Site, landings: Sequence[Landing]) -> bool:
        """Take out those whose worktree was removed meanwhile, and those that somebody cancels;
        whether there were any. What was built has their commits in it."""
        find = partial(steps.find_removed, site, landings)
        removed = await self._book.in_thread(landings[0], find)
        now = [self._book.open[landing.id] for landing in landings]
        at = time.time()
        gone = [
            cancel_removed(each, has_agent=self._authors.is_agent(each), at=at)
            for each in now
            if each.id in removed
        ]
        unwanted = self.unwanted - removed
        gone += [move(each, Cancelled(at=at)) for each in now if each.id in unwanted]
        await self._book.keep(*gone)
        return bool(gone)

    async def _tell_unfit(self, batch: Sequence[Landing], chain: Chain) -> None:
        """Those that conflict with the target come back, others are refused."""
        for landing in batch:
            if landing.id in chain.refused:
                await self.refuse([landing], chain.refused[landing.id])
            elif landing.id in chain.back:
                files = chain.back[landing.id]
                back = CameBack(why="conflict", base=chain.base, files=files, at=time.time())
                await self._bring_back(landing, back)

    async def _wait_again(self, landings: Iterable[Landing]) -> None:
        """Those that are still in the middle of the round."""
        now = [self._book.open[each.id] for each in landings if each.id in self._book.open]
        busy = [each for each in now if isinstance(each.status, Building | Verifying | Moving)]
        await self._book.move_all(busy, Waiting())

    # ── verifying ──

    async def _verify(self, site: Site, chain: Chain) -> tuple[int, Verified | None, float | None]:
        """How many of the first links are good, what the next one did wrong, and how long the
        good ones took. When somebody cancels one of them it is cut off, and says nothing."""
        count = len(chain.links)
        failures: dict[int, Verified] = {}
        good, bad, seconds = 0, count + 1, None
        probe: int | None = count
        while probe is not None and self._is_wanted(chain):
            verified = await self._verify_first(site, chain, probe)
            if verified.problem:
                bad, failures[probe] = probe, verified
            else:
                good, seconds = probe, verified.seconds
            probe = next_probe(good, bad) if good < count else None
        return good, failures.get(good + 1), seconds

    async def _verify_first(self, site: Site, chain: Chain, count: int) -> Verified:
        links = chain.links[:count]
        commit = links[-1].commit
        if commit == chain.base:
            return Verified("", "", 0.0)
        now = [self._book.open[link.landing.id] for link in links]
        landings = await self._book.move_all(now, Verifying(base=chain.base, commit=commit))
        log_file = self._book.log_of(landings[-1].id)
        is_wanted = partial(self._is_wanted, chain)
        work = partial(self._verifier.run, site, landings, commit, log_file, is_wanted)
        try:
            return await self._book.in_thread(landings[0], work)
        except BullpenError:
            if is_wanted():
                raise
            return Verified("it was cancelled", "", 0.0)

    def _is_wanted(self, chain: Chain) -> bool:
        """Also called in a thread."""
        return all(link.landing.id not in self.unwanted for link in chain.links)

    # ── moving ──

    async def _move_target(
        self, site: Site, chain: Chain, links: Sequence[Link], seconds: float | None
    ) -> None:
        landings = []
        for link in links:
            now = self._book.open[link.landing.id]
            landings.append(move(now, Moving(base=chain.base, commit=link.commit)))
        await self._book.keep(*landings)
        checkout = ""
        if links[-1].commit != chain.base:
            work = partial(steps.move_target, site, landings[0].target, links, chain.base)
            try:
                moved = await self._book.to_end(work)
            except TargetMovedError:
                await self._book.move_all(landings, Waiting())
                await asyncio.sleep(MOVED_SECONDS)  # for whoever moves it, or cancels these
                return
            except InTheWayError as error:
                await self._refuse_blocked(site, landings, links, error)
                return
            checkout = str(moved.checkout or "")
        await self._book.keep(
            *(
                move(
                    landing,
                    Landed(
                        commit=link.commit,
                        base=link.before,
                        is_there=link.is_there,
                        verified_seconds=None if link.is_there else seconds,
                        checkout=checkout,
                        at=time.time(),
                    ),
                )
                for landing, link in zip(landings, links, strict=True)
            )
        )

    async def _refuse_blocked(
        self, site: Site, landings: Sequence[Landing], links: Sequence[Link], error: InTheWayError
    ) -> None:
        """Only those that change what is in the way; the others are tried without them."""
        find = partial(steps.find_blocked, site, links, error)
        blocked = await self._book.to_end(find)
        await self.refuse([each for each in landings if each.id in blocked], error)
        await self._book.move_all([each for each in landings if each.id not in blocked], Waiting())

    # ── what does not land ──

    async def refuse(self, landings: Iterable[Landing], error: BullpenError | OSError) -> None:
        now = [self._book.open[each.id] for each in landings if each.id in self._book.open]
        now = [each for each in now if not each.is_resting]
        files = tuple(error.files) if isinstance(error, InTheWayError) else ()
        refused = Refused(
            message=error.message if isinstance(error, BullpenError) else str(error),
            hint=error.hint if isinstance(error, BullpenError) else "",
            files=files,
            at=time.time(),
        )
        await self._book.move_all(now, refused)

    async def _bring_back(self, landing: Landing, back: CameBack) -> None:
        if landing.task:
            await self._book.move_all([self._book.open[landing.id]], refusal_of(landing, back))
            return
        is_agent = self._authors.is_agent(landing)
        running = self._authors.is_running(landing)
        back = back.model_copy(update={"is_agent_told": is_agent, "is_agent_running": running})
        now = move(self._book.open[landing.id], back)
        await self._book.keep(now)
        await self.tell_author(now, back)

    async def tell_author(self, landing: Landing, back: CameBack) -> None:
        """Who cannot be told finds it in the list; a later hub tries again."""
        try:
            await self._tell_author(landing, back)
        except BullpenError as error:  # too many wait for another machine, most often
            extra = {"agent": landing.name, "why": error.message}
            log.warning("cannot tell whose work came back", extra=extra)

    async def _tell_author(self, landing: Landing, back: CameBack) -> None:
        message = Message(
            id=message_id(landing, back),
            sender=BULLPEN,
            to=landing.name if self._authors.is_agent(landing) else ROOT,
            text=message_to_author(landing, back),
            quotes=True,
            created=time.time(),
        )
        if is_elsewhere(landing.name):
            # To another machine it is its parent's word: nothing else may write to it from here.
            await self._send_elsewhere(
                message.model_copy(update={"sender": landing.by}), landing.by
            )
        else:
            await self._delivery.send(message)
