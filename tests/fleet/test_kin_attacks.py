"""L4: reports of children that nobody started there, that were told before, or that nobody signed.

Mallory does at the server whatever she likes. What hubs check of children is tried twice: against
h1, which is as it should be, and against h4, whose hub lacks the one check.
"""

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from bullpen.fleet.credential import Credential
from bullpen.fleet.signed import SignedRecords
from bullpen.fleet.subjects import mail as mail_subject
from bullpen.model.child_letter import AboutChild, Born, ChildUpdate
from bullpen.model.letter import Letter
from bullpen.model.parcel import Parcel
from tests.fleet.kin import WORKTREE
from tests.fleet.links import credential, eve, reached
from tests.fleet.machines import Machines, made_machines
from tests.fleet.mail import rows
from tests.hub.pen import change_hub
from tests.hub.tree.support import PROGRAM, Grove
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WITHOUT_CHECKS = """
import sys
if sys.argv[:1] != ["-c"]:
    from bullpen.hub.fleet_children.remote import RemoteChildren
    RemoteChildren._find = lambda self, _host, id: self._rows.remote.get(id)
"""
REFUSED = "refused a report of a child that was not started there"


class Homes:
    """h1 and h4 have a lead each, with a child on h2; h3 is somebody else's."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.groves: dict[str, Grove] = {}
        machines.hosts["h2"].role("coder", **PROGRAM, worktree=WORKTREE)
        for host in ("h1", "h4"):
            grove = self.groves[host] = Grove(machines.hosts[host])
            grove.pen.role("boss", **PROGRAM, may_grant="coder", worktree=WORKTREE)

    def child(self, host: str) -> tuple[str, str, str]:
        """Of a lead of that host's: the lead, the child on h2, its id."""
        lead, grove = f"lead-{secrets.token_hex(3)}", self.groves[host]
        grove.run(lead)
        given = {"task": "x", "branch_name": "csv", "role": "coder", "where": "h2"}
        name = grove.call(lead, "spawn_subtree", **given)["name"]
        select = "SELECT id FROM fleet_asked WHERE data LIKE ?"
        [(id,)] = rows(grove.pen, select, f"%{lead}%")
        return lead, str(name), str(id)

    def heard(self, host: str, lead: str) -> list[Any]:
        return [event["data"].get("message") for event in self.groves[host].queue(lead)]

    def publish(self, subject: str, data: bytes) -> None:
        async def once() -> None:
            client = await eve(self.machines, "mallory")
            await client.publish(subject, data)
            await reached(client)
            await client.close()

        asyncio.run(once())

    def say(
        self, sender: str, to: str, about: AboutChild, signer: Credential | None = None
    ) -> None:
        """A letter of that host's, signed by it or by another."""
        line = secrets.token_hex(8)
        letter = Letter(line=line, number=1, taken=0, about=about)
        subject = mail_subject(to, sender, f"{line}-1")
        signed = SignedRecords(signer or credential(self.machines, sender))
        self.publish(subject, signed.sign(subject, letter))


@pytest.fixture(scope="module")
def homes() -> Iterator[Homes]:
    with made_machines("h1", "h2", "h3", "h4", joined=False, with_eve=True) as machines:
        change_hub(machines.hosts["h4"], WITHOUT_CHECKS)
        for name in machines.hosts:
            machines.join(name)
        for name in machines.hosts:
            wait_until(lambda name=name: machines.reachable(name) == {"h1", "h2", "h3", "h4"})
        yield Homes(machines)


def report(id: str, message: str) -> ChildUpdate:
    data = {"status": "success", "message": message}
    return ChildUpdate(id=id, event="child_finished", data=data, key=secrets.token_hex(4))


