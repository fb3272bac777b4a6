"""Growth of messages that wait for one agent: what its hooks ask, and a page of the inbox."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench.sizes import compare
from bench.table import MEMORY, PREFIX, Row
from bullpen.hub.messages.box import Messages
from bullpen.hub.store.store import Store
from bullpen.model.message import ROOT, Message

AT_ONCE = 500
HOOKS = 100
PAGE = 50


def rows(short: bool) -> Iterator[Row]:
    """None of them is delivered: the agent is at work."""
    few, many, rounds = (100, 1000, 3) if short else (1_000, 10_000, 15)
    sizes = (f"{few}", f"{many} undelivered")
    with ExitStack() as stack:
        boxes = [stack.enter_context(_box(count)) for count in (few, many)]
        for what, work in (("100 hooks", _hook), ("page of the inbox", _page)):
            yield compare(what, sizes, [partial(work, box) for box in boxes], rounds)


def _hook(box: Messages) -> None:
    """What `deliver` asks at each, before it knows that nothing is to be done."""
    for _ in range(HOOKS):
        box.list_sent("amy")
        box.next_ones("amy", is_urgent=True)


def _page(box: Messages) -> None:
    box.oldest_open("amy", PAGE)
    asyncio.run(box.inbox("amy", PAGE))


@contextmanager
def _box(count: int) -> Iterator[Messages]:
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=MEMORY) as scratch:
        store = Store.open(Path(scratch, "state.db"))
        try:
            box = Messages(store)
            asyncio.run(_fill(box.send, count))
            yield box
        finally:
            store.close()


async def _fill(send: Callable[[Message], object], count: int) -> None:
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        await asyncio.gather(*(send(_message(number)) for number in numbers))  # type: ignore[arg-type]


def _message(number: int) -> Message:
    return Message(
        id=f"m-{number:012x}", sender=ROOT, to="amy", text=f"{number} " * 20, created=float(number)
    )
