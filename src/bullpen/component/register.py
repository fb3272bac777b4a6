"""Registers a component with the hub: on start, after every restart of the hub, until it leaves.

Called by `component/server`. Asks the hub every `LOOK_AGAIN_SECONDS`, and when its own state has
changed, whether it knows this process as it is: the hub may be away at any time, and the next one
may have an empty register. Never starts a hub.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bullpen.client import AsyncHub
from bullpen.client.call import Call
from bullpen.client.components import list_components, register_component, remove_component
from bullpen.component.journal import Journal
from bullpen.errors import BullpenError, Kind
from bullpen.model.component import Registration

LOOK_AGAIN_SECONDS = 5.0
HUB_SECONDS = 5.0

T = TypeVar("T")


class Register:
    """Keeps one component registered, as `describe` says it is now. `hub` must not start one.
    `returned` is called when it answers for the first time, and when it was away."""

    def __init__(
        self,
        hub: AsyncHub,
        describe: Callable[[], Registration],
        journal: Journal,
        returned: Callable[[], Awaitable[None]],
    ) -> None:
        self._hub = hub
        self._describe = describe
        self._journal = journal
        self._returned = returned
        self._woken = asyncio.Event()
        self._is_registered = False
        self._refusal = ""

    async def run(self) -> None:
        """Keep it registered until this is cancelled."""
        while True:
            is_registered = await self._look()
            if is_registered != self._is_registered:
                self._journal.note("info", "registered" if is_registered else "the hub is away")
                if is_registered:
                    await self._returned()
            self._is_registered = is_registered
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                    await self._woken.wait()
            self._woken.clear()

    def wake(self) -> None:
        """Look now: its state has changed."""
        self._woken.set()

    async def leave(self) -> None:
        """Remove it from the register; the entry of another process of that name stays."""
        if self._is_registered:
            with contextlib.suppress(BullpenError):
                await self._do(remove_component(self._describe().name))

    async def _look(self) -> bool:
        """Whether the register has it now."""
        reason, mine = "", self._describe()
        try:
            if not await self._is_known(mine):
                await self._do(register_component(**dict(mine)))
        except BullpenError as error:
            if error.kind is Kind.UNAVAILABLE:
                return False
            reason = error.message
        if reason and reason != self._refusal:  # each reason once: the journal is short
            self._journal.note("warn", "not registered", reason=reason)
        self._refusal = reason
        return not reason

    async def _is_known(self, mine: Registration) -> bool:
        known = await self._do(list_components())
        return any(all(getattr(one, key) == value for key, value in mine) for one in known)

    async def _do(self, call: Call[T]) -> T:
        try:
            async with asyncio.timeout(HUB_SECONDS):
                return await self._hub.do(call)
        except TimeoutError as error:
            raise BullpenError("the hub does not answer", kind=Kind.UNAVAILABLE) from error