@pytest.mark.parametrize(("host", "is_heard"), [("h1", False), ("h4", True)])
@pytest.mark.storm
def test_l4_a_host_cannot_report_for_a_child_of_another(
    homes: Homes, host: str, is_heard: bool
) -> None:
    lead, _, id = homes.child(host)
    before = len(homes.groves[host].pen.logged(REFUSED))
    homes.say("h3", host, report(id, "forged"))
    if is_heard:
        wait_until(lambda: homes.heard(host, lead) == ["forged"])
    else:
        wait_until(lambda: len(homes.groves[host].pen.logged(REFUSED)) > before)
        assert homes.heard(host, lead) == []
    # The same of its own host is heard.
    homes.say("h2", host, report(id, "its own"))
    wait_until(lambda: "its own" in homes.heard(host, lead))


def test_l4_a_report_that_its_host_has_not_signed_is_refused(homes: Homes) -> None:
    lead, _, id = homes.child("h1")
    pen = homes.groves["h1"].pen
    before = len(pen.logged("refused a letter of the fleet"))
    homes.say("h2", "h1", report(id, "forged"), credential(homes.machines, "h3"))
    wait_until(lambda: len(pen.logged("refused a letter of the fleet")) > before)
    assert homes.heard("h1", lead) == []


def test_l4_a_report_of_a_child_that_nobody_asked_for_is_refused(homes: Homes) -> None:
    pen = homes.groves["h1"].pen
    before = len(pen.logged(REFUSED))
    homes.say("h2", "h1", Born(id="0" * 32, name="nobody"))
    homes.say("h2", "h1", report("0" * 32, "from nowhere"))
    wait_until(lambda: len(pen.logged(REFUSED)) > before)
    assert rows(pen, "SELECT 1 FROM fleet_asked WHERE id = ?", "0" * 32) == []
    assert "from nowhere" not in homes.heard("h1", "root")


def test_l4_a_report_that_is_sent_again_is_heard_once(homes: Homes) -> None:
    lead, name, _ = homes.child("h1")
    child = name.partition("/")[2]

    async def listen() -> list[tuple[str, bytes]]:
        client = await eve(homes.machines, "mallory")
        heard: asyncio.Queue[Any] = asyncio.Queue()
        await client.subscribe(mail_subject("h1", "h2", "*"), cb=heard.put)
        await reached(client)
        there = Grove.of(homes.machines.hosts["h2"], homes.groves["h1"].repo)
        words = {"status": "success", "message": "overheard"}
        await asyncio.to_thread(there.call, child, "notify_parent", **words)
        while True:
            message = await asyncio.wait_for(heard.get(), 60)
            if b"overheard" in message.data:
                await client.close()
                return [(message.subject, message.data)]

    [letter] = asyncio.run(listen())
    wait_until(lambda: homes.heard("h1", lead) == ["overheard"])
    wait_until(lambda: rows(homes.machines.hosts["h2"], "SELECT 1 FROM fleet_outbox") == [])
    for _ in range(3):
        homes.publish(*letter)
    # One that comes after it has arrived: so it was looked at.
    other, _, id = homes.child("h1")
    homes.say("h2", "h1", report(id, "after"))
    wait_until(lambda: homes.heard("h1", other) == ["after"])
    assert homes.heard("h1", lead) == ["overheard"]


def test_l4_a_bundle_of_another_commit_than_was_told_is_refused(homes: Homes) -> None:
    """What h2 says has come, and the parent is told that the commits have not."""
    lead, name, id = homes.child("h1")
    parcel = Parcel(host="h3", id="x", pieces=1, bytes=1, sha256="0" * 64, commit="1" * 40)
    told = report(id, "done").model_copy(update={"tip": "1" * 40, "parcel": parcel})
    homes.say("h2", "h1", told)
    wait_until(lambda: homes.heard("h1", lead) == ["done"])
    [event] = homes.groves["h1"].queue(lead)
    assert "did not arrive: h2 says that h3 has sent it" in event["data"]["problem"]
    child = name.partition("/")[2]
    assert child not in homes.groves["h1"].branches()
