"""Memory that is given back once much of it is free."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from bullpen.component import memory
from bullpen.component.memory import MUCH_BYTES, FreedMemory

SECONDS = 60.0


class Held:
    """Held by itself: only a look at all objects finds that nobody else needs it."""

    def __init__(self) -> None:
        self.itself = self


async def is_gone(object_ref: "weakref.ref[Held]") -> bool:
    async with asyncio.timeout(SECONDS):
        while object_ref() is not None:
            await asyncio.sleep(0)
    return True


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
def test_v1_what_is_held_in_circles_is_found_soon_and_once_more_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(memory, "LATE_SECONDS", 0.0)

    async def free() -> None:
        freed = FreedMemory(in_circles=True)
        soon = weakref.ref(Held())
        freed.add(MUCH_BYTES)
        assert await is_gone(soon)
        late = weakref.ref(Held())  # its connection was closed after the first look
        assert await is_gone(late)

    asyncio.run(free())
