"""A component's place in the hub's register: taken, kept while hubs come and go, given up.

The hub may be away at any time, and the next one may know nobody: so it is asked again and again
whether it knows this process. What the hub is away for is not this module's business.
"""

import asyncio
from typing import Any

from bullpen.component import ask
from bullpen.component.journal import Journal
from bullpen.model.component import Registration
from bullpen.paths import HUB, Home

LOOK_AGAIN_SECONDS = 5.0
HUB_SECONDS = 5.0


class Register:
    """The place of one component."""

    def __init__(self, home: Home, said: Registration, journal: Journal) -> None:
        self._socket = home.socket(HUB)
        self._said = said
        self._journal = journal
        self._is_in = False
        self._refusal = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            was, self._is_in = self._is_in, await self._is_known() or await self._enter()
            if was != self._is_in:
                self._journal.note("info", "registered" if self._is_in else "the hub is away")
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def leave(self) -> None:
        """Give it up; another process that has the name keeps its own."""
        if self._is_in:
            await self._ask("DELETE", f"/components/{self._said.name}")

    async def _is_known(self) -> bool:
        status, known = await self._ask("GET", "/components")
        mine = self._said.model_dump(include={"name", "pid", "url"})
        return status == 200 and any(mine.items() <= one.items() for one in known)

    async def _enter(self) -> bool:
        status, answer = await self._ask("POST", "/components", self._said.model_dump())
        reason = "" if status in (0, 201) else str(answer.get("message"))
        if reason and reason != self._refusal:  # not again and again: the journal is short
            self._journal.note("warn", "not registered", reason=reason)
        self._refusal = reason
        return status == 201

    async def _ask(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        """Status 0: it is away, which is nothing special."""
        try:
            return await asyncio.to_thread(
                ask.request, self._socket, method, target, body, seconds=HUB_SECONDS
            )
        except ask.NoAnswerError:
            return 0, None
