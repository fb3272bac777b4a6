"""What a host says of itself stays said: whatever others do at the server, and however long."""

import asyncio
from collections.abc import Iterator

import pytest
from nats.js.errors import APIError

from bullpen.fleet import link, presence
from bullpen.fleet.channel import Channel, ChannelOverError
from bullpen.fleet.subjects import STREAM, key
from tests.fleet.links import (
    credential,
    describe,
    eve,
    make_link,
    running,
    until,
    until_true,
)
from tests.fleet.machines import Machines, made_machines


@pytest.fixture
def machines() -> Iterator[Machines]:
    with made_machines("h1", "h2", joined=False, with_eve=True) as made:
        yield made


def test_l1_a_host_cannot_take_away_what_others_have_said(machines: Machines) -> None:
    async def act() -> None:
        noted: list[str] = []
        h1 = await link.connect(machines.url, credential(machines, "h1"))
        h2 = await link.connect(machines.url, credential(machines, "h2"), objected=noted.append)
        await presence.say_state(h1, describe("h1"))
        say = h2.jetstream().publish
        with pytest.raises(APIError, match="rollup"):
            await say(key("state", "h2"), b"", 60, headers={"Nats-Rollup": "all"})
        assert [host.state.name for host in await presence.read_hosts(h1)] == ["h1"]
        await h2.publish(key("other", "h2"), b"")  # nor make the list too long to be read
        await until(lambda: bool(noted))
        for client in (h1, h2):
            await link.close(client)

    asyncio.run(act())


def test_l1_a_list_that_the_server_does_not_give_is_not_taken_for_an_empty_one(
    machines: Machines,
) -> None:
    async def act() -> None:
        client = await eve(machines)
        await presence.make_bucket(client)
        assert await presence.read_hosts(client) == []
        for number in range(1024):
            await client.publish(key("state", f"x{number}"), b"")
        await presence.say_live(client, "h1", "life")
        await presence.say_state(client, describe("h1"))
        with pytest.raises(ConnectionError, match="413"):
            await presence.read_hosts(client)
        await client.jetstream().delete_stream(STREAM)
        with pytest.raises(ConnectionError, match="503"):
            await presence.read_hosts(client)
        await client.close()

    asyncio.run(act())


@pytest.mark.slow
def test_l1_a_host_to_which_nothing_happens_is_not_forgotten(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is known when it was there last: what it says of itself is said now and then."""
    monkeypatch.setattr(presence, "KEPT_SECONDS", 2.0)
    monkeypatch.setattr(presence, "SAY_AGAIN_SECONDS", 1.0)

    async def act() -> None:
        h1 = make_link(machines, "h1")
        heard: set[float] = set()

        async def is_said_thrice() -> bool:
            heard.update(host.state.at for host in await h1.read_hosts())
            return len(heard) >= 3

        async with running(h1):
            await until_true(is_said_thrice)

    asyncio.run(act())


@pytest.mark.slow
def test_l1_a_beat_that_the_server_does_not_take_costs_no_connection(machines: Machines) -> None:
    async def act() -> None:
        h1 = make_link(machines, "h1")
        client = await eve(machines)

        async def is_shown() -> bool:
            try:
                hosts = await presence.read_hosts(client)
            except ConnectionError:
                return False
            return [host.reachable for host in hosts] == [True]

        async with running(h1):
            since = h1.state.since
            await until_true(is_shown)
            await client.jetstream().delete_stream(STREAM)
            await until_true(is_shown)  # it has made the bucket again
            assert (h1.state.link, h1.state.since) == ("connected", since)
        await client.close()

    asyncio.run(act())


def test_l1_of_two_machines_with_one_key_the_second_is_told_and_hears_nothing(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "LIVE_SECONDS", 600.0)  # on a busy machine as well

    async def act() -> None:
        asked: list[str] = []

        async def note_first(*_: object) -> None:
            asked.append("first")

        async def note_second(*_: object) -> None:
            asked.append("second")

        h1 = make_link(machines, "h1")
        first, second = (make_link(machines, "h2", each) for each in (note_first, note_second))
        async with running(h1):
            async with running(first):
                late = asyncio.create_task(second.run())
                await until(lambda: second.state.link == "refused")
                assert "another machine uses this key of h2" in second.state.why
                h1.peers.learn("h2", first.peers.life)
                for _ in range(5):
                    with pytest.raises(ChannelOverError):
                        await (await h1.peers.open("h2", {}, b"")).receive()
                assert (asked, first.state.link) == (["first"] * 5, "connected")
            # When the first has left, the name is free.
            await until(lambda: second.state.link == "connected")
            late.cancel()
            await asyncio.gather(late, return_exceptions=True)

    asyncio.run(act())


@pytest.mark.slow
def test_l1_a_name_is_free_again_after_a_hub_that_was_killed(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        client = await link.connect(machines.url, credential(machines, "h1"))
        monkeypatch.setattr(presence, "LIVE_SECONDS", 600.0)
        await presence.say_live(client, "h1", "killed")
        with pytest.raises(presence.NameTakenError):
            await presence.say_live(client, "h1", "next")
        monkeypatch.setattr(presence, "LIVE_SECONDS", 1.0)
        await presence.say_live(client, "h1", "killed")  # as often as it likes
        async with running(make_link(machines, "h1")):
            pass
        await link.close(client)

    asyncio.run(act())


@pytest.mark.parametrize(("is_leaving", "how"), [(True, "has left"), (False, "was stopped")])
def test_l2_who_talks_to_a_host_that_leaves_is_told_so(
    machines: Machines, is_leaving: bool, how: str
) -> None:
    async def act() -> None:
        begun = asyncio.Event()

        async def answer(channel: Channel, *_: object) -> None:
            begun.set()
            await channel.receive()  # until somebody ends it

        h1, h2 = make_link(machines, "h1"), make_link(machines, "h2", answer)
        h1.peers.learn("h2", h2.peers.life)
        async with running(h1):
            async with running(h2):
                channel = await h1.peers.open("h2", {}, b"")
                await asyncio.wait_for(begun.wait(), 60)
                h2.is_leaving = is_leaving
            with pytest.raises(ChannelOverError, match=f"h2 {how}"):
                await asyncio.wait_for(channel.receive(), 60)

    asyncio.run(act())
