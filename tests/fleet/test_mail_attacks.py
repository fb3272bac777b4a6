"""L4: letters that nobody wrote, that were taken before, or that are far too many.

Mallory does at the server whatever she likes. Each attack on what hubs check is carried out twice:
against h2, which is as it should be, and against h3, whose hub lacks the one check.
"""

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from bullpen.fleet.credential import Credential, issue
from bullpen.fleet.nkeys import make_seed
from bullpen.fleet.signed import SignedRecords
from bullpen.fleet.subjects import mail as mail_subject
from bullpen.model.letter import Letter, Written
from tests.fleet.links import credential, eve, reached
from tests.fleet.machines import Machines, made_machines
from tests.fleet.mail import once, rows
from tests.hub.http.agents import token_of
from tests.hub.pen import Pen, change_hub
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WITHOUT_CHECKS = """
import sys
if sys.argv[:1] != ["-c"]:
    import secrets
    from bullpen.fleet import frames, nkeys, signed
    from bullpen.hub.messages import letters
    from bullpen.hub.fleet_mail import incoming
    from bullpen.model import letter
    frames.Frame.is_from = lambda *_: True
    signed.check_certificate = lambda _fleet, _host, given: nkeys.Verifier(given.public)
    letters.place_in_line = incoming.place_in_line = lambda *_: "next"
    def message_of(*given):
        made = letter.message_of(*given)
        return made.model_copy(update={"id": "m-" + secrets.token_hex(6)})
    incoming.message_of = message_of
"""
WITHOUT_QUOTA = """
import sys
if sys.argv[:1] != ["-c"]:
    from bullpen.hub.quotas import Quotas
    Quotas.spend = lambda *_: None
"""
REFUSED = "refused a letter of the fleet"


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with made_machines("h1", "h2", "h3", joined=False, with_eve=True) as made:
        change_hub(made.hosts["h3"], WITHOUT_CHECKS)
        for name, pen in made.hosts.items():
            made.join(name)
            pen.run("/bin/cat", name="amy")
        wait_until(lambda: made.reachable("h1") == {"h1", "h2", "h3"})
        yield made


def count(pen: Pen, text: str) -> int:
    """So many messages of that text amy has there."""
    return len(rows(pen, "SELECT id FROM messages WHERE text = ? AND recipient = 'amy'", text))


def publish(machines: Machines, subject: str, data: bytes) -> None:
    async def once() -> None:
        client = await eve(machines, "mallory")
        await client.publish(subject, data)
        await reached(client)
        await client.close()

    asyncio.run(once())


def overheard(machines: Machines, target: str, text: str) -> tuple[str, bytes]:
    """The letter in which h1 writes that to amy; it has arrived."""

    async def listen() -> tuple[str, bytes]:
        client = await eve(machines, "mallory")
        heard: asyncio.Queue[Any] = asyncio.Queue()
        await client.subscribe(mail_subject(target, "h1", "*"), cb=heard.put)
        await reached(client)
        answer = await asyncio.to_thread(
            machines.hosts["h1"].ask, "POST", f"/agents/{target}%2Famy/messages", {"text": text}
        )
        assert answer[0] == 201
        while True:
            message = await asyncio.wait_for(heard.get(), 60)
            if text.encode() in message.data:
                await client.close()
                return message.subject, message.data

    letter = asyncio.run(listen())
    wait_until(lambda: count(machines.hosts[target], text) == 1)
    wait_until(lambda: rows(machines.hosts["h1"], "SELECT 1 FROM fleet_outbox") == [])
    return letter


def refusals(pen: Pen) -> int:
    return len(pen.logged(REFUSED))


@pytest.mark.parametrize(("target", "times"), [("h2", 1), ("h3", 2)])
@pytest.mark.storm
def test_l4_a_letter_that_is_sent_again_is_taken_once(
    machines: Machines, target: str, times: int
) -> None:
    pen, text = machines.hosts[target], once(f"once to {target}")
    publish(machines, *overheard(machines, target, text))
    # One that comes after it has arrived: so it was looked at.
    overheard(machines, target, once("after"))
    wait_until(lambda: count(pen, text) == times)
    assert count(pen, text) == times


