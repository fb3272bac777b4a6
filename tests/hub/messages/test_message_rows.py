"""Messages in the database and in memory: each step once, with its event, of its receiver alone."""

import asyncio
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.hub.messages import box as module
from bullpen.hub.messages.box import Messages
from bullpen.model.event import KINDS
from tests.hub.parts import Parts, in_parts, message

STEPS = ("message.sent", "message.delivered", "message.read")


async def logged(parts: Parts) -> list[tuple[str, str, str]]:
    """Every event of messages: its kind, whose it is, which message."""
    found = [event for kind in STEPS for event in await parts.events(kind)]
    found.sort(key=lambda event: event.id)
    return [(event.kind, event.agent, event.data["id"]) for event in found]


def test_g2_every_step_of_a_message_is_an_event_of_its_receiver_and_happens_once() -> None:
    async def main(parts: Parts) -> None:
        kept, one, other = parts.hub.messages, message(), message(to="bob")
        for each in (one, other, one):
            await kept.send(each)
        await kept.mark_sent([one], "socket")
        (sent,) = kept.queue("amy")
        for _ in range(2):
            await kept.mark_delivered([sent])
        for _ in range(2):
            await kept.mark_read(await parts.inbox())
        assert await logged(parts) == [
            ("message.sent", "amy", one.id),
            ("message.sent", "bob", other.id),
            ("message.delivered", "amy", one.id),
            ("message.read", "amy", one.id),
        ]
        (event,) = await parts.events("message.read")
        fields = {"id": one.id, "from": "root", "priority": "normal", "bytes": 1}
        assert event.data == fields
        (found,) = await parts.inbox()
        assert (found.status, found.channel) == ("read", "socket")
        assert [one.id for one in kept.queue("bob")] == [other.id]

    assert set(STEPS) <= set(KINDS)
    in_parts(main)


def test_g2_read_is_kept_with_the_moment_of_the_first_time() -> None:
    async def main(parts: Parts) -> None:
        await parts.hub.messages.send(message())
        stale = await parts.inbox()
        await parts.hub.messages.mark_read(stale)
        (first,) = await parts.inbox()
        await parts.hub.messages.mark_read(stale)  # of one who looked at the same time
        assert await parts.inbox() == [first]
        assert parts.hub.messages.unread("amy") == 0

    in_parts(main)


def test_g2_an_old_copy_of_a_message_does_not_take_its_channel_back() -> None:
    async def main(parts: Parts) -> None:
        messages, old = parts.hub.messages, message()
        await messages.send(old)
        assert await messages.mark_sent([old], "socket") == [old]
        assert await messages.mark_sent([old], "hook") == []  # it is under way
        await messages.mark_delivered([old])
        (delivered,) = await parts.inbox()
        assert (delivered.status, delivered.channel) == ("delivered", "socket")
        await messages.mark_queued([old])
        assert [one.status for one in await parts.inbox()] == ["delivered"]
        await messages.mark_read([old])
        (read,) = await parts.inbox()
        assert (read.status, read.channel) == ("read", "socket")

    in_parts(main)


def test_g1_unread_is_counted_for_each_receiver_and_again_by_another_hub() -> None:
    async def main(parts: Parts) -> None:
        kept = parts.hub.messages
        for to in ("amy", "amy", "bob"):
            await kept.send(message(to=to))
        first, second = await parts.inbox()
        await kept.mark_delivered([first])
        assert [kept.unread(name) for name in ("amy", "bob", "cleo")] == [2, 1, 0]
        await kept.mark_read([first])
        another = Messages(parts.store)
        await another.load()
        for each in (kept, another):
            assert [each.unread(name) for name in ("amy", "bob")] == [1, 1]
            assert [one.id for one in each.queue("amy")] == [second.id]
            assert sorted(each.receivers()) == ["amy", "bob"]

    in_parts(main)


@pytest.mark.parametrize(
    ("steps", "is_open"),
    [
        ((), True),
        (("sent socket",), True),
        (("sent lines",), False),  # nobody will show that it arrived
        (("sent hook", "delivered"), False),
        (("read",), False),
        (("sent lines", "queued"), True),  # it could not be typed
    ],
)
def test_g2_another_hub_goes_on_with_what_has_not_arrived(
    steps: tuple[str, ...], is_open: bool
) -> None:
    async def main(parts: Parts) -> None:
        kept, one = parts.hub.messages, message()
        await kept.send(one)
        for step in steps:
            what, _, channel = step.partition(" ")
            mark: Any = getattr(kept, f"mark_{what}")
            await mark([one], *([channel] if channel else []))
        another = Messages(parts.store)
        await another.load()
        assert bool(another.queue("amy")) == is_open
        if is_open:
            (found,) = another.queue("amy")
            assert found.status == ("sent" if steps == ("sent socket",) else "queued")

    in_parts(main)


def test_g2_the_queue_of_another_hub_is_in_the_order_of_sending() -> None:
    async def main(parts: Parts) -> None:
        sent = [await parts.hub.messages.send(message(str(number))) for number in range(20)]
        another = Messages(parts.store)
        await another.load()
        assert [one.id for one in another.queue("amy")] == [one.id for one in sent]
        assert [one.text for one in await another.inbox("amy", 3)] == ["17", "18", "19"]
        assert await another.inbox("bob", 3) == []

    in_parts(main)


def test_g2_an_id_is_one_message_of_one_sender_to_one_receiver() -> None:
    async def main(parts: Parts) -> None:
        kept, one = parts.hub.messages, message("x")
        await kept.send(one)
        for change in ({"text": "y"}, {"to": "bob"}, {"sender": "cleo"}):
            with pytest.raises(BullpenError, match="is another message"):
                await kept.send(one.model_copy(update=change))
        assert (await kept.send(one.model_copy(update={"created": 1.0}))).created == one.created
        assert [kept.unread(name) for name in ("amy", "bob")] == [1, 0]

    in_parts(main)


def test_g2_what_arrived_meanwhile_does_not_wait_again() -> None:
    async def main(parts: Parts) -> None:
        kept = parts.hub.messages
        one = await kept.send(message())
        await kept.mark_sent([one], "socket")
        (sent,) = kept.queue("amy")
        await kept.mark_delivered([sent])
        await kept.mark_queued([sent])
        assert kept.queue("amy") == []

    in_parts(main)


def test_g2_only_so_many_wait_for_one_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)

    async def main(parts: Parts) -> None:
        kept = parts.hub.messages
        first, _ = [await kept.send(message()) for _ in range(2)]
        with pytest.raises(BullpenError, match="too many messages wait for amy"):
            await kept.send(message())
        await kept.send(message(to="bob"))
        await kept.mark_delivered([first])
        await kept.send(message())
        assert len(await parts.inbox()) == 3

    in_parts(main)


def test_g2_sent_at_the_same_time_with_one_id_it_is_one() -> None:
    async def main(parts: Parts) -> None:
        one = message()
        await asyncio.gather(*(parts.hub.messages.send(one.model_copy()) for _ in range(5)))
        assert len(parts.hub.messages.queue("amy")) == 1
        assert parts.hub.messages.unread("amy") == 1

    in_parts(main)
