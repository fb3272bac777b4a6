"""`follow`: a stream goes on where it broke off, whatever becomes of the hub."""

import asyncio

import pytest

from bullpen.client import AsyncHub, Hub, agents, events, messages, tasks
from bullpen.client.follow import PATIENCE_SECONDS, Following
from bullpen.client.shell import Shell
from bullpen.errors import BullpenError, Kind
from bullpen.model.event import Event
from tests.hub.pen import Pen
from tests.hub.programs import SLEEP

AWAY = BullpenError("away", kind=Kind.UNAVAILABLE)


def test_what_was_read_is_not_asked_for_again() -> None:
    following = Following(events.stream_events(after=3, agent="amy"), now=0.0)
    assert following.rest().query == {"after": 3, "agent": "amy"}
    reader = following.rest().reader()
    (event,) = reader.feed(
        b'id: 8\nevent: x\ndata: {"id":8,"time":1,"kind":"x","agent":"amy","data":{}}\n\nid: 9\nev'
    )
    assert event.id == 8
    rest = following.rest()
    assert (rest.headers["last-event-id"], rest.query) == ("8", {"agent": "amy"})
    assert list(reader.feed(b"ent: x\n\n")) == []  # a sign of life, which has a position, too
    assert following.rest().headers["last-event-id"] == "9"


def test_it_is_over_after_its_last_event() -> None:
    following = Following(tasks.stream_task("t-1"), now=0.0)
    reader = following.rest().reader()
    assert [event.name for event in reader.feed(b"event: text\ndata: {}\n\n")] == ["text"]
    assert not following.is_over
    assert [event.name for event in reader.feed(b"event: end\ndata: {}\n\n")] == ["end"]
    assert following.is_over


def test_patience_begins_anew_when_the_hub_was_heard() -> None:
    following = Following(events.stream_events(), now=0.0)
    following.broke_off(AWAY, PATIENCE_SECONDS)
    list(following.rest().reader().feed(b": ping\nid: 1\n\n"))
    following.broke_off(AWAY, 5 * PATIENCE_SECONDS)
    following.broke_off(None, 6 * PATIENCE_SECONDS)
    with pytest.raises(BullpenError, match="again and again"):
        following.broke_off(None, 6 * PATIENCE_SECONDS + 1)
    with pytest.raises(BullpenError, match="away"):
        following.broke_off(AWAY, 6 * PATIENCE_SECONDS + 1)


def test_a_refusal_is_final() -> None:
    following = Following(tasks.stream_task("t-1"), now=0.0)
    with pytest.raises(BullpenError, match="no task"):
        following.broke_off(BullpenError("no task", kind=Kind.NOT_FOUND), 0.0)


@pytest.mark.slow
def test_f3_a_hub_that_is_killed_under_a_stream_leaves_no_gap_and_no_doubles(pen: Pen) -> None:
    """Killed three times; each time something has happened that nobody was told of."""
    last = "the fourth"

    async def speak(hub: AsyncHub) -> None:
        shell = Shell(cwd=str(pen.root), env=pen.env)
        await hub.do(agents.start_agent(shell, name="amy", words=SLEEP))
        for text in ("the first", "the second", "the third"):
            await hub.do(messages.send_message("amy", text))
            await asyncio.to_thread(pen.kill_hub)
        await hub.do(messages.send_message("amy", last))

    async def listen(hub: AsyncHub) -> list[Event]:
        heard = []
        async for event in hub.follow(events.stream_events(after=0)):
            heard.append(event)
            if event.kind == "message.sent" and len(_sent(heard)) == 4:
                break
        return heard

    async def story() -> tuple[list[Event], list[Event]]:
        async with AsyncHub(pen.home) as hub, asyncio.timeout(120):
            listening = asyncio.create_task(listen(hub))
            await speak(hub)
            heard = await listening
            page = await hub.do(events.list_events(limit=1000))
            return heard, list(page.events)

    heard, log = asyncio.run(story())
    assert [one.id for one in heard] == [one.id for one in log][: len(heard)]
    assert [one.kind for one in heard].count("hub.started") == 4


def _sent(heard: list[Event]) -> list[Event]:
    return [event for event in heard if event.kind == "message.sent"]


@pytest.mark.slow
def test_f3_an_orderly_restart_is_no_end_of_a_stream(pen: Pen) -> None:
    pen.start()
    stream = Hub(pen.root).follow(events.stream_events(after=0))
    assert next(stream).kind == "hub.started"
    assert pen.cli("hub", "restart").code == 0
    assert "hub.started" in (event.kind for event in stream)
    stream.close()


@pytest.mark.slow
def test_a_stream_that_broke_off_says_nothing_of_what_may_have_been_done(pen: Pen) -> None:
    pen.start()
    stream = Hub(pen.root).stream(events.stream_events(after=0))
    next(stream)
    pen.kill_hub()
    with pytest.raises(BullpenError, match=r"went away before it answered$"):
        list(stream)
