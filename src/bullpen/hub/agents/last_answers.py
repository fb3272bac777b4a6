"""The last line of what each agent said last, for `bullpen list`.

Read from the transcript when a turn has ended, and kept in memory: a list is not to wait for files.
Agents that take tasks have none, their tasks have outputs.
"""

import asyncio
import functools
from collections.abc import Iterable

from bullpen.engines import ENGINES
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.transcript import read_last_answer
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.model.event import Event
from bullpen.model.state import Idle

# A program may say that a turn has ended before it has written down the last of what it said.
LOOK_AFTER_SECONDS = (0.0, 1.0, 5.0, 20.0)
LINE_CHARACTERS = 200


class LastAnswers:
    """By the names of agents."""

    def __init__(self, context: HubContext, registry: Registry, background: Background) -> None:
        self._context = context
        self._registry = registry
        self._background = background
        self._lines: dict[str, str] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}

    async def load(self) -> None:
        """Of those that were idle before this hub."""
        for live in self._registry:
            self._look(live)

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events:
            live = self._registry.find(event.agent) if event.kind == "agent.state" else None
            if live is not None:
                self._look(live)

    def by_name(self) -> dict[str, str]:
        """The lines that are known, of agents that run."""
        return dict(self._lines)

    def _look(self, live: LiveAgent) -> None:
        agent = live.agent
        if agent.name in self._reading:
            self._reading.pop(agent.name).cancel()
        if not live.is_running:
            self._lines.pop(agent.name, None)
        elif agent.conversation and isinstance(live.view.state, Idle):
            task = self._background.begin(self._read(live), f"last answer of {agent.name}")
            self._reading[agent.name] = task

    async def _read(self, live: LiveAgent) -> None:
        """Until something else is heard of it, at most a few times."""
        agent, engine = live.agent, ENGINES[live.agent.engine]
        session = self._context.home.session(agent.name)
        read = functools.partial(read_last_answer, engine, agent, session)
        for after in LOOK_AFTER_SECONDS:
            await asyncio.sleep(after)
            line = last_line(await self._context.trees.run(agent.name, read))
            if live.is_running:
                self._lines[agent.name] = line


def last_line(text: str) -> str:
    """The last one with anything in it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:LINE_CHARACTERS] if lines else ""
