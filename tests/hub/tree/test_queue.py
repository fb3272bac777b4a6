"""The queues of events by themselves: what is kept, for whom, and for how long."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.hub.agents.registry import Registry
from bullpen.hub.fleet_children.rows import ChildRows
from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.hub.tree.children import SAVE, Children, Duty, load_duties
from bullpen.hub.tree.queue import (
    MOST_KEPT,
    MOST_OF_SENDER,
    OWNER,
    NewEvent,
    Queue,
    Receiver,
)
from bullpen.model.state import Idle
from tests.hub.live_agents import live

LEAD = Receiver("lead", "2026-01-01T00:00:00Z")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "state.db")
    yield opened
    opened.close()


async def flood(store: Store, queue: Queue, sender: str, count: int) -> None:
    def write(transaction: Transaction) -> None:
        for number in range(count):
            queue.write(transaction, NewEvent(LEAD, "child_finished", sender, {}, f"{number}"))

    await store.write(write)


def test_m4_a_child_that_floods_pushes_out_its_own_events_alone(store: Store) -> None:
    async def look() -> None:
        queue = Queue(store)
        await queue.put(NewEvent(LEAD, "child_finished", "good", {"message": "done"}, "good"))
        await flood(store, queue, "bad", MOST_KEPT + 10)
        event = await queue.next_event(LEAD)
        assert event is not None
        assert (event.sender, event.data) == ("good", {"message": "done"})
        events = await queue.list_events(LEAD, 0, 10_000)
        assert [each.sender for each in events] == ["good"] + ["bad"] * MOST_OF_SENDER

    asyncio.run(look())


def test_m4_an_agent_with_the_name_of_another_sees_none_of_its_events(store: Store) -> None:
    async def look() -> None:
        queue, later, heir = Queue(store), Receiver("lead", "2027"), Receiver("root")
        await queue.put(NewEvent(LEAD, "child_finished", "amy", {}, "old"))
        assert await queue.next_event(later) is None
        assert await queue.list_events(later, 0, 10) == []
        await queue.move(later, heir)  # nor does whoever hears of it afterwards
        assert await queue.list_events(heir, 0, 10) == []
        await queue.move(LEAD, heir)
        assert [event.sender for event in await queue.list_events(heir, 0, 10)] == ["amy"]

    asyncio.run(look())


def test_m4_who_waits_is_let_go_when_the_hub_stops(store: Store) -> None:
    async def look() -> None:
        queue = Queue(store)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            listing = group.create_task(queue.list_events(LEAD, 0, 10, 3600.0))
            waiting = group.create_task(queue.next_event(LEAD, (), 3600.0))
            await asyncio.sleep(0)  # both have begun
            queue.leave()
        assert (listing.result(), waiting.result()) == ([], None)

    asyncio.run(look())


def test_m4_what_was_stored_of_agents_that_are_gone_is_deleted(store: Store) -> None:
    async def look() -> None:
        queue, gone, broken = Queue(store), Receiver("lead", "2025"), Receiver("odd", "2024")
        for to in (LEAD, gone, broken, OWNER):
            await queue.put(NewEvent(to, "child_finished", "amy", {}, f"{to}"))

        def save(transaction: Transaction) -> None:
            duty = json.dumps(Duty(reported="success").model_dump())
            rows = [(one.name, one.born, duty) for one in (LEAD, gone, broken)]
            transaction.connection.executemany(SAVE, rows)

        await store.write(save)
        registry = Registry()
        registry.put(live("lead", Idle()))
        registry.mark_broken("odd", "cannot be read")
        away = ChildRows(store)
        children = Children(None, store, registry, queue, None, lambda _: False, away)  # type: ignore[arg-type]
        await children.forget_gone()
        duties = await store.read(load_duties)
        assert duties.keys() == {(LEAD.name, LEAD.born), ("odd", "2024")}
        found = {to: len(await queue.list_events(to, 0, 10)) for to in (LEAD, gone, broken, OWNER)}
        assert found == {LEAD: 1, gone: 0, broken: 1, OWNER: 1}

    asyncio.run(look())
