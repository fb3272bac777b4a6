"""Channels between hubs: in order, no faster than they are read, over when something is lost."""

import asyncio
from typing import Any

import pytest

from bullpen.fleet.channel import HEAD_BYTES, PART_BYTES, WINDOW, Channel, ChannelOverError, Head
from bullpen.fleet.frames import REMEMBERED, Replays


class Pair:
    """Two ends; what one says the other takes at once, unless it is lost."""

    def __init__(self) -> None:
        self.numbers = {"a": 0, "b": 0}
        self.sent: list[Head] = []
        self.lose: set[int] = set()  # numbers of a's frames
        self.a = Channel("b", "c", self._say("a"))
        self.b = Channel("a", "c", self._say("b"))

    def _say(self, who: str) -> Any:
        async def say(head: Head, body: bytes) -> None:
            number = self.numbers[who]
            self.numbers[who] += 1
            self.sent.append(head)
            if who == "b" or number not in self.lose:
                (self.b if who == "a" else self.a).take({**head, "n": number}, body)

        return say


def run(work: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(bounded())


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * WINDOW])
def test_l2_a_message_of_any_size_arrives_as_it_was(size: int) -> None:
    async def both() -> None:
        pair = Pair()
        body = bytes(index % 251 for index in range(size))
        sending = asyncio.create_task(pair.a.send({"kind": "event", "x": 1}, body))
        head, received = await pair.b.receive()
        await sending
        assert (head["x"], received == body) == (1, True)

    run(both())


def test_l2_who_sends_waits_for_who_reads() -> None:
    async def both() -> None:
        pair = Pair()
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(64):
                await pair.a.send({"kind": "event"}, b"x" * (WINDOW // 8))
                sent += 1

        sending = asyncio.create_task(send())
        for _ in range(1000):  # as long as it likes
            await asyncio.sleep(0)
        assert sent == 8
        for _ in range(64):
            await pair.b.receive()
        await sending
        acknowledged = [head for head in pair.sent if head["kind"] == "ack"]
        assert len(acknowledged) <= 33  # not one for each

    run(both())


def test_l2_what_is_lost_ends_the_channel_after_what_came_before() -> None:
    async def both() -> None:
        pair = Pair()
        pair.lose = {1}
        for number in range(3):
            await pair.a.send({"kind": "event", "x": number})
        assert (await pair.b.receive())[0]["x"] == 0
        with pytest.raises(ChannelOverError, match="lost on the way"):
            await pair.b.receive()

    run(both())


def test_l2_a_frame_that_comes_again_is_dropped() -> None:
    async def both() -> None:
        pair = Pair()
        await pair.a.send({"kind": "event", "x": 0})
        pair.b.take({"kind": "event", "x": 0, "n": 0}, b"")
        await pair.a.send({"kind": "event", "x": 1})
        assert [(await pair.b.receive())[0]["x"] for _ in range(2)] == [0, 1]

    run(both())


def test_l2_who_sends_more_than_it_may_is_cut_off() -> None:
    async def both() -> None:
        pair = Pair()
        for number in range(3 * WINDOW // PART_BYTES):
            pair.b.take({"kind": "event", "n": number}, b"x" * PART_BYTES)
        assert pair.b.is_over

    run(both())


def test_l2_who_waits_hears_that_the_other_has_left() -> None:
    async def both() -> None:
        pair = Pair()
        reading = asyncio.create_task(pair.b.receive())
        writing = asyncio.create_task(pair.a.send({"kind": "event"}, b"x" * 3 * WINDOW))
        await asyncio.sleep(0)
        await pair.b.say_end("left")
        await pair.a.say_end("left, too")
        for task in (reading, writing):
            with pytest.raises(ChannelOverError):
                await task

    run(both())


def test_l2_each_request_is_new_once_and_little_is_remembered() -> None:
    replays = Replays()
    assert replays.take("h1", "a1-0") and not replays.take("h1", "a1-0")
    assert replays.take("h2", "a1-0") and replays.take("h1", "b2-0")
    assert all(replays.take("h1", f"c3-{number}") for number in range(2 * REMEMBERED))
    assert not any(replays.take("h1", f"c3-{number}") for number in range(2 * REMEMBERED))
    assert replays.take("h1", f"c3-{2 * REMEMBERED + 5}")
    assert replays.take("h1", f"c3-{2 * REMEMBERED + 1}")  # in another order
    for wrong in ("", "x", "-1", "a1-", "a1--1", "a1-1x", "a1-" + "9" * 30, "a1-²"):
        assert not replays.take("h1", wrong)


def test_l2_of_a_life_that_is_over_nothing_is_taken_any_more() -> None:
    replays = Replays()
    assert replays.take("h1", "a1-0") and replays.take("h1", "b2-0")
    assert not replays.take("h1", "a1-1")  # the hub that had it is no more
    assert replays.take("h1", "b2-1") and replays.take("h2", "a1-1")


def test_l2_messages_without_a_body_are_not_sent_without_end_either() -> None:
    async def both() -> None:
        pair = Pair()
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(2 * WINDOW // HEAD_BYTES):
                await pair.a.send({"kind": "event"})
                sent += 1

        sending = asyncio.create_task(send())
        for _ in range(10):  # it waits for the other side
            await asyncio.sleep(0)
        assert sent == WINDOW // HEAD_BYTES
        for _ in range(WINDOW // HEAD_BYTES):
            await pair.b.receive()
        sending.cancel()
        for number in range(sent, 4 * sent):  # one that does not wait is cut off
            pair.b.take({"kind": "event", "n": number}, b"")
        assert pair.b.is_over

    run(both())
