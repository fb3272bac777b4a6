"""The entries of all landing queues: on disk, and those that are open in memory.

Shared by `queue`, `round` and `children`. Each change is on disk before anybody hears of it. Knows
the threads in which a repository may be worked on, and nothing of what an entry means.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from bullpen.errors import BullpenError, Kind
from bullpen.files import read_tail
from bullpen.hub.agents.worktrees import open_site
from bullpen.hub.context import HubContext
from bullpen.hub.landing.rows import LandingRows
from bullpen.model.landing import Landing, Verifying, move
from bullpen.worktrees import Site

T = TypeVar("T")

KEEP = 200  # entries that are over
OUTPUT_BYTES = 64 << 10


class LandingBook:
    """All entries of one hub."""

    def __init__(self, context: HubContext, rows: LandingRows) -> None:
        self.open: dict[str, Landing] = {}  # by id, in the order in which they were asked for
        self._context = context
        self._rows = rows
        self._changed = asyncio.Event()  # replaced at every change

    async def load(self) -> None:
        """What earlier hubs had not finished."""
        self.open = {landing.id: landing for landing in await self._rows.open()}

    async def keep(self, *landings: Landing) -> None:
        """On disk, then in memory; whoever waits looks again."""
        if not landings:
            return
        await self._rows.put(*landings)
        for landing in landings:
            if landing.is_open:
                self.open[landing.id] = landing
            else:
                self.open.pop(landing.id, None)
        self.announce()

    async def move_all(self, landings: Iterable[Landing], status: Any) -> list[Landing]:
        """All of them in that state."""
        moved = [move(landing, status) for landing in landings]
        await self.keep(*moved)
        return moved

    def announce(self) -> None:
        """Whoever waits for a change looks again."""
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change. Take it before you look."""
        return self._changed

    async def get(self, id: str) -> Landing:
        """One entry, over or not."""
        landing = self.open.get(id) or await self._rows.find(id)
        if landing is None:
            raise BullpenError(f"no landing called {id}", kind=Kind.NOT_FOUND)
        return landing

    async def last(self) -> list[Landing]:
        """The last ones, those that are over too."""
        return await self._rows.last(KEEP)

    async def forget_old(self) -> None:
        """What is over goes, with its output, when there are many."""
        for id in await self._rows.drop_old(KEEP):
            self.log_of(id).unlink(missing_ok=True)

    def log_of(self, id: str) -> Path:
        """Where the output of the command that verifies is kept."""
        return self._context.home.landing_log(id)

    async def read_output(self, landing: Landing) -> str:
        """The end of it. Of those that are tried together one has it: the last."""
        tried = [landing.id]
        if isinstance(landing.status, Verifying):
            now = landing.status
            tried += [each.id for each in self.open.values() if each.status == now]
        for id in reversed(tried):
            with contextlib.suppress(FileNotFoundError):
                data = await asyncio.to_thread(read_tail, self.log_of(id), OUTPUT_BYTES)
                return data.decode("utf-8", "replace")
        return ""

    # ── its repository ──

    def site(self, landing: Landing) -> Site:
        """In a thread."""
        settings, base = self._context.settings, Path(landing.base_dir)
        return open_site(self._context.home, settings, Path(landing.repo), base)

    async def in_thread(self, landing: Landing, work: Callable[[], T]) -> T:
        """One at a time for a target. What a hub that leaves has ended is not recorded."""
        key = f"landing in {landing.target} of {landing.repo}"
        return await self._context.trees.run_repeatable(key, work)

    async def to_end(self, work: Callable[[], T]) -> T:
        """For a step that a hub that leaves does not cut off."""
        return await self._context.trees.run_to_end(work)
