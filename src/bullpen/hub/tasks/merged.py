"""What becomes of the worktrees of tasks whose work has landed in the branch of who gave them: each
goes, with its branch, when nobody can go on in it any more.

A part of the hub. While the goal for which the task was given is open, or the agent in a terminal
that gave it runs, its conversation may be continued there. What `worktree remove` would refuse to
remove stays.
"""

import contextlib
import logging
from collections.abc import Iterable
from functools import partial

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.hub.agents.registry import Registry
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.hub.landing.book import LandingBook
from bullpen.hub.tasks.board import Board
from bullpen.model.event import Event
from bullpen.model.landing import Landed, Landing

log = logging.getLogger("bullpen.hub")

LOOK_SECONDS = 60.0  # at most, between two looks at who still works there


class MergedTasks:
    """Removes what is left of tasks that have landed."""

    def __init__(
        self,
        context: HubContext,
        book: LandingBook,
        registry: Registry,
        board: Board,
        background: Background,
    ) -> None:
        self._context = context
        self._book = book
        self._registry = registry
        self._board = board
        self._background = background
        self._at_work: set[str] = set()  # ids
        self._is_ready = False  # who works is not known before all tasks are loaded

    async def run(self) -> None:
        """Also what a hub that was killed had not done."""
        self._is_ready = True
        while True:
            changed = self._book.changed
            self._look()
            await changed.wait()

    def notice(self, events: Iterable[Event]) -> None:
        """An agent in a terminal has ended."""
        if self._is_ready and any(event.kind == "agent.stopped" for event in events):
            self._look()

    def _look(self) -> None:
        for landing in self._book.open.values():
            has_landed = landing.task and isinstance(landing.status, Landed)
            is_due = has_landed and (landing.goal or not self._runs(landing.by))
            if is_due and landing.id not in self._at_work:
                self._at_work.add(landing.id)
                self._background.begin(self._clean_up(landing), f"clean-up of {landing.name}")

    def _runs(self, name: str) -> bool:
        agent = self._registry.find(name)
        return agent is not None and agent.is_running

    def _is_used(self, landing: Landing) -> bool:
        return any(
            (live.session.repo, live.session.worktree) == (landing.repo, landing.name)
            for live in self._board.live.values()
        )

    async def _clean_up(self, landing: Landing) -> None:
        """Once, when the goal is over and nobody is in there any more."""
        try:
            if landing.goal:
                with contextlib.suppress(BullpenError):  # it is forgotten
                    await self._board.wait(landing.goal, lambda _: False)
            while self._is_used(landing):
                await self._board.next_news(LOOK_SECONDS)
            await self._context.trees.run_to_end(partial(self._remove, landing))
            await self._book.keep(landing.model_copy(update={"is_cleaned": True}))
        finally:
            self._at_work.discard(landing.id)

    def _remove(self, landing: Landing) -> None:
        """The very worktree whose work has landed, and no other of its name."""
        try:
            site = self._book.site(landing)
            record = worktrees.find_record(site, landing.name)
            if record is not None and record.id == landing.birth:
                worktrees.remove(site, landing.name)
        except BullpenError as error:
            extra = {"worktree": landing.name, "why": error.message}
            log.warning("kept the worktree of a task that has landed", extra=extra)
