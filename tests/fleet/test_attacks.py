"""Somebody for whom the server's own rules do not count: what hubs refuse by themselves.

Eve publishes and reads whatever she likes. Each attack is carried out twice: against h2, which is
as it should be, and against h3, whose hub lacks the one check.
"""

import asyncio
import base64
import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from bullpen.fleet.credential import Certificate, issue
from bullpen.fleet.frames import encode
from bullpen.fleet.nkeys import Signer, make_seed
from bullpen.fleet.subjects import said_to
from tests.fleet.links import credential, eve, reached
from tests.fleet.machines import Machines, made_machines
from tests.hub.pen import Pen, change_hub
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WITHOUT_CHECKS = """
import sys
if sys.argv[:1] != ["-c"]:
    from bullpen.fleet import frames, nkeys, peers
    frames.Replays.take = lambda *_: True
    frames.Frame.is_from = lambda *_: True
    peers.check_certificate = lambda _fleet, _host, given: nkeys.Verifier(given.public)
"""
REFUSED = "refused what came from the fleet"


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with made_machines("h1", "h2", "h3", joined=False, with_eve=True) as made:
        change_hub(made.hosts["h3"], WITHOUT_CHECKS)
        for name, pen in made.hosts.items():
            made.join(name)
            pen.run("/bin/cat", name="amy")
        wait_until(lambda: made.reachable("h1") == {"h1", "h2", "h3"})
        yield made


def texts(pen: Pen) -> list[str]:
    """What was written to amy there."""
    return [each["text"] for each in pen.ask("GET", "/agents/amy/messages")[1]["messages"]]


def say(machines: Machines, subject: str, data: bytes) -> None:
    async def once() -> None:
        client = await eve(machines)
        await client.publish(subject, data)
        await reached(client)
        await client.close()

    asyncio.run(once())


def overheard(machines: Machines, target: str, text: str) -> tuple[str, bytes]:
    """The frame in which h1 has that host write to amy."""

    # Asked before, h1 knows which hub is there: the frame that is heard is the one that is done.
    assert machines.hosts["h1"].ask("GET", f"/agents/{target}%2Famy")[0] == 200

    async def listen() -> tuple[str, bytes]:
        client = await eve(machines)
        heard: asyncio.Queue[Any] = asyncio.Queue()
        await client.subscribe(f"bullpen.{target}.h1.>", cb=heard.put)
        await reached(client)
        answer = await asyncio.to_thread(
            machines.hosts["h1"].ask, "POST", f"/hosts/{target}/agents/amy/messages", {"text": text}
        )
        assert answer[0] == 201
        while True:
            message = await asyncio.wait_for(heard.get(), 60)
            if text.encode() in message.data:
                await client.close()
                return message.subject, message.data

    return asyncio.run(listen())


def lives(machines: Machines, target: str) -> tuple[str, str]:
    """Which hubs ask and answer: it is no secret, and each frame that opens something bears it."""
    subject, data = overheard(machines, target, "what is your life?")
    asking = subject.split(".", 3)[3].partition("-")[0]
    return asking, str(json.loads(data[64:].partition(b"\n")[0])["life"])


def forged(
    machines: Machines, target: str, text: str, signer: Signer, certificate: Certificate
) -> tuple[str, bytes]:
    """A request to write to amy, as if h1's owner had asked."""
    asking, answering = lives(machines, target)
    subject = said_to(target, "h1", f"{asking}-{10**9 + secrets.randbelow(10**12)}")
    body = json.dumps({"text": text}).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/agents/amy/messages",
        "query": "",
        "headers": [["content-type", "application/json"], ["content-length", str(len(body))]],
    }
    head = {
        "kind": "open",
        "n": 0,
        "by": "",
        "scope": scope,
        "life": answering,
        "key": [certificate.public, certificate.signature],
    }
    return subject, encode(signer, subject, head, body)


def refusals(pen: Pen) -> int:
    return len(pen.logged(REFUSED))


def attack(
    machines: Machines, target: str, text: str, frame: tuple[str, bytes], count: int
) -> None:
    """Carry it out; so many messages of that text are there afterwards, and h2 has refused."""
    pen = machines.hosts[target]
    before = refusals(pen)
    say(machines, *frame)
    if target == "h2":
        wait_until(lambda: refusals(pen) > before)
    else:
        wait_until(lambda: texts(pen).count(text) == count)
    assert texts(pen).count(text) == count