@pytest.mark.parametrize(("target", "times"), [("h2", 0), ("h3", 1)])
@pytest.mark.parametrize("how", ["own fleet", "another host's key", "changed"])
def test_l4_a_letter_that_the_host_has_not_signed_is_not_taken(
    machines: Machines, target: str, times: int, how: str
) -> None:
    pen, text = machines.hosts[target], once(f"{how} to {target}").lower()
    mine = issue(make_seed(), "h1", make_seed())
    signer = {
        "own fleet": mine,
        "another host's key": credential(machines, "h3"),
        "changed": credential(machines, "h1"),
    }[how]
    subject, data = forged(signer, target, text.upper() if how == "changed" else text)
    if how == "changed":
        data = data.replace(text.upper().encode(), text.encode())
    before = refusals(pen)
    publish(machines, subject, data)
    if times:
        wait_until(lambda: count(pen, text) == times)
    else:
        wait_until(lambda: refusals(pen) > before)
        assert count(pen, text) == 0


def forged(signer: Credential, target: str, text: str, **fields: Any) -> tuple[str, bytes]:
    """A letter in which the owner writes from h1, by whoever has that key."""
    written = Written(id=f"m-{secrets.token_hex(6)}", to="amy", priority="normal", created=1.0)
    line = secrets.token_hex(8)
    letter = Letter(line=line, number=1, taken=0, about=written.model_copy(update=fields))
    subject = mail_subject(target, "h1", f"{line}-1")
    return subject, SignedRecords(signer).sign(subject, letter, text.encode())


def test_l4_the_same_letter_is_taken_when_it_is_h1s_own(machines: Machines) -> None:
    """So the forger knows how it is done, and fails for want of the key alone."""
    text = once("genuine")
    publish(machines, *forged(credential(machines, "h1"), "h2", text))
    wait_until(lambda: count(machines.hosts["h2"], text) == 1)


def test_l4_a_host_cannot_speak_for_an_agent_of_another(machines: Machines) -> None:
    pen = machines.hosts["h2"]
    before = refusals(pen)
    h1 = credential(machines, "h1")
    publish(machines, *forged(h1, "h2", "as h3s", agent="h3/amy"))
    wait_until(lambda: refusals(pen) > before)
    # Called as an agent of the receiver's, or as the owner, it is one of its own machine.
    for name in ("amy", "root"):
        text = once(f"as {name}")
        publish(machines, *forged(h1, "h2", text, agent=name, sender="root"))
        wait_until(lambda text=text: count(pen, text) == 1)
        found = rows(pen, "SELECT sender FROM messages WHERE text = ?", text)
        assert found == [(f"h1/{name}",)]
    assert count(pen, "as h3s") == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"\0" * 64,
        b"\0" * 64 + b'{"n":0,"kind":"Letter"}\n{}',
        b"[]" * 99,
        b"\0" * 64 + b"[" * 100_000,
    ],
)
@pytest.mark.few(1)
def test_l4_what_makes_no_sense_is_refused_and_the_hub_goes_on(
    machines: Machines, data: bytes
) -> None:
    pen = machines.hosts["h2"]
    before = refusals(pen)
    publish(machines, mail_subject("h2", "h1", secrets.token_hex(4)), data)
    wait_until(lambda: refusals(pen) > before)
    overheard(machines, "h2", once("after"))


@pytest.mark.parametrize("has_quota", [True, False])
@pytest.mark.storm
def test_l4_an_agent_that_floods_delays_nobody_but_its_own_machine(has_quota: bool) -> None:
    """Its own hub does not limit it; the receiver does."""
    with made_machines("h1", "h2", "h3", joined=False) as machines:
        h1, h2, h3 = machines.hosts.values()
        for pen in (h1,) if has_quota else (h1, h2):
            change_hub(pen, WITHOUT_QUOTA)
        for name in machines.hosts:
            machines.join(name)
        for pen in (h1, h2):
            pen.run("/bin/cat", name="amy")
        wait_until(lambda: machines.reachable("h3") == {"h1", "h2", "h3"})
        token = token_of(h1.home, "amy")
        for number in range(500):
            body = {"text": f"flood {number}"}
            assert h1.ask("POST", "/agents/h2%2Famy/messages", body, token)[0] == 201
        arrived = "SELECT COUNT(*) FROM messages WHERE sender = 'h1/amy'"
        # 200 at once, and one in a second: it would take five minutes for all.
        wait_until(lambda: rows(h2, arrived)[0][0] >= (200 if has_quota else 500))
        assert h3.cli("send", "h2/amy", "in between").code == 0
        wait_until(lambda: count(h2, "in between") == 1)
        assert (rows(h2, arrived)[0][0] < 500) == has_quota
