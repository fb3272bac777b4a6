"""Finds dialogs at which a program stops before it reports anything: trust, theme, login.

A part of the hub. Looks at the screen of a program in a terminal that has not said anything of
itself yet, whenever it has drawn something; the engine knows its dialogs. Types nothing, and stops
looking at the first report.
"""

import asyncio
import logging
import time
from collections.abc import Iterable

from bullpen.engines import ENGINES, Engine
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hub.agents.observe import Observer
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.background import Background
from bullpen.hub.holders import link as holder_link
from bullpen.model.event import Event
from bullpen.model.state import ScreenSeen
from bullpen.terminal.screen import Screen

log = logging.getLogger("bullpen.hub")

FIRST_SECONDS = 2.0  # most have reported by then
DRAWING_SECONDS = 0.5  # so long it may go on with what it has begun to draw


class StartDialogs:
    """A watcher for each program that has not reported yet."""

    def __init__(
        self, home: Home, registry: Registry, observer: Observer, background: Background
    ) -> None:
        self._home = home
        self._registry = registry
        self._observer = observer
        self._background = background
        self._watched: dict[str, asyncio.Event] = {}  # by run; set: look again

    async def load(self) -> None:
        """For those that an earlier hub had started."""
        for live in self._registry:
            self._begin(live)

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events:
            live = self._registry.find(event.agent)
            if live is None:
                continue
            if event.kind == "agent.started":
                self._begin(live)
            elif event.kind == "agent.state" and live.agent.run in self._watched:
                self._watched[live.agent.run].set()

    def _begin(self, live: LiveAgent) -> None:
        run, engine = live.agent.run, ENGINES.get(live.agent.engine)
        if engine is None or not engine.dialogs or run in self._watched or not _is_silent(live):
            return
        self._watched[run] = asyncio.Event()
        watch = self._watch(live, engine, self._watched[run])
        task = self._background.begin(watch, f"start of {live.agent.name}")
        task.add_done_callback(lambda _done: self._watched.pop(run, None))

    async def _watch(self, live: LiveAgent, engine: Engine, changed: asyncio.Event) -> None:
        await asyncio.sleep(FIRST_SECONDS)
        if not _is_silent(live):
            return
        try:
            link = await holder_link.connect(self._home.socket(live.agent.name))
        except (OSError, TimeoutError) as error:
            log.info("cannot see a start", extra={"agent": live.agent.name, "reason": str(error)})
            return
        link.follow(lambda _record: changed.set(), changed.set)
        try:
            await link.listen(changed.set)
            while _is_silent(live):
                changed.clear()
                await self._look(live, engine)
                await changed.wait()
                await asyncio.sleep(DRAWING_SECONDS)
        except (OSError, TimeoutError, BullpenError) as error:
            log.info("cannot see a start", extra={"agent": live.agent.name, "reason": str(error)})
        finally:
            link.close()

    async def _look(self, live: LiveAgent, engine: Engine) -> None:
        greeting, data = await holder_link.replay(self._home.socket(live.agent.name))
        if greeting.get("tag") != live.agent.run:
            return
        lines = await asyncio.to_thread(_lines, greeting["rows"], greeting["cols"], data)
        seen = ScreenSeen(at=time.time(), dialog=engine.find_dialog(lines), missing=engine.missing)
        await self._observer.observe(live, seen)


def _is_silent(live: LiveAgent) -> bool:
    return live.is_running and not live.agent.takes_tasks and not live.view.has_reported


def _lines(rows: int, cols: int, data: bytes) -> list[str]:
    screen = Screen(rows, cols)
    screen.feed(data)
    return screen.lines()