@pytest.mark.parametrize(("target", "count"), [("h2", 1), ("h3", 2)])
def test_l2_a_request_that_is_said_again_is_done_once(
    machines: Machines, target: str, count: int
) -> None:
    text = f"once to {target}"
    attack(machines, target, text, overheard(machines, target, text), count)


@pytest.mark.storm
def test_l2_a_request_to_an_earlier_hub_is_not_done_by_the_next(machines: Machines) -> None:
    h2 = machines.hosts["h2"]
    text = "to the hub of before"
    frame = overheard(machines, "h2", text)
    assert h2.cli("hub", "restart").code == 0
    # What the hub of before had said may stand for some seconds, and keep this one out.
    wait_until(lambda: machines.shown("h2")["link"] == "connected")
    wait_until(lambda: "h2" in machines.reachable("h1"))
    # The one that is there answers, and has remembered nothing: its life alone tells.
    assert machines.hosts["h1"].ask("GET", "/agents/h2%2Famy")[0] == 200

    async def say_and_hear() -> dict[str, Any]:
        client = await eve(machines)
        subject, data = frame
        channel = subject.split(".", 3)[3]
        heard: asyncio.Queue[Any] = asyncio.Queue()
        await client.subscribe(f"bullpen.h1.h2.{channel}", cb=heard.put)
        await client.publish(subject, data)
        answer = await asyncio.wait_for(heard.get(), 60)
        await client.close()
        head: dict[str, Any] = json.loads(answer.data[64:].partition(b"\n")[0])
        return head

    answer = asyncio.run(say_and_hear())
    assert answer["kind"] == "end" and answer["stale"]
    assert texts(h2).count(text) == 1


@pytest.mark.parametrize(("target", "count"), [("h2", 0), ("h3", 1)])
@pytest.mark.parametrize(
    "how", ["own fleet", "another host's key", "stolen certificate", "changed"]
)
def test_l2_a_forged_request_is_not_done(
    machines: Machines, target: str, count: int, how: str
) -> None:
    h1, h3 = credential(machines, "h1"), credential(machines, "h3")
    mine = issue(make_seed(), "h1", make_seed())
    signer, certificate = {
        "own fleet": (Signer(mine.seed), mine.certificate),
        "another host's key": (Signer(h3.seed), h3.certificate),
        "stolen certificate": (Signer(mine.seed), h1.certificate),
        "changed": (Signer(h1.seed), h1.certificate),
    }[how]
    text = f"{how} to {target}"
    if how == "changed":
        subject, data = forged(machines, target, text.upper(), signer, certificate)
        frame = subject, data.replace(text.upper().encode(), text.encode())
        # An upper-case text of the same length: the frame is whole, but not what was signed.
        assert frame[1] != data
    else:
        frame = forged(machines, target, text, signer, certificate)
    attack(machines, target, text, frame, count)


def test_l2_the_same_frame_is_done_when_it_is_h1s_own(machines: Machines) -> None:
    """So the forger knows how it is done, and fails for want of the key alone."""
    h1, h2 = credential(machines, "h1"), machines.hosts["h2"]
    say(machines, *forged(machines, "h2", "genuine", Signer(h1.seed), h1.certificate))
    wait_until(lambda: texts(h2).count("genuine") == 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"\0" * 64,
        b"\0" * 64 + b"{}\n",
        b"\0" * 64 + b'{"n":0,"kind":"open"}\n',
        b"[]" * 99,
    ]
    + [
        b"\0" * 64 + json.dumps({"n": 0, "kind": "open", "key": key}).encode() + b"\n"
        for key in (None, 1, [], ["U", "x"], [base64.b64encode(b"x").decode()] * 2)
    ],
)
def test_l2_what_makes_no_sense_is_refused_and_the_hub_goes_on(
    machines: Machines, data: bytes
) -> None:
    h2 = machines.hosts["h2"]
    before = refusals(h2)
    say(machines, "bullpen.h2.h1.x", data)
    wait_until(lambda: refusals(h2) > before)
    assert machines.hosts["h1"].ask("GET", "/agents/h2%2Famy")[0] == 200
