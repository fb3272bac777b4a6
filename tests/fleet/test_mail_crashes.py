"""L4: a hub is killed at each step that a message takes to another machine and back. What was
acknowledged arrives, once, in its order."""

import contextlib
from collections.abc import Iterator

import pytest

from bullpen.fleet.mail_server import MailServer
from bullpen.hot import wire
from bullpen.hub.fleet_mail.incoming import IncomingMail
from bullpen.hub.messages.box import Messages
from bullpen.hub.messages.deliver import Delivery
from bullpen.hub.messages.letters import Letters
from bullpen.model.message import new_id
from tests.fleet.mail import Mail, made_mail, once, rows
from tests.hub.pods.support import deadly_hub
from tests.steps import after, before
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WRITER = {
    "adds the letter to the transaction": before(Letters.add),
    "added it, and commits": after(Letters.add),
    "wrote it down": after(Messages.send),
    "about to send it": before(MailServer.send),
    "sent it": after(MailServer.send),
    "sent the second": after(MailServer.send, 2),
    "heard that it was taken": before(Messages.mark_taken),
    "wrote down that it was taken": after(Messages.mark_taken),
    "heard that it was read": before(Messages.take_receipt),
    "wrote down that it was read": after(Messages.take_receipt),
}
RECEIVER = {
    "got it": before(IncomingMail._take),
    "takes it in the transaction": before(Letters.take),
    "took it, and commits": after(Letters.take),
    "has it": after(Delivery.send),
    "has the second": after(Delivery.send, 2),
    "about to say so": before(MailServer.say_heard),
    "said so": after(MailServer.say_heard),
    "is about to note that it is read": before(Letters.add),
    "noted that it is read, and commits": after(Letters.add),
    "sent that it was read": after(MailServer.send),
}
FEW = ("sent it", "has it")


def steps(names: dict[str, str]) -> list[object]:
    return [
        pytest.param(
            name, marks=() if name in FEW else pytest.mark.storm, id=name.replace(" ", "-")
        )
        for name in names
    ]


@pytest.fixture(scope="module")
def mail() -> Iterator[Mail]:
    with made_mail() as made:
        yield made


class Story:
    """Three messages of one step, which amy reads."""

    def __init__(self, mail: Mail, name: str) -> None:
        self.mail = mail
        name = once(name)
        self.texts = [f"{name} {number}" for number in range(3)]
        self.ids = [new_id() for _ in self.texts]

    def send(self) -> None:
        """As a client does that does not know what became of its request: until it knows."""
        for text, id in zip(self.texts, self.ids, strict=True):
            while True:
                with contextlib.suppress(wire.HubError, OSError):
                    self.mail.send(text, id=id)
                    break
                self.mail.start(self.mail.h1)

    def is_read(self) -> bool:
        """Whether amy has them all, and h1 knows that she has read them."""
        with contextlib.suppress(wire.HubError, OSError):
            if len(self.mail.arrived(self.texts[0][:-1])) == 3:
                self.mail.read()
        done = rows(self.mail.h1, "SELECT id FROM messages WHERE read IS NOT NULL")
        return set(self.ids) <= {id for (id,) in done}

    def check(self) -> None:
        wait_until(self.is_read)
        assert self.mail.arrived(self.texts[0][:-1]) == self.texts
        for pen, agent in ((self.mail.h1, "h2/amy"), (self.mail.h2, "amy")):
            like = f"{self.texts[0][:-1]}%"
            ids = rows(pen, "SELECT id FROM messages WHERE text LIKE ?", like)
            assert len(ids) == 3
            for (id,) in ids:
                kinds = [event["kind"] for event in pen.events(agent) if event.get("id") == id]
                assert kinds == ["message.sent", "message.read"]
        for pen in (self.mail.h1, self.mail.h2):
            wait_until(lambda pen=pen: self.mail.waits(pen) == 0)


@pytest.mark.parametrize("step", steps(WRITER))
@pytest.mark.storm
def test_l4_the_hub_of_the_writer_is_killed_at_a_step(mail: Mail, step: str) -> None:
    story = Story(mail, f"writer {step}")
    mail.h1.kill_hub()
    with deadly_hub(mail.h1, WRITER[step]) as dying:
        story.send()
        wait_until(lambda: dying.poll() is not None or story.is_read())
    mail.start(mail.h1)
    story.check()


@pytest.mark.parametrize("step", steps(RECEIVER))
@pytest.mark.storm
def test_l4_the_hub_of_the_receiver_is_killed_at_a_step(mail: Mail, step: str) -> None:
    story = Story(mail, f"receiver {step}")
    mail.h2.kill_hub()
    with deadly_hub(mail.h2, RECEIVER[step]) as dying:
        story.send()
        wait_until(lambda: dying.poll() is not None or story.is_read())
    mail.start(mail.h2)
    story.check()


def test_l4_the_server_is_killed_again_and_again_while_messages_travel(mail: Mail) -> None:
    texts: list[str] = []
    name = once("cut")
    for cut in range(3):
        for number in range(20):
            texts.append(f"{name} {cut:02}-{number:02}")
            mail.send(texts[-1])
            if number == 10:
                mail.machines.kill_server()
        mail.machines.start_server()
    wait_until(lambda: len(mail.arrived(name)) >= len(texts), 120)
    assert mail.arrived(name) == texts
    wait_until(lambda: mail.waits(mail.h1) == 0)
