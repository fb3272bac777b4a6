"""L3: what the server keeps of tasks: of two who write one wins, and twice is once."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from nats.aio.msg import Msg

from bullpen.errors import BullpenError
from bullpen.fleet import link, presence
from bullpen.fleet.kept_connection import RETRY_SECONDS
from bullpen.fleet.mail_server import _make_streams
from bullpen.fleet.parcels import PIECE_BYTES
from bullpen.fleet.subjects import (
    MAIL,
    QUEUE,
    heard_key,
    key,
    mail,
    mail_to,
    parcel,
    queued,
    said_to,
)
from bullpen.fleet.task_records import name_need
from bullpen.fleet.task_server import LostError, TaskServer, _consumer
from tests.fleet.links import credential, describe, eve, reached, until
from tests.fleet.machines import Machines, made_machines

NEED = name_need("dev", {})
COMMIT = "c" * 40


@pytest.fixture
def machines() -> Iterator[Machines]:
    with made_machines("h1", "h2", joined=False, with_eve=True) as made:
        yield made


@contextlib.asynccontextmanager
async def serving(machines: Machines, *hosts: str) -> AsyncIterator[list[TaskServer]]:
    """Their connections."""
    servers = [TaskServer(machines.url, credential(machines, host)) for host in hosts]
    tasks = [asyncio.create_task(server.run()) for server in servers]
    try:
        for server in servers:
            await asyncio.wait_for(server.is_connected.wait(), 60)
        yield servers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_l3_of_many_who_write_at_once_one_wins(machines: Machines) -> None:
    async def act() -> None:
        async with serving(machines, "h1", "h2") as servers:
            assert await servers[0].read("h1", "t-1") is None
            writing = [
                server.put("h1", "t-1", f"{number} {server.host}".encode(), 0)
                for number in range(10)
                for server in servers
            ]
            done = await asyncio.gather(*writing, return_exceptions=True)
            won = [each for each in done if isinstance(each, int)]
            assert len(won) == 1 and sum(isinstance(each, LostError) for each in done) == 19
            entry = await servers[1].read("h1", "t-1")
            assert entry is not None and entry.revision == won[0]

    asyncio.run(act())


def test_l3_a_need_that_the_server_has_lost_is_not_pulled_in_a_hot_loop(
    machines: Machines,
) -> None:
    async def act() -> None:
        async with serving(machines, "h1") as (h1,):
            began = time.monotonic()
            assert await h1.pull(NEED, 60.0) is None  # answered at once
            assert time.monotonic() - began >= RETRY_SECONDS / 2

    asyncio.run(act())


def test_l3_what_is_written_again_after_a_lost_answer_is_written_once(machines: Machines) -> None:
    async def act() -> None:
        async with serving(machines, "h1", "h2") as (h1, h2):
            first = await h2.put("h1", "t-1", b"leased by h2", 0)
            assert await h2.put("h1", "t-1", b"leased by h2", 0) == first
            second = await h2.put("h1", "t-1", b"renewed by h2", first)
            assert await h2.put("h1", "t-1", b"renewed by h2", first) == second
            # Whoever was slower has a number that counts no longer.
            with pytest.raises(LostError):
                await h1.put("h1", "t-1", b"ended by h1", first)
            await h1.offer(NEED, "t-1", b"asked")
            await h1.offer(NEED, "t-1", b"asked")
            message = await h2.pull(NEED, 60.0)
            assert message is not None and message.data == b"asked"
            assert await h2.pull(NEED, 0.2) is None
            await message.ack_sync()
            assert await h2.list_needs() == [NEED]

    asyncio.run(act())


def test_l3_calls_wait_for_a_server_that_is_away(machines: Machines) -> None:
    async def act() -> None:
        async with serving(machines, "h1") as (h1,):
            machines.kill_server()
            await until(lambda: not h1.is_connected.is_set())
            putting = asyncio.create_task(h1.put("h1", "t-1", b"leased by h1", 0))
            machines.start_server()
            revision = await asyncio.wait_for(putting, 60)
            entry = await h1.read("h1", "t-1")
            assert entry is not None and entry.revision == revision

    asyncio.run(act())


def test_l3_a_bundle_arrives_as_it_was_sent_or_not_at_all(machines: Machines) -> None:
    async def act() -> None:
        async with serving(machines, "h1", "h2") as (h1, h2):
            data = bytes(range(256)) * (PIECE_BYTES // 256 * 2) + b"end"
            sent = await h1.send_parcel("t-1", data, COMMIT)
            assert sent == await h1.send_parcel("t-1", data, COMMIT) and sent.pieces == 3
            assert await h2.fetch_parcel(sent) == data
            for wrong, why in (
                ({"sha256": "0" * 64}, "did not arrive as it was sent"),
                ({"pieces": 4}, "is no longer there"),
                ({"pieces": 10**9}, "more than anybody may"),
                ({"host": "h2"}, "is no longer there"),
            ):
                with pytest.raises(BullpenError, match=why):
                    await h2.fetch_parcel(sent.model_copy(update=wrong))

    asyncio.run(act())


@pytest.mark.parametrize(
    "subject",
    [
        queued("h1", NEED, "t-1"),
        parcel("h1", "t-1", "00000"),
        mail("h3", "h1", "x"),
        heard_key("h1", "h3"),
        f"$JS.API.CONSUMER.CREATE.{MAIL}.h1.{mail_to('h1')}",
        f"$JS.API.CONSUMER.MSG.NEXT.{MAIL}.h1",
        f"$JS.ACK.{MAIL}.h1.1.1.1.1.0",
    ],
)
def test_l3_the_server_lets_nobody_write_for_another(machines: Machines, subject: str) -> None:
    async def act() -> None:
        noted: list[str] = []
        h2 = credential(machines, "h2")
        client = await link.connect(
            machines.url, replace(h2, seed=h2.queue_seed), objected=noted.append, prepare=nothing
        )
        await client.publish(subject.replace("h1", "h2"), b"")
        await reached(client)
        assert not noted
        await client.publish(subject, b"")
        await until(lambda: bool(noted))
        await link.close(client)

    asyncio.run(act())


@pytest.mark.parametrize(
    ("name", "filter"),
    [("h2", mail_to("h1")), ("h2", f"{MAIL}.>"), ("h2.x", mail_to("h1")), ("h1", mail_to("h2"))],
)
@pytest.mark.slow
def test_l4_the_server_gives_a_host_nobody_elses_letters(
    machines: Machines, name: str, filter: str
) -> None:
    """Whether the subject of the request says so, or what is in it."""

    async def act() -> None:
        noted: list[str] = []
        h2 = credential(machines, "h2")
        client = await link.connect(
            machines.url,
            replace(h2, seed=h2.queue_seed),
            objected=noted.append,
            prepare=_make_streams,
        )

        async def create(subject: str) -> dict[str, Any]:
            config = {"durable_name": name, "filter_subject": filter, "ack_policy": "explicit"}
            asked = json.dumps({"stream_name": MAIL, "config": config}).encode()
            answer = await client.request(f"$JS.API.CONSUMER.CREATE.{MAIL}.{subject}", asked, 5)
            fields: dict[str, Any] = json.loads(answer.data)
            return fields

        assert "error" in await create(f"h2.{mail_to('h2')}")
        with contextlib.suppress(TimeoutError):
            await create(f"{name}.{filter}")
        await until(lambda: bool(noted))
        await link.close(client)

    asyncio.run(act())


async def nothing(_client: object) -> None:
    """No stream is made."""


@pytest.mark.parametrize("subject", [said_to("h2", "h1", "x"), key("state", "h2")])
def test_l3_a_consumer_delivers_nothing_to_those_who_talk_to_each_other(
    machines: Machines, subject: str
) -> None:
    """A host may make one, and name any subject: it delivers in the queue's own account."""

    async def act() -> None:
        async with serving(machines, "h1") as (h1,):
            heard: asyncio.Queue[Msg] = asyncio.Queue()
            delivered: asyncio.Queue[Msg] = asyncio.Queue()
            h2 = await link.connect(machines.url, credential(machines, "h2"))
            await presence.say_state(h2, describe("h2"))
            (before,) = await presence.read_hosts(h2)
            await h2.subscribe(said_to("h2", "*", ">"), cb=heard.put)
            await reached(h2)
            mallory = await eve(machines, "mallory")
            await mallory.subscribe(subject, cb=delivered.put)
            await reached(mallory)
            asked = _consumer(NEED)
            asked["config"]["deliver_subject"] = subject
            assert h1._client is not None
            answer = await h1._client.request(
                f"$JS.API.CONSUMER.CREATE.{QUEUE}.{NEED}", json.dumps(asked).encode(), 60
            )
            assert b'"error"' not in answer.data, answer.data
            await h1._client.publish(queued("h1", NEED, "t-1"), b"forged")
            message = await asyncio.wait_for(delivered.get(), 60)
            assert message.data == b"forged"  # where hosts talk to each other it would be heard
            await reached(h2)
            (after,) = await presence.read_hosts(h2)
            assert heard.empty() and after.state == before.state
            for client in (h2, mallory):
                await link.close(client)

    asyncio.run(act())
