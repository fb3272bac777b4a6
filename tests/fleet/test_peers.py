"""Conversations of hubs whose other side goes: who has one open is told, and nothing is kept."""

import asyncio

import pytest

from bullpen.fleet.channel import ChannelOverError
from tests.fleet.links import Two


def test_l2_who_asks_a_hub_that_was_restarted_is_told_so() -> None:
    async def act() -> None:
        two = Two()
        channel = await two.peers["h1"].open("h2", {}, b"")
        await channel.ping()
        assert not channel.is_over
        two.start("h2")
        await channel.ping()
        with pytest.raises(ChannelOverError, match="h2 has been restarted"):
            await asyncio.wait_for(channel.receive(), 60)

    asyncio.run(act())


def test_l2_who_talks_to_a_hub_that_leaves_is_told_so() -> None:
    async def act() -> None:
        two = Two()
        channel = await two.peers["h1"].open("h2", {}, b"")
        await two.peers["h2"].close_all("h2 has left")
        with pytest.raises(ChannelOverError, match="h2 has left"):
            await asyncio.wait_for(channel.receive(), 60)

    asyncio.run(act())


def test_l2_a_conversation_that_could_not_be_opened_is_forgotten() -> None:
    async def act() -> None:
        two = Two()
        two.is_away = True
        for _ in range(3):
            with pytest.raises(ChannelOverError, match="away"):
                await two.peers["h1"].open("h2", {}, b"")
        assert two.peers["h1"]._channels == {}

    asyncio.run(act())
