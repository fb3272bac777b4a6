"""L4: messages to agents of other machines keep what messages at home promise."""

import shutil
from collections.abc import Iterator

import pytest

from bullpen.model.message import new_id
from tests.fleet.mail import Mail, made_mail, once, rows
from tests.hub.http.agents import token_of
from tests.hub.tree.support import Grove, ToolError
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def mail() -> Iterator[Mail]:
    with made_mail() as made:
        made.h1.run("/bin/cat", name="bob")
        yield made


def test_l4_a_message_arrives_once_and_every_step_comes_back(mail: Mail) -> None:
    text = f"{once('hello')}\nthere ä"
    ran = mail.h1.cli("send", "h2/amy", text)
    assert ran.code == 0 and ran.out.startswith("queued: on its way to h2 · m-"), ran
    id = ran.out.split()[-1]
    mail.wait_status(id, "sent")
    assert mail.arrived(text) == [text]
    mail.read()
    mail.wait_status(id, "read")
    kinds = [event["kind"] for event in mail.h1.events("h2/amy") if event["id"] == id]
    assert kinds == ["message.sent", "message.read"]
    ran = mail.h1.cli("inbox", "h2/amy")
    assert ran.code == 0 and f"{id}  you" in ran.out and "read" in ran.out, ran


def test_l4_sent_twice_with_one_id_it_is_one_message(mail: Mail) -> None:
    text = once("same")
    id = mail.send(text, id=new_id())
    assert mail.send(text, id=id) == id
    body = {"text": f"{text}, another", "id": id}
    assert mail.h1.ask("POST", "/agents/h2%2Famy/messages", body)[0] == 409
    mail.wait_status(mail.send("after the same"), "sent")
    assert mail.arrived(text) == [text]


@pytest.mark.parametrize("character", ["x", "\x01", "€", "😀"])
def test_l4_as_much_as_at_home_arrives_byte_for_byte(mail: Mail, character: str) -> None:
    name = once("long")
    text = name + character * (((256 << 10) - len(name)) // len(character.encode()))
    mail.wait_status(mail.send(text), "sent")
    assert mail.arrived(name) == [text]


def test_l4_an_agent_writes_as_itself_and_sees_nobody_elses(mail: Mail) -> None:
    token = token_of(mail.h1.home, "bob")
    target = "/agents/h2%2Famy/messages"
    text = once("by bob")
    assert mail.h1.ask("POST", target, {"text": text, "sender": "root"}, token)[0] == 403
    status, sent = mail.h1.ask("POST", target, {"text": text}, token)
    assert (status, sent["sender"], sent["to"]) == (201, "bob", "h2/amy")
    mail.wait_status(sent["id"], "sent")
    select = "SELECT sender, origin FROM messages WHERE text = ?"
    assert rows(mail.h2, select, text) == [("h1/bob", f"h1/{sent['id']}")]
    assert mail.h1.ask("GET", target, token=token)[0] == 403
    # Also if it is called as the receiver is.
    assert mail.h1.ask("GET", "/agents/h2%2Fbob/messages", token=token)[0] == 403
    assert mail.h1.ask("GET", "/agents/bob/messages", token=token)[0] == 200


def test_l4_the_tool_of_agents_writes_to_other_machines_too(mail: Mail) -> None:
    tools, text, request = Grove.of(mail.h1, mail.h1.root), once("by tool"), once("request")
    for _ in range(2):
        sent = tools.call("bob", "send_message", request, to="h2/amy", text=text)
    assert sent["to"] == "h2/amy"
    mail.wait_status(sent["id"], "sent")
    select = "SELECT sender FROM messages WHERE text = ?"
    assert rows(mail.h2, select, text) == [("h1/bob",)]
    assert tools.call("bob", "send_message", to="h1/bob", text="home")["to"] == "bob"
    for to in ("h3/amy", "H2/amy", ">/amy", "h2/a b", "h2/", "/amy"):
        with pytest.raises(ToolError):
            tools.call("bob", "send_message", to=to, text="x")
    wait_until(lambda: mail.waits(mail.h1) == 0)


@pytest.mark.parametrize("is_agent", [True, False])
def test_l4_a_receiver_that_is_not_there_is_told_to_whoever_wrote(
    mail: Mail, is_agent: bool
) -> None:
    token = token_of(mail.h1.home, "bob") if is_agent else ""
    target = "/agents/h2%2Fnobody/messages"
    status, sent = mail.h1.ask("POST", target, {"text": "hi"}, token)
    assert status == 201, sent
    shown = mail.wait_status(sent["id"], "refused", "h2%2Fnobody")
    assert "no agent called nobody" in shown["why"]
    (event,) = mail.h1.events("h2/nobody", "message.refused")[-1:]
    assert event["id"] == sent["id"] and "no agent called nobody" in event["reason"]
    writer = "bob" if is_agent else "root"
    _, inbox = mail.h1.ask("GET", f"/agents/{writer}/messages", token=token)
    told = [each for each in inbox["messages"] if sent["id"] in each["text"]]
    assert [each["sender"] for each in told] == ["bullpen"]
    assert "h2/nobody did not get your message" in told[0]["text"]
    assert rows(mail.h2, "SELECT COUNT(*) FROM messages WHERE recipient = 'nobody'") == [(0,)]


@pytest.mark.parametrize("host", ["h3", "nobody"])
def test_l4_a_machine_that_nobody_knows_is_said_at_once(mail: Mail, host: str) -> None:
    ran = mail.h1.cli("send", f"{host}/amy", "hi")
    assert ran.code == 4 and f"no machine of the fleet is called {host}" in ran.err, ran
    wait_until(lambda: mail.waits(mail.h1) == 0)


@pytest.mark.storm
def test_l4_what_is_written_while_the_other_hub_is_away_arrives_in_order(mail: Mail) -> None:
    mail.h2.kill_hub()
    name = once("away")
    texts = [f"{name} {number}" for number in range(40)]  # more than are under way at once
    ids = [mail.send(text) for text in texts]
    assert mail.message(ids[0])["status"] == "queued"
    mail.start(mail.h2)
    mail.wait_status(ids[-1], "sent")
    assert mail.arrived(name) == texts
    wait_until(lambda: mail.waits(mail.h1) == 0)


@pytest.mark.storm
def test_l4_what_is_written_while_the_server_is_away_arrives_in_order(mail: Mail) -> None:
    name = once("without")
    texts = [f"{name} {number}" for number in range(6)]
    mail.machines.kill_server()
    for text in texts[:-1]:
        mail.send(text)
    # A hub that has never seen the server keeps it, too.
    mail.h1.kill_hub()
    mail.h1.start()
    last = mail.send(texts[-1])
    mail.machines.start_server()
    mail.wait_status(last, "sent")
    assert mail.arrived(name) == texts


@pytest.mark.storm
def test_l4_a_server_that_has_lost_everything_costs_no_message(mail: Mail) -> None:
    mail.h2.kill_hub()
    name = once("lost")
    texts = [f"{name} {number}" for number in range(3)]
    ids = [mail.send(text) for text in texts]
    wait_until(
        lambda: texts[-1].encode() in _stored(mail)
    )  # they are at the server, and nowhere else but here
    mail.machines.kill_server()
    shutil.rmtree(mail.machines.directory / "jetstream")
    mail.machines.start_server()
    mail.start(mail.h2)
    mail.wait_status(ids[-1], "sent")
    assert mail.arrived(name) == texts


def _stored(mail: Mail) -> bytes:
    files = (mail.machines.directory / "jetstream").rglob("bullpen_mail/msgs/*.blk")
    return b"".join(file.read_bytes() for file in files)
